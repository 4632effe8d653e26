"""Lines from pipes: blocks, order, and no waiting for lines that do not come."""

import contextlib
import io
import os
import threading
from typing import Any

import pytest

from knnmt import CorpusError
from knnmt.cli import streaming
from knnmt.cli.streaming import UnendedLine, line_blocks


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"\n", [""]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        ("\ufeffmit BOM\n".encode(), ["mit BOM"]),
        ("a\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),
    ],
)
def test_lines(text: bytes, lines: list[str]) -> None:
    assert [line for block in line_blocks(io.BytesIO(text)) for line in block] == lines


def test_blocks_are_full_where_there_is_enough() -> None:
    text = b"".join(b"%d\n" % number for number in range(1300))
    blocks = list(line_blocks(io.BytesIO(text), size=512))
    assert [line for block in blocks for line in block] == [str(number) for number in range(1300)]
    assert max(map(len, blocks)) <= 512


def test_one_line_is_answered_before_the_next_is_sent() -> None:
    """A program that writes a line and waits for its translation must not wait for ever."""
    reading, writing = os.pipe()
    received: list[list[str]] = []
    answered = threading.Event()

    def consume() -> None:
        with os.fdopen(reading, "rb") as stream:
            for block in line_blocks(stream):
                received.append(block)
                answered.set()

    consumer = threading.Thread(target=consume)
    consumer.start()
    os.write(writing, b"first\n")
    assert answered.wait(timeout=60)
    os.write(writing, b"second\n")
    os.close(writing)
    consumer.join(timeout=60)
    assert received == [["first"], ["second"]]


def test_bad_bytes_name_the_line() -> None:
    with pytest.raises(CorpusError, match="line 3 is not UTF-8"):
        list(line_blocks(io.BytesIO(b"a\nb\n\xff\n")))


def piped(data: bytes) -> list[str]:
    reading, writing = os.pipe()

    def send() -> None:
        with os.fdopen(writing, "wb") as stream, contextlib.suppress(BrokenPipeError):
            stream.write(data)

    sender = threading.Thread(target=send)
    sender.start()
    with os.fdopen(reading, "rb") as stream:
        lines = [line for block in line_blocks(stream) for line in block]
    sender.join()
    return lines


def test_a_long_line_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of a line that comes in many are kept, and not copied with every further one."""
    joined: list[int] = []
    monkeypatch.setattr(UnendedLine, "taken", recording(UnendedLine.taken, joined))
    long = "ä" * 500_000
    assert piped(f"a\n{long}\nb".encode()) == ["a", long, "b"]
    assert len(joined) <= 4
    assert max(joined) <= len(long.encode())


def recording(method: Any, sizes: list[int]) -> Any:
    def recorded(line: UnendedLine) -> bytes:
        sizes.append(line.bytes)
        taken: bytes = method(line)
        return taken

    return recorded


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "LONGEST_LINE", 1 << 20)
    with pytest.raises(CorpusError, match="a line of more than 1 MB"):
        piped(b"x" * (3 << 20))
