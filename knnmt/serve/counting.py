"""Counts of what has been answered: routes, methods and statuses; never a text, a key or an address."""

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BOUNDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)  # seconds


@dataclass
class Metrics:
    """What has been answered since the start."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # by method, route and status
    seconds: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[method, route, status] += 1
            self.seconds[bisect_left(BOUNDS, seconds)] += 1
            self.total += seconds
