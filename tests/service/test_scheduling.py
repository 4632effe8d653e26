"""The queue: together, fair, in order, and nobody lost."""

import threading
import time
from collections.abc import Hashable, Sequence
from itertools import count, islice

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


def test_what_was_taken_back_is_no_part_of_a_share(recorder: Recorder) -> None:
    taken_back = [Work(f"back {number}", "a", "hasty", LATER) for number in range(40)]
    scheduler = queued(recorder, [], batch=4)
    recorder.open.clear()
    scheduler.submit(taken_back)
    for work in taken_back:
        work.done.cancel()
    steady = [Work(f"steady {number}", "a", "steady", LATER) for number in range(40)]
    one = Work("one text", "a", "hasty", LATER)
    scheduler.submit([*steady, one])
    recorder.open.set()
    one.done.result(5)
    scheduler.stop()
    at = next(number for number, batch in enumerate(recorder.batches) if "one text" in batch)
    assert at <= 2, recorder.batches


def test_newcomers_without_end_starve_nobody(recorder: Recorder) -> None:
    """Somebody always waits, each with a text of their own; who has had something comes again, and in time."""
    known: list[int] = []
    newcomers = (Work(f"new {number}", "a", f"client {number}", LATER) for number in count())

    def run(group: Hashable, works: Sequence[Work]) -> list[str]:
        known.append(len(scheduler._ends))
        answers = recorder(group, works)
        if len(known) < 100:
            scheduler.submit(islice(newcomers, 4))
        return answers

    scheduler = Scheduler("test", run, batch_texts=4)
    scheduler.submit(islice(newcomers, 12))
    old = [Work(f"old {number}", "a", "steady", LATER) for number in range(3)]
    scheduler.submit(old)
    recorder.open.set()
    old[-1].done.result(20)
    while len(known) < 100:
        time.sleep(0.001)
    scheduler.stop()
    last = next(number for number, batch in enumerate(recorder.batches) if "old 2" in batch)
    assert last < 20
    assert max(known) < 60  # who does not come again is forgotten


def test_groups_of_one_client_share_its_part(recorder: Recorder) -> None:
    mixed = [Work(f"{group}{number}", group, "mixed", LATER) for number in range(20) for group in "ab"]
    modest = Work("a modest", "a", "modest", LATER)
    scheduler = queued(recorder, [*mixed, modest])
    modest.done.result(5)
    scheduler.stop()
    assert "a modest" in recorder.batches[1]
    assert max(map(len, recorder.batches[2:])) == 4  # what is interleaved is still decoded together


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
