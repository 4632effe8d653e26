"""k-means in torch, whose matrix product is several times as fast here as the one inside FAISS."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.exact import Keys, distances_less_norms, norms_of, smallest
from knnmt.packed import PackedWeights, can_be_packed

ROUNDS = 10  # FAISS's own 25 gain next to nothing in recall
AT_ONCE = 1 << 22  # distances of keys to centroids: they stay in the processor's cache
MANY = 4096  # clusters, from which on they are found in two steps
DIRECTIONS = 64  # in which centroids are compared first
CANDIDATES = 2  # times as many as wanted are compared in all directions
SAMPLE = 4096  # centroids show well enough in which directions they differ


Distances = Callable[[torch.Tensor], torch.Tensor]  # of queries [queries, dimension]: [queries, points]


class Centroids:
    """Finds the nearest of many centroids: first roughly, in the few directions in which they differ most."""

    def __init__(self, centroids: Keys) -> None:
        self.all = torch.from_numpy(centroids)
        many = len(centroids) >= MANY and centroids.shape[1] > DIRECTIONS
        self.directions = leading_directions(self.all, DIRECTIONS) if many else None
        self.norms = norms_of(self.all) if many else torch.empty(0)
        rough = self.all @ self.directions if self.directions is not None else self.all
        self.roughly = distances_by_packing(rough) if can_be_packed(rough) else distances_to(rough)

    def nearest(self, queries: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Squared distances and numbers of the n nearest of each query, both [queries, n]."""
        if self.directions is None:
            near, numbers = smallest(self.roughly(queries), n)
        else:
            candidates = smallest(self.roughly(queries @ self.directions), CANDIDATES * n)[1]
            chosen = self.all.index_select(0, candidates.view(-1)).view(*candidates.shape, -1)
            products = torch.bmm(chosen, queries[:, :, None])[:, :, 0]
            near, order = (self.norms[candidates] - 2 * products).topk(n, largest=False)
            numbers = candidates.gather(1, order)
        return (near + norms_of(queries)[:, None]).clamp_min(0.0), numbers


def distances_by_packing(points: torch.Tensor) -> Distances:
    """For any number of queries, their squared distances to points [n, dimension], less each query's own norm."""
    return PackedWeights(-2 * points, norms_of(points)).product


def distances_to(points: torch.Tensor) -> Distances:
    """The same, where weights cannot be packed."""
    norms = norms_of(points)
    return lambda queries: distances_less_norms(queries, points, norms)


def leading_directions(points: torch.Tensor, directions: int) -> torch.Tensor:
    """The principal directions [dimension, directions] of points [n, dimension]."""
    sample = points[:: max(1, len(points) // SAMPLE)]
    ascending: torch.Tensor = torch.linalg.eigh(torch.cov(sample.T)).eigenvectors
    return ascending[:, -directions:].contiguous()


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
    among = Centroids(centroids)
    blocks = torch.from_numpy(keys).split(max(1, AT_ONCE // len(centroids)))  # type: ignore[no-untyped-call]
    found = [among.nearest(block, 1)[1][:, 0] for block in blocks]
    nearest: NDArray[np.int64] = torch.cat(found).numpy()
    return nearest
