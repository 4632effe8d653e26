"""Short hashes of sentences. Equal hashes are only a hint that a sentence is known; the texts must be compared."""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array


def hash_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def hashes_of(source: str, target: str) -> tuple[int, int]:
    """The hashes of the source and of the whole pair."""
    return hash_of(source), hash_of(f"{source}\n{target}")


def order_of(hashes: Array) -> NDArray[np.uint32]:
    """The rows of a column of hashes [segments, 2] in the order of their sources' hashes."""
    return np.argsort(np.asarray(hashes)[:, 0], kind="stable").astype(np.uint32)


def rows_with(hashes: Array, order: Array | None, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The rows whose source has one of some hashes, ascending.

    With the rows' order it takes a few looks at the column for each hash, whatever the column's length.
    """
    if order is None:
        return np.flatnonzero(np.isin(hashes[:, 0], wanted))
    found: list[int] = []
    for one in np.unique(wanted):
        place = first_at_least(hashes, order, int(one))
        while place < len(order) and hashes[order[place], 0] == one:
            found.append(int(order[place]))
            place += 1
    return np.array(sorted(found), np.int64)


def first_at_least(hashes: Array, order: Array, wanted: int) -> int:
    """Binary search through an order: `np.searchsorted` would first sort a copy of the whole column."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if int(hashes[order[middle], 0]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low
