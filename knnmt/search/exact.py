"""Exact nearest neighbours by torch's matrix product, several times as fast as FAISS.

Everything here uses torch, as the model does: numpy has its own threads, and two pools on the same cores slow each
other down.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.search.nearest import by_distance, nearest_of

BLOCK = 16_384  # keys compared at a time
CHUNK = 32  # neighbouring keys of which first only the best is looked at
MANY = 64  # queries, from which on the product is faster with the keys in front

ROUNDING = 1e-5  # of squared norms: more than what the matrix product is off by

Keys = NDArray[np.float32]


class ExactSearch:
    """Search over keys [entries, dimension] that may be memory-mapped; only their norms are kept.

    Norms are taken from the keys' own centre: far from the origin, the difference of two large norms would be rounding
    and nothing else. Where `allowed` [entries] is given, the other keys are infinitely far away.
    """

    def __init__(self, keys: Keys, allowed: NDArray[np.bool_] | None = None) -> None:
        self.keys = torch.from_numpy(keys)
        self.centre = centre_of(self.blocks())
        self.norms = [norms_of(block - self.centre) for block in self.blocks()]
        if allowed is not None:
            self.norms = self.among(allowed).norms

    def among(self, allowed: NDArray[np.bool_]) -> "ExactSearch":
        """A search over the same keys, of which only some may be found, [entries]; the keys are shared."""
        some = copy(self)
        vars(some).pop("largest_norm", None)
        some.norms = [
            norms.masked_fill(~torch.from_numpy(allowed[number * BLOCK :][:BLOCK]), torch.inf)
            for number, norms in enumerate(self.norms)
        ]
        return some

    def blocks(self) -> Iterator[torch.Tensor]:
        for first in range(0, len(self.keys), BLOCK):
            yield self.keys[first : first + BLOCK]

    def search(self, queries: Keys, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and entries of the k nearest, both [queries, k], nearest first; −1: none left.

        Of entries that are equally far, those with the smaller numbers.
        """
        asked = torch.from_numpy(np.ascontiguousarray(queries))
        slack = (ROUNDING * (norms_of(asked - self.centre) + self.largest_norm)).numpy()
        found = nearest_of(lambda rows, most: self.some_nearest(asked[rows], most), k, len(self.keys), slack)
        distances, entries = by_distance(*found, k=k)
        return distances, entries

    @cached_property
    def largest_norm(self) -> float:
        """The largest norm of the keys that may be found, approximately."""
        finite = [norms[~norms.isinf()] for norms in self.norms]
        return max((float(norms.max()) for norms in finite if len(norms)), default=0.0)

    def some_nearest(self, asked: torch.Tensor, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The same, but any of several entries at (nearly) equal distances may be left out."""
        rough, entries = nearest(asked - self.centre, zip(self.blocks(), self.norms, strict=True), k)
        offsets = self.keys[entries] - asked[:, None, :]
        # Computed anew, these are free of the rounding that comes with norms.
        exact = offsets.square_().sum(dim=-1).masked_fill(rough.isinf(), torch.inf)
        distances, order = exact.sort(dim=1, stable=True)
        entries = entries.masked_fill(rough.isinf(), -1).gather(1, order)
        return distances.numpy(), entries.numpy()


def centre_of(blocks: Iterable[torch.Tensor]) -> torch.Tensor:
    """The mean of all keys, [dimension]; zeros where there are none."""
    total, keys = torch.zeros(()), 0
    for block in blocks:
        total = total + block.sum(dim=0, dtype=torch.float64)
        keys += len(block)
    return (total / max(1, keys)).float()


def norms_of(keys: torch.Tensor) -> torch.Tensor:
    return keys.square().sum(dim=1)


def nearest(
    queries: torch.Tensor, blocks: Iterable[tuple[torch.Tensor, torch.Tensor]], k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k nearest over all blocks of (keys [block, dimension], squared norms [block])."""
    best = torch.empty(len(queries), 0)
    entries = torch.empty(len(queries), 0, dtype=torch.long)
    first = 0
    for keys, norms in blocks:
        near, at = smallest(distances_less_norms(queries, keys, norms), k)
        best, order = torch.cat([best, near], dim=1).topk(min(k, best.shape[1] + near.shape[1]), largest=False)
        entries = torch.cat([entries, at + first], dim=1).gather(1, order)
        first += len(keys)
    return (best + norms_of(queries)[:, None]).clamp_min(0.0), entries


def distances_less_norms(queries: torch.Tensor, keys: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """Squared distances [queries, keys] less each query's own norm, which does not change its order."""
    if len(queries) < MANY:
        return torch.addmm(norms, queries, keys.T, alpha=-2)
    return torch.addmm(norms[:, None], keys, queries.T, alpha=-2).T


def smallest(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k smallest values of each row, and their columns.

    They lie in the k chunks with the smallest minima, so that only those chunks need to be sorted.
    """
    rows, width = scores.shape
    if width % CHUNK or width <= 4 * k * CHUNK:
        return scores.contiguous().topk(min(k, width), largest=False)
    chosen = least_of_chunks(scores).topk(k, largest=False, sorted=False).indices  # [rows, k]
    places = (chosen[:, :, None] * CHUNK + torch.arange(CHUNK)).view(rows, -1)
    values, at = scores.gather(1, places).topk(k, largest=False)
    return values, places.gather(1, at)


def least_of_chunks(scores: torch.Tensor) -> torch.Tensor:
    """The minimum of each chunk, [rows, chunks], read in the order of the scores in memory."""
    if scores.is_contiguous():
        return scores.view(len(scores), -1, CHUNK).amin(dim=-1)
    return scores.T.reshape(-1, CHUNK, len(scores)).amin(dim=1).T.contiguous()
