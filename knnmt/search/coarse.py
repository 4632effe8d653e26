"""Searching the clusters of an index: which ones is found by `Centroids`, what is in them by FAISS.

Of all that a search does, comparing queries with centroids is the largest part, and FAISS's own way is the slowest.
Where the centroids have a graph, FAISS compares with so few of them that it does all of it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.search.index import Keys, found_among, plain_clusters
from knnmt.search.library import faiss


class Probing:
    """An IVF index whose centroids are kept as they are, perhaps with a transformation of the keys before it."""

    def __init__(self, index: Any) -> None:
        self.index = inner_index(index)
        chain: Any = index.chain if isinstance(index, faiss.IndexPreTransform) else None
        self.transforms = [] if chain is None else [chain.at(place) for place in range(chain.size())]
        self.outer = index  # owns both
        self.centroids = found_among(plain_clusters(self.index))

    def search(self, queries: Keys, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and entries, both [queries, k]; −1 where fewer were found."""
        asked = queries
        for transform in self.transforms:
            asked = transform.apply(asked)
        distances, clusters = self.centroids.nearest(asked, self.index.nprobe)
        found: tuple[NDArray[np.float32], NDArray[np.int64]] = self.index.search_preassigned(
            asked, k, clusters, distances
        )
        return found


def probing(index: Any) -> Probing | None:
    """A quicker way to search this index, if there is one."""
    return Probing(index) if isinstance(plain_clusters(inner_index(index)), faiss.IndexFlat) else None


def inner_index(index: Any) -> Any:
    return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
