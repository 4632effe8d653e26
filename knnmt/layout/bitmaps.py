"""Sets of segments as compressed bitmaps."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.files import reading
from knnmt.layout.part_files import read_array


def read_bitmap(file: Path) -> BitMap:
    with reading(file):
        if file.suffix == ".npy":  # in earlier formats
            return BitMap(read_array(file).astype(np.uint32))
        return BitMap.deserialize(file.read_bytes())


def as_array(numbers: BitMap) -> NDArray[np.int64]:
    """Ascending."""
    return np.frombuffer(numbers.to_array(), np.uint32).astype(np.int64)
