"""Rows of a column that is spread over the files of all parts.

They are read from the files and not through a mapping: a touched place of one would bring a whole stretch of the file
into this process's memory.
"""

import os
from collections.abc import Sequence
from itertools import repeat
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array


class RowReader:
    """Reads rows of `columns`, each of which is mapped from the open file of the same place."""

    def __init__(self, columns: Sequence[Any], files: Sequence[BinaryIO]) -> None:
        self.dtype, self.shape = columns[0].dtype, columns[0].shape[1:]
        self.row_bytes = int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))
        self.descriptors = np.array([file.fileno() for file in files])
        self.begins = np.array([column.offset for column in columns])

    def read(self, parts: NDArray[np.int64], rows: NDArray[np.int64]) -> Array:
        """Row `rows[i]` of part `parts[i]`, for every i."""
        descriptors, places = self.descriptors[parts], self.begins[parts] + rows * self.row_bytes
        read = bytearray().join(map(os.pread, descriptors.tolist(), repeat(self.row_bytes), places.tolist()))
        found: Array = np.frombuffer(read, self.dtype).reshape(len(rows), *self.shape)
        return found
