"""A change that is killed while it runs."""

import os
import signal
import time
import warnings
from collections.abc import Callable

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
