"""Searches the clusters of an index: `Centroids` finds the clusters, FAISS scans them.

Comparing queries with centroids takes the largest part of a search, and FAISS's own way is the slowest. If the
centroids have a graph and no groups, FAISS follows the graph and compares with few of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt.search.centroids import Centroids
from knnmt.search.distances import Keys
from knnmt.search.internals import found_among, plain_clusters
from knnmt.search.library import faiss
from knnmt.search.mapped_lists import letting_go, list_bytes
from knnmt.search.nearest import Rows

Found = tuple[NDArray[np.float32], NDArray[np.int64]]


class Assigned(NamedTuple):
    """The clusters nearest to each query, [queries, nprobe], with their squared distances."""

    distances: NDArray[np.float32]
    clusters: NDArray[np.int64]
    transformed: Keys | None = None  # the queries as the index compares them; None: as they are

    def of(self, rows: Rows) -> "Assigned":
        """The clusters of some of the queries."""
        transformed = None if self.transformed is None else np.ascontiguousarray(self.transformed[rows])
        return Assigned(
            np.ascontiguousarray(self.distances[rows]), np.ascontiguousarray(self.clusters[rows]), transformed
        )


class Probing:
    """An IVF index whose centroids are stored unquantised, perhaps after a transformation of the keys."""

    def __init__(self, index: Any, *, assigns: bool = True) -> None:
        self.index = inner_index(index)
        chain: Any = index.chain if isinstance(index, faiss.IndexPreTransform) else None
        self.transforms = [] if chain is None else [chain.at(place) for place in range(chain.size())]
        self.outer = index  # owns both
        quantizer: Any = plain_clusters(self.index)
        self.centroids: Centroids | None = None
        self.nearest: Callable[[Keys, int], Found] | None = None
        if assigns:
            self.centroids = found_among(quantizer)
            follows = isinstance(quantizer, faiss.IndexHNSW) and not self.centroids.in_groups
            self.nearest = quantizer.search if follows else self.centroids.nearest
        self.note = letting_go(self.index)
        self.bytes = list_bytes(self.index) if self.note else None

    def search(self, queries: Keys, k: int) -> Found:
        """Squared distances and entries, both [queries, k]; −1 where fewer were found."""
        return self.within(self.assign(queries)).search(queries, k)

    def assign(self, queries: Keys) -> Assigned:
        """The clusters to search for each query."""
        if self.nearest is None:
            raise ValueError("who searches a cut of an index is told the clusters")
        asked = queries
        for transform in self.transforms:  # once for all queries of a batch: a part of it may be rounded otherwise
            asked = transform.apply(asked)
        found = self.nearest(asked, self.index.nprobe)
        return Assigned(*found, asked if self.transforms else None)

    def within(self, assigned: Assigned) -> "Within":
        """What searches these clusters."""
        return Within(self, assigned)


class Within(NamedTuple):
    """An index and the clusters of some queries."""

    probing: Probing
    assigned: Assigned

    def search(self, queries: Keys, k: int) -> Found:
        distances, clusters, transformed = self.assigned
        asked = queries if transformed is None else transformed
        found: Found = self.probing.index.search_preassigned(asked, k, clusters, distances)
        if self.probing.note and self.probing.bytes is not None:
            distinct = np.unique(clusters)
            self.probing.note(int(self.probing.bytes[distinct[distinct >= 0]].sum()))
        return found


def probing(index: Any, *, assigns: bool = True) -> Probing | None:
    """A faster way to search this index, if there is one; with `assigns`, it also finds the clusters of queries."""
    return None if plain_clusters(inner_index(index)) is None else Probing(index, assigns=assigns)


def inner_index(index: Any) -> Any:
    return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
