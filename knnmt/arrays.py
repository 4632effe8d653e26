"""Gathering along the second axis of arrays, and offsets of concatenated arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def picked(array: Array, order: NDArray[np.int64]) -> Array:
    """`array[i, order[i, j]]` for every i and j: as `take_along_axis`, which takes five times as long for few."""
    found: Array = array[np.arange(len(order))[:, None], order]
    return found


def starts(lengths: list[int]) -> NDArray[np.int64]:
    """The offset of each piece when all are concatenated."""
    return np.cumsum([0, *lengths[:-1]], dtype=np.int64)
