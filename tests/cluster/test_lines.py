"""Lines: requests and answers arrive whole, strangers are not let in, and whatever breaks is an error at once."""

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from knnmt.cluster.lines import ACCEPTED, TOKEN_BYTES, DirectLine, Failure, LineAddress, Switchboard, packed
from knnmt.errors import ClusterError, StoreError


class UnsendableError(Exception):
    def __reduce__(self) -> Any:
        raise TypeError


def answered(request: Any) -> Any:
    if isinstance(request, Exception):
        raise request
    if isinstance(request, str) and request == "unsendable":
        raise UnsendableError("told by its text")
    return request


@pytest.fixture
def board() -> Iterator[Switchboard]:
    opened = Switchboard("127.0.0.1", answered)
    yield opened
    opened.close()


@pytest.fixture
def line(board: Switchboard) -> Iterator[DirectLine]:
    opened = DirectLine(board.address)
    yield opened
    opened.close()


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("length", [0, 1, 70_000, 3_000_000])
def test_requests_come_back_whole(line: DirectLine, length: int) -> None:
    sent = np.random.default_rng(1).integers(0, 255, length, dtype=np.uint8)
    for _ in range(3):
        line.ask(packed(sent), soon())
        assert np.array_equal(line.answer(soon()), sent)


def test_several_callers_at_once(board: Switchboard) -> None:
    lines = [DirectLine(board.address) for _ in range(5)]
    for number, one in enumerate(lines):
        one.ask(packed(number), soon())
    assert [one.answer(soon()) for one in reversed(lines)] == [4, 3, 2, 1, 0]
    for one in lines:
        one.close()


@pytest.mark.parametrize(
    ("request_", "kind", "text"),
    [(StoreError("index: missing"), StoreError, "index: missing"), ("unsendable", ClusterError, "told by its text")],
)
def test_an_error_is_an_answer(line: DirectLine, request_: Any, kind: type, text: str) -> None:
    line.ask(packed(request_), soon())
    failure = line.answer(soon())
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, kind)
    assert text in str(failure.error)
    line.ask(packed("and goes on"), soon())
    assert line.answer(soon()) == "and goes on"


class Planted:
    """Unpickling it would be seen."""

    seen = False

    def __reduce__(self) -> Any:
        return planted, ()


def planted() -> None:
    Planted.seen = True


@pytest.mark.parametrize("said", [b"x" * TOKEN_BYTES, b"short", b""])
def test_strangers_are_not_read(board: Switchboard, said: bytes) -> None:
    with socket.create_connection((board.address.host, board.address.port), timeout=10) as stranger:
        message = pickle.dumps(Planted())
        with suppress(OSError):  # closed with bytes unread
            stranger.sendall(said + len(message).to_bytes(8) + message if len(said) == TOKEN_BYTES else said)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) != ACCEPTED
    assert not Planted.seen
    with pytest.raises((EOFError, OSError)):
        DirectLine(LineAddress(board.address.host, board.address.port, b"y" * TOKEN_BYTES))


def test_nobody_listens(board: Switchboard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        DirectLine(LineAddress("127.0.0.1", port, board.token))


def test_an_answer_that_does_not_come(board: Switchboard) -> None:
    going_on = threading.Event()
    slow = Switchboard("127.0.0.1", lambda _: going_on.wait(10))
    line = DirectLine(slow.address)
    line.ask(packed(1), soon())
    with pytest.raises(TimeoutError):
        line.answer(soon(0.05))
    going_on.set()
    line.close()
    slow.close()


def test_the_other_side_goes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        opened: list[DirectLine] = []
        address = LineAddress("127.0.0.1", listening.getsockname()[1], b"z" * TOKEN_BYTES)
        caller = threading.Thread(target=lambda: opened.append(DirectLine(address)))
        caller.start()
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(ACCEPTED + b"\x00\x00")  # half of a length
        caller.join()
    with pytest.raises((EOFError, OSError)):
        opened[0].answer(soon())
    opened[0].close()
