"""Shards over lines: each answer once and in order, whatever breaks; and Ray where there is no line."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[cluster]'")

from knnmt.cluster import direct_shards
from knnmt.cluster.direct_shards import ATTEMPTS, DirectShards
from knnmt.cluster.lines import DirectLine, LineAddress, Switchboard
from knnmt.errors import StoreError

NOWHERE = LineAddress("127.0.0.1", 9, b"nobody listens")


class Two:
    """Two shards that answer with their number and the request; `asked` are the numbers that went through Ray."""

    count, patience = 2, 5.0

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.looked_up: list[int] = []
        self.boards: dict[int, Switchboard] = {}
        self.reachable, self.damaged, self.silent = True, False, False

    def search(self, request: Any) -> Any:
        return [self.by_ray(number, request) for number in range(2)]

    def search_some(self, request: Any, numbers: Sequence[int], **_: Any) -> Any:
        return {number: self.by_ray(number, request) for number in numbers}

    def by_ray(self, number: int, request: Any) -> Any:
        self.asked.append(number)
        return number, request

    def lines(self, numbers: Sequence[int]) -> dict[int, LineAddress]:
        self.looked_up += numbers
        return {number: self.listening(number) if self.reachable else NOWHERE for number in numbers}

    def listening(self, number: int) -> LineAddress:
        self.boards[number] = Switchboard("127.0.0.1", partial(self.over_line, number))
        return self.boards[number].address

    def over_line(self, number: int, request: Any) -> Any:
        if self.damaged and number == 1:
            raise StoreError("index.faiss: missing")
        return number, request

    def name(self, number: int) -> str:
        return f"shard {number + 1}"


@pytest.fixture
def two() -> Iterator[Two]:
    shards = Two()
    yield shards
    for board in shards.boards.values():
        board.close()


def searched(direct: DirectShards, request: Any) -> None:
    found: Any = direct.search(request)
    assert found == [(0, request), (1, request)]


def test_ray_is_asked_once(two: Two) -> None:
    direct = DirectShards(two)  # type: ignore[arg-type]
    for request in ("first", "second", "third"):
        searched(direct, request)
    assert (two.asked, two.looked_up) == ([0, 1], [0, 1])


def test_a_broken_line(two: Two) -> None:
    direct = DirectShards(two)  # type: ignore[arg-type]
    searched(direct, "first")
    searched(direct, "second")
    direct.exchanges[1].free[0].close()
    two.asked.clear()
    for request in ("third", "fourth"):
        searched(direct, request)
    assert (two.asked, two.looked_up) == ([1], [0, 1, 1])


def test_ports_that_are_closed(two: Two) -> None:
    """A few attempts, and then Ray alone."""
    two.reachable = False
    direct = DirectShards(two)  # type: ignore[arg-type]
    for request in range(ATTEMPTS + 3):
        searched(direct, request)
    assert two.asked == [0, 1] * (ATTEMPTS + 3)
    assert two.looked_up == [0, 1] * ATTEMPTS


def test_an_error_names_the_shard_and_lines_stay_in_order(two: Two) -> None:
    direct = DirectShards(two)  # type: ignore[arg-type]
    searched(direct, "first")
    two.damaged = True
    with pytest.raises(StoreError, match=r"shard 2: index\.faiss: missing"):
        searched(direct, "second")
    two.damaged = False
    searched(direct, "third")


def test_a_silent_line(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is asked, and what comes late over the line is never taken for another answer."""
    direct = DirectShards(two)  # type: ignore[arg-type]
    searched(direct, "first")
    monkeypatch.setattr(direct_shards, "SILENCE", 0.05)
    answer = DirectLine.answer
    monkeypatch.setattr(DirectLine, "answer", lambda *_: (_ for _ in ()).throw(TimeoutError))
    searched(direct, "second")
    monkeypatch.setattr(DirectLine, "answer", answer)
    monkeypatch.setattr(direct_shards, "SILENCE", 5.0)
    two.asked.clear()
    searched(direct, "third")
    assert two.asked == []


def test_switched_off(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNNMT_PLAIN", "lines")
    direct = DirectShards(two)  # type: ignore[arg-type]
    for request in ("first", "second"):
        searched(direct, request)
    assert (two.asked, two.looked_up) == ([0, 1, 0, 1], [])
