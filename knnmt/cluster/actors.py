"""Shards as Ray actors: each batch is sent to all of them, and the answer is complete or an error.

Ray restarts an actor that dies, on another machine if its own is gone. The actor opens its part of the stores again,
and the query is repeated. If an answer does not arrive in time, the error names the shard.
"""

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from knnmt.cluster.connection import explained
from knnmt.cluster.shard import Shard, ShardAnswer, ShardContents, ShardNumber
from knnmt.errors import ClusterError
from knnmt.search.coarse import Assigned

PATIENCE = 60.0  # seconds until an answer must be there, those included in which an actor comes back
OPENING = 600.0  # the same for the first answer: processes start, libraries load, large files are opened
PAUSE = 0.05  # seconds before a shard is asked again
LARGE = 100_000  # bytes, from which on Ray would copy a request for every shard


class ShardActor:
    """A shard in its own process. It opens its files at the first request, also after a restart."""

    def __init__(self, contents: ShardContents, share: ShardNumber) -> None:
        self.contents, self.share = contents, share
        self.shard: Shard | None = None

    def opened(self) -> Shard:
        if self.shard is None:
            self.shard = Shard(self.contents, self.share)
        return self.shard

    def pid(self) -> int:
        return os.getpid()

    def entries(self) -> int:
        return self.opened().entries

    def search(self, request: "Request") -> list[ShardAnswer | None]:
        return self.opened().search(request.queries, request.k, request.assigned)


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
        return sum(self.ask("entries", patience=max(OPENING, self.patience)))

    def search(self, request: Request) -> list[list[ShardAnswer | None]]:
        """The answer of each shard."""
        is_large = request.queries.nbytes > LARGE and self.count > 1
        return self.ask("search", ray.put(request) if is_large else request)

    def ask(self, method: str, *arguments: Any, patience: float | None = None) -> list[Any]:
        """One answer of each shard, or an error."""
        patience = self.patience if patience is None else patience
        deadline = time.monotonic() + patience
        answers: dict[int, Any] = {}
        asked = list(self.actors)
        waiting = {self.call(actor, method, arguments): number for number, actor in enumerate(asked)}
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
        return [answers[number] for number in range(self.count)]

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
