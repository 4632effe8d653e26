"""Lines from pipes: blocks, order, and no waiting for lines that do not come."""

import io
import os
import threading

import pytest

from knnmt import CorpusError
from knnmt.cli.streaming import line_blocks


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
