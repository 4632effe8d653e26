"""The protocol `Retriever`: decoder states in, neighbours out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from knnmt.mixing.neighbours import Neighbours
from knnmt.store.datastore import StoredSegment


@dataclass(frozen=True, slots=True)
class Located:
    """The origin of an entry: the sentence pair, and which of its target tokens the entry is."""

    store: str  # what the store is called
    pair: StoredSegment
    position: int
    token: int


class Retriever(Protocol):
    """A memory that can be searched. The docstring of `knnmt.retrieval` lists the implementations."""

    @property
    def entries(self) -> int:
        """The number of entries that may be found."""

    @property
    def fingerprint(self) -> str:
        """The model that the keys were made with."""

    @property
    def signature(self) -> dict[str, str]:
        """What a score depends on: `store`, `index`, and `where` if there are conditions."""

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        """The k nearest entries of each of the queries [n, dimension]."""

    def locate(self, entries: Sequence[int]) -> list[Located]:
        """The origins of entries that were found."""
