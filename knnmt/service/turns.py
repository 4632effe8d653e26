"""A lock that is handed over in the order in which it was asked for.

Python's own goes to whoever comes first after it is free: a thread that decodes batch after batch would keep everyone
else waiting.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Whoever holds the turn uses the model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def _acquire(self) -> None:
        mine = threading.Event()
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            self._waiting.append(mine)
        mine.wait()

    def _release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()  # it stays taken: the turn goes straight to the next
            else:
                self._taken = False
