"""Shards as Ray actors: each batch is sent to all of them, and the answer is complete or an error.

Ray restarts an actor that dies, on another machine if its own is gone. The actor opens its part of the stores again,
and the query is repeated. If an answer does not arrive in time, the error names the shard.
"""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from knnmt.cluster.connection import explained
from knnmt.cluster.lines import LineAddress, Switchboard
from knnmt.cluster.shard import Shard, ShardAnswer, ShardContents, ShardNumber
from knnmt.errors import ClusterError
from knnmt.search.coarse import Assigned

PATIENCE = 60.0  # seconds until an answer must be there, those included in which an actor comes back
OPENING = 600.0  # the same for the first answer: processes start, libraries load, large files are opened
SOON = 2.0  # seconds, in which a shard that has just answered says where it listens
PAUSE = 0.05  # seconds before a shard is asked again
LARGE = 100_000  # bytes, from which on Ray would copy a request for every shard


class ShardActor:
    """A shard in its own process. It opens its files at the first request, also after a restart."""

    def __init__(self, contents: ShardContents, share: ShardNumber) -> None:
        self.contents, self.share = contents, share
        self.shard: Shard | None = None
        self.one = threading.Lock()  # requests come through Ray and over lines
        self.switchboard: Switchboard | None = None

    def opened(self) -> Shard:
        if self.shard is None:
            self.shard = Shard(self.contents, self.share)
        return self.shard

    def pid(self) -> int:
        return os.getpid()

    def entries(self) -> int:
        with self.one:
            return self.opened().entries

    def search(self, request: "Request") -> list[ShardAnswer | None]:
        with self.one:
            return self.opened().search(request.queries, request.k, request.assigned)

    def line(self) -> LineAddress:
        """Where it answers without Ray."""
        if self.switchboard is None:
            self.switchboard = Switchboard(ray.util.get_node_ip_address(), self.search)
        return self.switchboard.address


ACTOR: Any = ray.remote(max_restarts=-1, max_task_retries=0, scheduling_strategy="SPREAD")(ShardActor)


@dataclass(frozen=True, slots=True)
class Request:
    """A batch of queries [n, dimension] with the clusters in which they are looked for."""

    queries: NDArray[np.float32]
    k: int
    assigned: list[Assigned | None]


class Shards:
    """All shards of some stores; `memory` is what one of them needs, in bytes."""

    def __init__(self, contents: ShardContents, count: int, *, memory: int, patience: float = PATIENCE) -> None:
        self.contents, self.count, self.memory, self.patience = contents, count, memory, patience
        self.actors = [self.start(number) for number in range(count)]
        self.replacing = threading.Lock()  # two batches may find the same actor dead

    def start(self, number: int) -> Any:
        return ACTOR.options(memory=self.memory).remote(self.contents, ShardNumber(number, self.count))

    def entries(self) -> int:
        """The number of entries of all shards."""
        patience = max(OPENING, self.patience)
        found = self.ask("entries", numbers=range(self.count), patience=patience, began=time.monotonic())
        return sum(found.values())

    def search(self, request: Request) -> list[list[ShardAnswer | None]]:
        """The answer of each shard."""
        found = self.search_some(request, range(self.count), began=time.monotonic())
        return [found[number] for number in range(self.count)]

    def search_some(
        self, request: Request, numbers: Sequence[int], *, began: float
    ) -> dict[int, list[ShardAnswer | None]]:
        """The answers of some shards, by their numbers; `began` is when the first of them was asked."""
        is_large = request.queries.nbytes > LARGE and len(numbers) > 1
        sent = ray.put(request) if is_large else request
        return self.ask("search", sent, numbers=numbers, patience=self.patience, began=began)

    def lines(self, numbers: Sequence[int]) -> dict[int, LineAddress]:
        """Where some shards listen; those that do not say so soon are left out."""
        calls = {self.actors[number].line.remote(): number for number in numbers}
        ready = ray.wait(list(calls), num_returns=len(calls), timeout=SOON)[0] if calls else []
        found = {}
        for call in ready:
            with suppress(RayError):  # it died after its last answer
                found[calls[call]] = ray.get(call)
        return found

    def ask(
        self, method: str, *arguments: Any, numbers: Sequence[int], patience: float, began: float
    ) -> dict[int, Any]:
        """One answer of each of these shards, or an error."""
        deadline = began + patience
        answers: dict[int, Any] = {}
        asked = list(self.actors)
        waiting = {self.call(asked[number], method, arguments): number for number in numbers}
        while waiting:
            left = deadline - time.monotonic()
            ready = ray.wait(list(waiting), num_returns=len(waiting), timeout=max(0.0, left))[0] if left > 0 else []
            if not ready:
                raise self.late(sorted(waiting.values()), patience)
            for call in ready:
                number = waiting.pop(call)
                try:
                    answers[number] = ray.get(call, timeout=max(PAUSE, deadline - time.monotonic()))
                except RayTaskError as error:
                    raise explained(error, self.name(number)) from error
                except RayError as error:  # it died, or its machine, or its answer with that
                    asked[number] = self.living(number, asked[number], error)
                    waiting[self.call(asked[number], method, arguments)] = number
        return answers

    def call(self, actor: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(actor, method).remote(*arguments)

    def living(self, number: int, asked: Any, error: RayError) -> Any:
        """The same actor, or a new one if Ray has given it up."""
        time.sleep(PAUSE)
        with self.replacing:
            if isinstance(error, ActorDiedError) and self.actors[number] is asked:
                self.actors[number] = self.start(number)
            return self.actors[number]

    def name(self, number: int) -> str:
        return f"shard {number + 1} of {self.count}"

    def late(self, numbers: list[int], patience: float) -> ClusterError:
        names = ", ".join(self.name(number) for number in numbers)
        return ClusterError(
            f"{names}: no answer within {patience:g} s; it needs {self.memory / 1e6:,.0f} MB of memory "
            "on a machine of the cluster (`ray status` shows what there is)"
        )
