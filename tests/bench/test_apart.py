"""Works in processes of their own: asked in turn, timed inside, their errors raised here, and gone afterwards."""

import multiprocessing
import os
import time
from functools import partial

import pytest

from bench.apart import Opened, answer_questions, questions, working_apart
from bench.ratios import Done, speeds_of_timed
from knnmt.errors import KnnmtError, SettingsError

WORKING, SENDING = 0.05, 1.0  # seconds


class SlowToSend:
    """Pickled by the worker when its work is done."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        time.sleep(SENDING)
        return (SlowToSend, ())


def work(task: str) -> object:
    time.sleep(WORKING)
    if task == "refuse":
        raise SettingsError("--k 0: must be at least 1")
    if task == "die":
        os._exit(3)
    return SlowToSend() if task == "send slowly" else f"{task} by {os.getpid()}"


def open_work(name: str) -> Opened:
    return Opened(work, f"signature of {name}")


def fail(error: Exception) -> Opened:
    raise error


def test_workers_are_timed_inside_and_gone_afterwards() -> None:
    with working_apart({name: partial(open_work, name) for name in ("first", "second")}) as workers:
        first, second = workers.values()
        assert [first.signature, second.signature] == ["signature of first", "signature of second"]
        assert first.ask("done").result == f"done by {first.process.pid}"
        assert second.ask("done").result == f"done by {second.process.pid}"
        assert WORKING <= second.ask("send slowly").seconds < SENDING
        with pytest.raises(SettingsError, match="--k 0: must be at least 1"):
            first.ask("refuse")
        with pytest.raises(KnnmtError, match="second: its process died with exit code 3"):
            second.ask("die")
    assert not multiprocessing.active_children()


def test_an_error_ends_the_workers_that_wait() -> None:
    with pytest.raises(SettingsError, match="--k 0: must be at least 1"):
        ask_and_fail()
    assert not multiprocessing.active_children()


def ask_and_fail() -> None:
    openings = {
        "waits": partial(open_work, "waits"),
        "fails": partial(fail, SettingsError("--k 0: must be at least 1")),
    }
    with working_apart(openings):
        pytest.fail("one worker could not open its work")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SettingsError("--k 0: must be at least 1"), SettingsError("--k 0: must be at least 1")),
        (ValueError("too many dimensions"), RuntimeError("ValueError: too many dimensions")),
    ],
)
def test_what_cannot_be_opened_is_told(error: Exception, told: Exception) -> None:
    ours, theirs = multiprocessing.Pipe()
    answer_questions(theirs, partial(fail, error))
    found = ours.recv()
    assert type(found) is type(told)
    assert str(found).strip().endswith(str(told))


def test_questions_end_with_the_parent() -> None:
    ours, theirs = multiprocessing.Pipe()
    ours.send(("done",))
    ours.close()
    assert list(questions(theirs)) == [("done",)]


def test_rounds_take_turns_and_the_first_is_not_counted() -> None:
    order: list[str] = []

    def done(name: str, seconds: float) -> Done:
        order.append(name)
        return Done(10, seconds)

    works = {"slow": partial(done, "slow", 5.0), "fast": partial(done, "fast", 2.0)}
    assert speeds_of_timed(works, 2) == {"slow": [2.0, 2.0], "fast": [5.0, 5.0]}
    assert order == ["slow", "fast"] * 3
