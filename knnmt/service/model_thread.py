"""The one thread that runs a model.

Calls are made in the order in which they came. With a lock, a thread that decodes batch after batch would keep everyone
else waiting. And PyTorch keeps helper threads for every thread that has run a network. Once there are more of them than
processors, they sleep between two operations instead of waiting actively, which makes one sentence a third slower.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_passing_thread(call: Callable[[], Result]) -> Result:
    """For what runs a network once: the thread ends with the call, and its helpers end with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


class ModelThread:
    """Runs one call after another."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="model")

    def run(self, call: Callable[[], Result]) -> Result:
        return self._pool.submit(call).result()

    def stop(self) -> None:
        self._pool.shutdown()
