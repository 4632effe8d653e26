"""Exact nearest neighbours: every key is looked at, by numpy's matrix product, which is several times FAISS's speed."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

BLOCK = 65_536  # keys compared at a time
CHUNK = 64  # neighbouring keys of which first only the best is looked at

Keys = NDArray[np.float32]


class ExactSearch:
    """Search over keys [entries, dimension] that may be memory-mapped; only their norms are kept."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.norms = [norms_of(block) for block in self.blocks()]

    def blocks(self) -> Iterator[Keys]:
        for first in range(0, len(self.keys), BLOCK):
            yield self.keys[first : first + BLOCK]

    def search(self, queries: Keys, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and entries of the k nearest, both [queries, k], nearest first."""
        entries = nearest(queries, zip(self.blocks(), self.norms, strict=True), k)[1]
        offsets = self.keys[entries] - queries[:, None, :]
        exact = np.einsum("nkd,nkd->nk", offsets, offsets)  # free of the rounding that comes with norms
        order = np.argsort(exact, axis=1, kind="stable")
        return np.take_along_axis(exact, order, 1), np.take_along_axis(entries, order, 1)


def norms_of(keys: Keys) -> NDArray[np.float32]:
    norms: NDArray[np.float32] = np.einsum("nd,nd->n", keys, keys)
    return norms


def nearest(
    queries: Keys, blocks: Iterable[tuple[Keys, NDArray[np.float32]]], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k nearest over all blocks of (keys [block, dimension], squared norms [block])."""
    best = torch.empty(len(queries), 0)
    entries = torch.empty(len(queries), 0, dtype=torch.long)
    doubled = -2.0 * queries
    first = 0
    for keys, norms in blocks:
        scores = doubled @ keys.T
        scores += norms  # the squared distance less the query's own norm
        near, at = smallest(torch.from_numpy(scores), k)
        best, order = torch.cat([best, near], dim=1).topk(min(k, best.shape[1] + near.shape[1]), largest=False)
        entries = torch.cat([entries, at + first], dim=1).gather(1, order)
        first += len(keys)
    distances = np.maximum(best.numpy() + norms_of(queries)[:, None], 0.0)
    return distances, entries.numpy()


def smallest(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k smallest of each row and where they are.

    They lie in the k chunks with the smallest minima, so that only those chunks need to be sorted.
    """
    rows, width = scores.shape
    if width % CHUNK or width <= 4 * k * CHUNK:
        return scores.topk(min(k, width), largest=False)
    chunks = scores.view(rows, -1, CHUNK)
    chosen = chunks.amin(dim=-1).topk(k, largest=False).indices  # [rows, k]
    within = chunks.gather(1, chosen[:, :, None].expand(-1, -1, CHUNK)).reshape(rows, -1)
    values, at = within.topk(k, largest=False)
    return values, chosen.gather(1, at // CHUNK) * CHUNK + at % CHUNK
