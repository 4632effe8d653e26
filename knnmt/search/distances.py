"""Keys of several parts in single precision, and distances to them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.arrays import Array, starts
from knnmt.search.exact import nearest, norms_of
from knnmt.search.library import faiss

BLOCK = 65_536  # keys in single precision at a time
Keys = NDArray[np.float32]


def take(keys: list[Array], entries: NDArray[np.int64]) -> Keys:
    """The keys of some entries, given in ascending order, in single precision."""
    firsts = starts([len(part) for part in keys])
    bounds = np.searchsorted(entries, [*firsts, np.iinfo(np.int64).max])
    rows = np.empty((len(entries), keys[0].shape[1]), np.float32)
    for part, first, low, high in zip(keys, firsts, bounds[:-1], bounds[1:], strict=True):
        rows[low:high] = part[entries[low:high] - first]
    return rows


def blocks(keys: list[Array]) -> Iterator[Keys]:
    """All keys in order, a bounded number at a time."""
    for part in keys:
        for first in range(0, len(part), BLOCK):
            yield in_single_precision(part[first : first + BLOCK])


def in_single_precision(keys: Array) -> Keys:
    """Convert to float32 with torch, which is many times as fast as numpy."""
    converted: Keys = torch.from_numpy(keys if keys.flags.writeable else np.array(keys)).float().numpy()
    return converted


def exact_distances(queries: Keys, keys: list[Array], k: int) -> Keys:
    """The k smallest squared distances, [queries, k] ascending, by comparing with every key."""
    tensors = (torch.from_numpy(block) for block in blocks(keys))
    found: Keys = nearest(torch.from_numpy(queries), ((block, norms_of(block)) for block in tensors), k)[0].numpy()
    return found


def distances_to(queries: Keys, keys: list[Array], found: NDArray[np.int64]) -> Keys:
    """Squared distances [queries, k] from each query to the entries found for it; infinite where none was."""
    distinct, places = np.unique(np.maximum(found, 0), return_inverse=True)
    return squared_distances(queries, take(keys, distinct), np.where(found < 0, -1, places.reshape(found.shape)))


def squared_distances(queries: Keys, keys: Keys, places: NDArray[np.int64]) -> Keys:
    """From each query to the keys at its places [queries, k]; infinite at −1."""
    if (queries.shape[1], len(queries)) != (keys.shape[1], len(places)) or places.max(initial=-1) >= len(keys):
        raise ValueError("squared_distances: FAISS would read past the end of an array")
    engine: Any = faiss
    queries, places = np.ascontiguousarray(queries), np.ascontiguousarray(places)
    found = np.full(places.shape, np.inf, np.float32)
    pointers = [engine.swig_ptr(array) for array in (found, queries, keys, places)]
    engine.fvec_L2sqr_by_idx(*pointers, queries.shape[1], *places.shape)
    return found
