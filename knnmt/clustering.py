"""k-means in torch, whose matrix product is several times as fast here as the one inside FAISS; and finding the nearest
of many centroids, which FAISS does faster still by their codes."""

import math
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine import faiss
from knnmt.exact import Keys, distances_less_norms, norms_of, smallest
from knnmt.packed import PackedWeights, can_be_packed

ROUNDS = 10  # FAISS's own 25 gain next to nothing in recall
AT_ONCE = 1 << 22  # distances of keys to centroids: they stay in the processor's cache
MANY = 4096  # clusters, from which on they are found by their codes
CODED = 4096  # queries at a time that are compared with codes: each needs a table
NUMBERS_A_CODE = 4  # of a centroid, which are one code of 4 bits
FEWEST_CODES = 32  # of a centroid: with fewer they tell too little apart
CANDIDATES = 4  # times as many as wanted are compared in single precision
SAMPLE = 1024  # centroids, of which codes of 16 values learn enough

Found = tuple[NDArray[np.float32], NDArray[np.int64]]  # squared distances and numbers, both [queries, n], nearest first


class Centroids:
    """Finds the nearest of some centroids: by comparing with each, or, where there are many, with the best by codes.

    `held` is a FAISS index of just these centroids, if there is one already.
    """

    def __init__(self, centroids: Keys, held: Any = None) -> None:
        self.all = torch.from_numpy(centroids)
        pieces = code_pieces(centroids.shape[1])
        self.coded = coded(centroids, pieces, held) if len(centroids) >= MANY and pieces >= FEWEST_CODES else None
        self.packed: PackedWeights | None = None
        self.norms = norms_of(self.all)
        if self.coded is None and can_be_packed(self.all):
            self.packed = PackedWeights(-2 * self.all, self.norms)

    def nearest(self, queries: Keys, n: int) -> Found:
        """The n nearest of each query."""
        if self.coded is not None and n * CANDIDATES < len(self.all):
            found: Found = self.coded.search(queries, n)
            return found
        asked = torch.from_numpy(queries)
        near, numbers = smallest(self.distances(asked), n)
        return (near + norms_of(asked)[:, None]).clamp_min(0.0).numpy(), numbers.contiguous().numpy()

    def distances(self, queries: torch.Tensor) -> torch.Tensor:
        """Squared distances [queries, centroids], less each query's own norm."""
        return self.packed.product(queries) if self.packed else distances_less_norms(queries, self.all, self.norms)

    def owners(self, keys: Keys) -> NDArray[np.int64]:
        """The nearest centroid of each key, [n]."""
        rows = max(1, AT_ONCE // len(self.all)) if self.coded is None else CODED
        found = [self.nearest(keys[first : first + rows], 1)[1][:, 0] for first in range(0, len(keys), rows)]
        return np.concatenate(found)


def code_pieces(dimension: int) -> int:
    """The most pieces, of four numbers at least, that divide the dimension evenly."""
    return next(n for n in range(max(1, dimension // NUMBERS_A_CODE), 0, -1) if dimension % n == 0)


def coded(centroids: Keys, pieces: int, held: Any) -> Any:
    """A FAISS index that scans codes of the centroids and compares the best of them as they are."""
    dimension, engine = centroids.shape[1], cast(Any, faiss)
    codes = engine.IndexPQFastScan(dimension, pieces, 4)
    codes.pq.cp.niter = ROUNDS
    codes.train(np.ascontiguousarray(centroids[:: max(1, len(centroids) // SAMPLE)]))
    codes.add(centroids)
    if held is None:
        held = faiss.IndexFlatL2(dimension)
        held.add(centroids)
    both = engine.IndexRefine(codes, held)
    both.k_factor = CANDIDATES
    both.referenced_objects = [codes, held]
    return both


def cluster(keys: Keys, clusters: int, random: np.random.Generator) -> Keys:
    """Centroids [clusters, dimension] of keys [n, dimension], of which there are at least as many.

    Many clusters are found as clusters of clusters, whose number is as their size.
    """
    if clusters < MANY:
        return k_means(keys, clusters, random)
    owners = assign(keys, k_means(keys, 2 ** round(math.log2(clusters) / 2), random))
    groups = [keys[owners == group] for group in np.unique(owners)]
    shares = shared_out(clusters, [len(group) for group in groups])
    return np.concatenate([k_means(group, share, random) for group, share in zip(groups, shares, strict=True)])


def shared_out(total: int, sizes: list[int]) -> list[int]:
    """Whole shares of a total as near as can be to the sizes: of each at least one, and at most as many as it has."""
    bounds = np.round(np.cumsum([0, *sizes]) * (total / sum(sizes))).astype(int)
    shares = np.maximum(1, np.diff(bounds))
    while shares.sum() > total:
        shares[shares.argmax()] -= 1
    return [int(share) for share in shares]


def k_means(keys: Keys, clusters: int, random: np.random.Generator) -> Keys:
    points = torch.from_numpy(keys)
    centroids = points[torch.from_numpy(random.choice(len(keys), clusters, replace=False))].clone()
    for _ in range(ROUNDS):
        owners = torch.from_numpy(assign(keys, centroids.numpy()))
        sizes = torch.bincount(owners, minlength=clusters)
        sums = torch.zeros_like(centroids).index_add_(0, owners, points)
        centroids = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centroids)
        centroids = split_largest(centroids, sizes, random)
    return centroids.numpy()


def split_largest(centroids: torch.Tensor, sizes: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    """A cluster that nobody belongs to is put beside one of the largest, which it then shares."""
    empty = torch.nonzero(sizes == 0)[:, 0]
    if len(empty):
        largest = sizes.topk(len(empty)).indices
        shift = torch.from_numpy(random.normal(size=(len(empty), centroids.shape[1])).astype(np.float32))
        spread = centroids.std(dim=0, correction=0)
        centroids[empty] = centroids[largest] + 1e-3 * spread * shift
    return centroids


def assign(keys: Keys, centroids: Keys) -> NDArray[np.int64]:
    """The nearest centroid of each key, [n]."""
    return Centroids(centroids).owners(keys)
