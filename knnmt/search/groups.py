"""Groups of centroids: with very many centroids, only those in the groups nearest to a query are compared.

A key is compared with the middles of groups, of which there are a 128th as many as centroids, and then with the codes
in the nearest groups, as many however many centroids there are.
"""

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.search.library import faiss

GROUPED_FROM = 16_384  # centroids: with fewer, scanning the codes of all of them takes no longer
MEMBERS = 128  # centroids of a group, on average
ROUNDS = 4  # of making groups: more change nothing
LEARNT_FROM = 32  # centroids a group: more find no better groups
SEARCHED_FOR_A_KEY = 12  # groups: its nearest cluster is wanted
SEARCHED_FOR_A_QUERY = 24  # groups at least: its nearest n clusters are wanted

Keys = NDArray[np.float32]


def in_groups_of_codes(codes: Any, centroids: Keys) -> Any:
    """A FAISS index of centroids by groups, with the trained codes of another index."""
    engine, (number, dimension) = cast(Any, faiss), centroids.shape
    middles = engine.IndexFlatL2(dimension)
    middles.add(middles_of(centroids, number // MEMBERS))
    index = engine.IndexIVFPQFastScan(middles, dimension, middles.ntotal, codes.pq.M, codes.pq.nbits)
    index.by_residual, index.pq, index.is_trained = False, codes.pq, True
    index.add(centroids)
    index.referenced_objects = [middles]  # it does not own it
    return index


def middles_of(centroids: Keys, number: int) -> Keys:
    """The centres of groups, [number, dimension].

    k-means that begins with every n-th centroid: they are well spread, because training leaves centroids in the order
    of its own groups.
    """
    centroids = np.ascontiguousarray(centroids[:: max(1, len(centroids) // (LEARNT_FROM * number))])
    points = torch.from_numpy(centroids)
    middles = points[len(points) // number // 2 :: len(points) // number][:number].clone()
    for _ in range(ROUNDS):
        owners = torch.from_numpy(faiss.knn(centroids, middles.numpy(), 1)[1][:, 0])
        sizes = torch.bincount(owners, minlength=number)[:, None]
        sums = torch.zeros_like(middles).index_add_(0, owners, points)
        middles = torch.where(sizes > 0, sums / sizes.clamp_min(1), middles)
    return middles.numpy()


def searching(groups: int, candidates: int) -> Any:
    """FAISS's parameters: how many groups are searched, and how many times the wanted number is compared exactly."""
    engine = cast(Any, faiss)
    return engine.IndexRefineSearchParameters(
        k_factor=candidates, base_index_params=engine.IVFSearchParameters(nprobe=groups)
    )


def searching_all(candidates: int) -> Any:
    """The same without groups."""
    return cast(Any, faiss).IndexRefineSearchParameters(k_factor=candidates)
