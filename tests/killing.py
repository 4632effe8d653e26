"""A change that is killed while it runs."""

import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import faiss
import torch

KILLS = int(os.environ.get("KNNMT_KILLS", "12"))  # of each change


def killed(change: Callable[[], object], after: float) -> bool:
    """Run a change in a process of its own and kill it; tells whether it was still at work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child uses none
        child = os.fork()
    if not child:
        try:
            change()
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def duration(change: Callable[[], object]) -> float:
    began = time.perf_counter()
    change()
    return time.perf_counter() - began


def killed_at_random(
    change: Callable[[Path], object], seconds: float, folder: Path, *, before: Path | None = None, seed: int | str = 0
) -> Iterator[Path]:
    """Stores in which a change was killed within `seconds`; each is a copy of `before`, or made by the change.

    A change that ends before it is killed does not count.
    """
    dice, at_work = random.Random(seed), 0
    while at_work < KILLS:
        path = folder / "killed"
        if before:
            shutil.copytree(before, path)
        if killed(lambda path=path: change(path), dice.uniform(0, seconds)):  # type: ignore[misc]
            at_work += 1
        else:
            seconds *= 0.9  # it came too late
        yield path
        shutil.rmtree(path)


@contextmanager
def one_thread() -> Iterator[None]:
    """A forked child has none of its parent's threads, and would wait for them for ever."""
    before = faiss.omp_get_max_threads(), torch.get_num_threads()
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before[0])
    torch.set_num_threads(before[1])
