"""Gathering along the second axis of arrays, and offsets of concatenated arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def picked(array: Array, order: NDArray[np.int64]) -> Array:
    """`array[i, order[i, j]]` for every i and j. For few columns `take_along_axis` takes five times as long."""
    found: Array = array[np.arange(len(order))[:, None], order]
    return found


def starts(lengths: list[int]) -> NDArray[np.int64]:
    """The offset of each piece in their concatenation."""
    return np.cumsum([0, *lengths[:-1]], dtype=np.int64)
