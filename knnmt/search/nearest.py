"""The nearest of some candidates. Of equal distances, the entry with the smaller number comes first.

Codes of a few bits put many entries at the same distance, and so do sentences that occur twice. FAISS returns whichever
it met first. With this rule the result does not depend on who searched or in how many pieces: a store in shards gives
what it gives in one piece.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array, picked

SPARE = 16  # entries looked up beyond those wanted, to see where equal distances end

Rows = slice | NDArray[np.int64]
Distances = NDArray[np.float32]
Entries = NDArray[np.int64]
Found = tuple[Distances, Entries]
Find = Callable[[Rows, int], Found]  # for some of the queries, so many nearest, nearest first


def nearest_of(find: Find, k: int, most: int, slack: Distances | float = 0.0) -> Found:
    """The k nearest of each query, by distance and then number, in the order of their numbers; −1 comes first.

    `find` gives some k nearest, whichever of several that are equally far, or farther by less than the query's
    `slack`; there are `most` entries.
    """
    wider = min(k + SPARE, most)
    distances, entries = find(slice(None), wider)
    chosen = first_of_equals(distances, entries, k)
    slack = np.broadcast_to(np.asarray(slack, np.float32), len(distances))
    unclear = np.flatnonzero(ends_among_equals(distances, entries, k, slack) & (wider < most))
    while len(unclear):
        wider = min(4 * wider, most)
        distances, entries = find(unclear, wider)
        chosen[0][unclear], chosen[1][unclear] = first_of_equals(distances, entries, k)
        unclear = unclear[ends_among_equals(distances, entries, k, slack[unclear]) & (wider < most)]
    return chosen


def ends_among_equals(distances: Distances, entries: Entries, k: int, slack: Distances) -> NDArray[np.bool_]:
    """Rows in which the last one found is as far as the last one wanted: more of them may not have been found."""
    return np.asarray((distances[:, k - 1] + slack >= distances[:, -1]) & (entries[:, -1] >= 0))


def first_of_equals(distances: Distances, entries: Entries, k: int) -> Found:
    """The k nearest of each row, in the order of their numbers."""
    if distances.shape[1] > k:
        tied = np.flatnonzero(distances[:, k - 1] == distances[:, k])
        if len(tied):
            order = np.lexsort((entries[tied], distances[tied]))
            distances[tied], entries[tied] = picked(distances[tied], order), picked(entries[tied], order)
    distances, entries = distances[:, :k], entries[:, :k]
    order = np.argsort(entries, axis=1, kind="stable")
    return picked(distances, order), picked(entries, order)


def by_distance(distances: Distances, *columns: Array, k: int) -> tuple[Array, ...]:
    """The k nearest of rows that are in the order of their numbers, nearest first, and columns that belong to them."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return tuple(picked(column, order) for column in (distances, *columns))
