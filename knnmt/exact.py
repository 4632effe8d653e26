"""Exact nearest neighbours: every key is looked at, by torch's matrix product, which is much faster than FAISS's."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

BLOCK = 65_536  # keys compared at a time
CHUNK = 64  # neighbouring keys of which first only the best is looked at

Keys = NDArray[np.float32]


class ExactSearch:
    """Search over keys [entries, dimension] that may be memory-mapped; only their norms are kept."""

    def __init__(self, keys: Keys) -> None:
        self.keys = torch.from_numpy(keys)
        self.norms = torch.cat([block.square().sum(dim=1) for block in torch.split(self.keys, BLOCK)])

    @torch.inference_mode()
    def search(self, queries: Keys, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and entries of the k nearest, both [queries, k], nearest first."""
        asked = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
        blocks = zip(torch.split(self.keys, BLOCK), torch.split(self.norms, BLOCK), strict=True)
        entries = torch.from_numpy(nearest(asked, blocks, k)[1])
        exact = (self.keys[entries] - asked[:, None, :]).square().sum(dim=-1)  # free of the norms' rounding
        distances, order = exact.sort(dim=-1, stable=True)
        return distances.numpy(), entries.gather(1, order).numpy()


def nearest(
    queries: torch.Tensor, blocks: Iterable[tuple[torch.Tensor, torch.Tensor]], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k nearest over all blocks of (keys [block, dimension], squared norms [block])."""
    best = torch.empty(len(queries), 0)
    entries = torch.empty(len(queries), 0, dtype=torch.long)
    first = 0
    for keys, norms in blocks:
        scores = torch.addmm(norms, queries, keys.T, alpha=-2.0)  # the distance less the query's own norm
        near, at = smallest(scores, k)
        best, order = torch.cat([best, near], dim=1).topk(min(k, best.shape[1] + near.shape[1]), largest=False)
        entries = torch.cat([entries, at + first], dim=1).gather(1, order)
        first += len(keys)
    distances = (best + queries.square().sum(dim=1, keepdim=True)).clamp_min(0.0)
    return distances.numpy(), entries.numpy()


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
