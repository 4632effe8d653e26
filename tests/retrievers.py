"""A retriever without a store: every key in an array, searched by brute force."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from knnmt.mixing.neighbours import Neighbours
from knnmt.retrieval.retriever import Located
from knnmt.store.datastore import StoredSegment


class ArrayRetriever:
    """Keys [entries, dimension] and their tokens; each entry is a sentence pair of its own."""

    def __init__(self, keys: NDArray[np.float32], tokens: NDArray[np.int64]) -> None:
        self.keys, self.tokens = keys, tokens
        self.fingerprint = "none"
        self.signature = {"store": "array", "index": "none"}

    @property
    def entries(self) -> int:
        return len(self.tokens)

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        distances = ((queries[:, None, :] - self.keys[None]) ** 2).sum(axis=-1)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
        found = np.take_along_axis(distances, nearest, 1).astype(np.float32)
        return Neighbours(found, nearest, self.tokens[nearest])

    def locate(self, entries: Sequence[int]) -> list[Located]:
        return [self.located(entry) for entry in entries]

    def located(self, entry: int) -> Located:
        pair = StoredSegment(entry, f"source {entry}", f"target {entry}", "array", entry, "", {})
        return Located("array", pair, 0, int(self.tokens[entry]))
