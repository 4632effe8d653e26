"""Two batches in flight: while one waits for the shards of a cluster, the other one is decoded.

Two threads take turns at the network. Whoever waits for neighbours lets the other one go on.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from knnmt.engine.runtime import lock_of
from knnmt.engine.stepping import Stepper
from knnmt.mixing.neighbours import Neighbours
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.retrieval.retriever import Located, Retriever
from knnmt.switches import left_out
from knnmt.translate.beam import Hypothesis

IN_FLIGHT = 2  # batches
AT_A_TIME = 16  # batches, after which other threads get the network

Search = Callable[[list[int], Retriever], list[Hypothesis]]


def may_take_turns(retriever: Retriever) -> bool:
    """Whether a search waits for other processes. Local search keeps this one's processors busy."""
    return isinstance(retriever, LocalRetriever) and retriever.waits and not left_out("turns")


def in_turns(
    search: Search, batches: Sequence[list[int]], retriever: Retriever, host: Stepper
) -> Iterator[tuple[Sequence[list[int]], list[list[Hypothesis]]]]:
    """Some batches at a time with their outputs; `host` prepares the network for the threads that decode."""
    for first in range(0, len(batches), AT_A_TIME):
        some = batches[first : first + AT_A_TIME]
        with lock_of(host.network), host.hosting():  # held here for those threads
            found = decoded(search, some, retriever)
        yield some, found


def decoded(search: Search, batches: Sequence[list[int]], retriever: Retriever) -> list[list[Hypothesis]]:
    """The outputs of each batch."""
    turn = threading.Lock()
    yielding = Yielding(retriever, turn)

    def decode(batch: list[int]) -> list[Hypothesis]:
        with turn:
            return search(batch, yielding)

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        return list(pool.map(decode, batches))


class Yielding:
    """A retriever that gives the turn away while it searches."""

    def __init__(self, retriever: Retriever, turn: threading.Lock) -> None:
        self.retriever, self.turn = retriever, turn

    @property
    def entries(self) -> int:
        return self.retriever.entries

    @property
    def fingerprint(self) -> str:
        return self.retriever.fingerprint

    @property
    def signature(self) -> dict[str, str]:
        return self.retriever.signature

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        self.turn.release()
        try:
            return self.retriever.search(queries, k)
        finally:
            self.turn.acquire()

    def locate(self, entries: Sequence[int]) -> list[Located]:
        return self.retriever.locate(entries)
