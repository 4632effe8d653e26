"""The queue: together, fair, in order, and nobody lost."""

import threading
import time
from collections.abc import Hashable, Sequence

import pytest

from knnmt.service.failures import TooLate
from knnmt.service.scheduling import Scheduler, Work

LATER = 1e12


class Recorder:
    """Upper-cases, after `open` has been set; remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.open = threading.Event()

    def __call__(self, _: Hashable, works: Sequence[Work]) -> list[str]:
        self.open.wait()
        self.batches.append([work.text for work in works])
        if any(work.text == "bad" for work in works):
            raise ValueError("bad")
        return [work.text.upper() for work in works]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def queued(recorder: Recorder, works: list[Work], batch: int = 4) -> Scheduler:
    """The works wait behind one that is being decoded."""
    scheduler = Scheduler("test", recorder, batch_texts=batch)
    first = Work("first", "a", "nobody", LATER)
    scheduler.submit([first])
    while not first.done.running():
        time.sleep(0.001)
    scheduler.submit(works)
    recorder.open.set()
    return scheduler


def test_everyone_gets_their_own_answer(recorder: Recorder) -> None:
    works = [Work(f"text {number}", "a", f"client {number % 7}", LATER) for number in range(50)]
    scheduler = queued(recorder, works)
    assert [work.done.result(5) for work in works] == [work.text.upper() for work in works]
    scheduler.stop()
    assert max(map(len, recorder.batches)) == 4


def test_one_sentence_passes_a_thousand(recorder: Recorder) -> None:
    many = [Work(f"many {number}", "a", "greedy", LATER) for number in range(40)]
    one = Work("one text", "a", "modest", LATER)
    scheduler = queued(recorder, [*many, one])
    one.done.result(5)
    scheduler.stop()
    assert "one text" in recorder.batches[1]


def test_groups_are_not_mixed(recorder: Recorder) -> None:
    works = [Work(f"{group}{number}", group, group, LATER) for number in range(4) for group in "ab"]
    queued(recorder, works).stop()
    assert all(len({text[0] for text in batch}) == 1 for batch in recorder.batches[1:])
    assert sum(map(len, recorder.batches)) == 9


def test_whoever_hangs_up_frees_the_place(recorder: Recorder) -> None:
    works = [Work(f"text {number}", "a", "client", LATER) for number in range(8)]
    scheduler = Scheduler("test", recorder, batch_texts=4)
    scheduler.submit([Work("first", "a", "nobody", LATER)])
    scheduler.submit(works)
    for work in works[::2]:
        work.done.cancel()
    recorder.open.set()
    scheduler.stop()
    seen = {text for batch in recorder.batches for text in batch}
    assert seen >= {work.text for work in works[1::2]}
    assert len(seen & {work.text for work in works[::2]}) <= 4  # those that the first batch had taken already


def test_the_deadline_is_an_error_and_not_silence(recorder: Recorder) -> None:
    late = Work("late", "a", "client", time.monotonic() - 1)
    scheduler = queued(recorder, [late])
    with pytest.raises(TooLate):
        late.done.result(5)
    scheduler.stop()


def test_a_text_that_fails_harms_no_other(recorder: Recorder) -> None:
    works = [Work(text, "a", "client", LATER) for text in ("good", "bad", "fine")]
    scheduler = queued(recorder, works)
    assert works[0].done.result(5) == "GOOD"
    assert works[2].done.result(5) == "FINE"
    assert isinstance(works[1].done.exception(5), ValueError)
    scheduler.stop()


def test_stopping_finishes_what_waits_and_takes_nothing_new(recorder: Recorder) -> None:
    works = [Work(f"text {number}", "a", "client", LATER) for number in range(9)]
    scheduler = queued(recorder, works)
    scheduler.stop()
    assert all(work.done.done() for work in works)
    with pytest.raises(TooLate):
        scheduler.submit([Work("late", "a", "client", LATER)])
