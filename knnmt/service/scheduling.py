"""Decodes waiting texts in batches: one thread per model, equal shares for all clients.

What a client waits for begins, in a virtual time that runs with the work done, where the client's last piece ended
(start-time fair queueing). What begins first goes first, so that somebody with one sentence passes somebody with a
thousand. Only what is decoded counts: who hangs up, or waits in vain, has had nothing. Nothing is refused because of
load: work waits until it is done, its deadline, or its client hangs up.
"""

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from knnmt.service.failures import TooLate, where

log = logging.getLogger(__name__)

BATCH_TEXTS = 32
BATCH_COST = 4_000  # characters of a batch
GATHER = 0.012  # seconds at most that a batch waits for clients who have just been answered and will ask again
BASE_COST = 20  # characters that any text costs, however short
GATHERED_FOR = 0.06  # and at most this part of the time that the last batch took


@dataclass
class Work:
    """One text to translate. `group` says what it may share a batch with."""

    text: str
    group: Hashable
    client: str
    deadline: float  # of time.monotonic
    unit: Any = None  # the same with its tags, where it is of a document
    done: "Future[Any]" = field(default_factory=Future)

    @property
    def cost(self) -> float:
        return BASE_COST + len(self.text)


Run = Callable[[Hashable, Sequence[Work]], Sequence[Any]]
Line = tuple[str, Hashable]  # a client and a group: what stands in one line is decoded in its order


class Scheduler:
    """A queue and the thread that empties it."""

    def __init__(self, name: str, run: Run, *, batch_texts: int = BATCH_TEXTS) -> None:
        self.run = run
        self.batch_texts = batch_texts
        self._lines: dict[Line, deque[tuple[int, Work]]] = {}  # with the order in which work came
        self._heads: list[tuple[float, int, Line]] = []  # a heap: where the first of each line begins, and its order
        self._ends: dict[str, float] = {}  # by client, where what it has had ends in virtual time
        self._now = 0.0  # virtual time
        self._order = count()
        self._changed = threading.Condition()
        self._stopping = False
        self._last = (0, 0.0)  # texts of the last batch, and the seconds that it took
        self.waiting = 0
        self.batches = 0
        self.texts = 0
        self._thread = threading.Thread(target=self._loop, name=f"decoding {name}", daemon=True)
        self._thread.start()

    def submit(self, works: Iterable[Work]) -> None:
        with self._changed:
            if self._stopping:
                raise TooLate("the server is shutting down")
            for work in works:
                self._push(work)
            self._changed.notify_all()

    def _push(self, work: Work) -> None:
        name, order = (work.client, work.group), next(self._order)
        if name not in self._lines:
            self._lines[name] = deque()
            heapq.heappush(self._heads, (self._begin(work.client), order, name))
        self._lines[name].append((order, work))
        self.waiting += 1

    def _begin(self, client: str) -> float:
        return max(self._now, self._ends.get(client, 0.0))

    def stop(self) -> None:
        """Finish what waits, then end; nothing new is taken."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _loop(self) -> None:
        while (batch := self._next_batch()) is not None:
            begun = time.monotonic()
            live = [work for work in batch if work.done.set_running_or_notify_cancel()]
            if live:
                self._answer(live)
            self._last = (len(live), time.monotonic() - begun)

    def _next_batch(self) -> list[Work] | None:
        with self._changed:
            while not self._lines:
                if self._stopping:
                    return None
                self._ends.clear()  # nobody waits: nobody has had more than their share
                self._changed.wait()
            self._gather()
            return self._take()

    def _gather(self) -> None:
        """Wait a moment for those who were answered together to ask together again.

        Without it the first of them is decoded alone and the others wait for that.
        """
        texts, seconds = self._last
        until = time.monotonic() + min(GATHER, seconds * GATHERED_FOR)
        while self.waiting < min(texts, self.batch_texts) and not self._stopping:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _take(self) -> list[Work]:
        """The fairest work that can share a batch with the fairest of all; what cannot stays."""
        batch: list[Work] = []
        others: list[tuple[float, int, Line]] = []
        cost = 0.0
        while self._heads and len(batch) < self.batch_texts and cost < BATCH_COST:
            begin, order, (client, group) = head = heapq.heappop(self._heads)
            if batch and group != batch[0].group:
                others.append(head)
            elif begin < self._ends.get(client, 0.0):  # it has had something from another of its lines
                heapq.heappush(self._heads, (self._ends[client], order, (client, group)))
            elif (work := self._first((client, group))) is not None:
                self._now = max(self._now, begin)
                self._ends[client] = begin + work.cost
                batch.append(work)
                cost += work.cost
                self._advance((client, group))
        for head in others:
            heapq.heappush(self._heads, head)
        self._pass_time(batch, cost)
        return batch

    def _pass_time(self, batch: Sequence[Work], cost: float) -> None:
        """Time goes on by everyone's part of what was done: newcomers without end do not keep others waiting for ever.

        A client that has had no more than its part is as one who comes new.
        """
        waiting = {client for client, _ in self._lines} | {work.client for work in batch}
        self._now += cost / max(1, len(waiting))
        self._ends = {client: end for client, end in self._ends.items() if end > self._now}

    def _first(self, name: Line) -> Work | None:
        """Take the first item of a queue that a client still waits for; None if there is none."""
        line, now = self._lines[name], time.monotonic()
        while line:
            _, work = line.popleft()
            self.waiting -= 1
            if not work.done.cancelled() and now <= work.deadline:
                return work
            self._drop(work)
        del self._lines[name]
        return None

    def _advance(self, name: Line) -> None:
        """Move to the next item of a queue; remove the queue if it is empty."""
        if line := self._lines[name]:
            heapq.heappush(self._heads, (self._ends[name[0]], line[0][0], name))
        else:
            del self._lines[name]

    def _drop(self, work: Work) -> None:
        if work.done.set_running_or_notify_cancel():
            work.done.set_exception(TooLate("not translated before the deadline; the server is busy"))

    def _answer(self, batch: Sequence[Work]) -> None:
        """Answer all requests of a batch. If it fails, each text is tried alone, so that one cannot fail the others."""
        try:
            answers = self.run(batch[0].group, batch)
            self.batches, self.texts = self.batches + 1, self.texts + len(batch)
        except Exception as error:
            if len(batch) > 1:
                for work in batch:
                    self._answer([work])
                return
            log.debug("a text could not be translated: %s", where(error))
            batch[0].done.set_exception(error)
            return
        for work, answer in zip(batch, answers, strict=True):
            work.done.set_result(answer)
