"""Several small arrays in one file, in the layout of safetensors: a header in JSON, then the arrays.

A part of a few sentences is one such file, because the cost of a small change is mostly the number of files it writes.
"""

import json
from collections.abc import Mapping
from math import prod
from mmap import mmap
from typing import Any, BinaryIO

import numpy as np

from knnmt.arrays import Array

PACKED = "part.safetensors"
KINDS = {"F16": np.float16, "I32": np.int32, "U32": np.uint32, "U16": np.uint16, "U64": np.uint64, "U8": np.uint8}
NAMES = {np.dtype(kind): name for name, kind in KINDS.items()}
ALIGNED = 8


def write_packed(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write arrays with the widest types first, so that each begins at a multiple of its item size."""
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    header: dict[str, Any] = {}
    at = 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(np.ascontiguousarray(arrays[name]).tobytes())


def read_packed(content: bytes | mmap) -> dict[str, Array]:
    """The arrays of such a file; raises ValueError, KeyError or TypeError where it is damaged."""
    length = int.from_bytes(content[:8], "little")
    if length > len(content) - 8:
        raise ValueError("its header is longer than the file")
    return {
        name: one_array(content, 8 + length, record) for name, record in json.loads(content[8 : 8 + length]).items()
    }


def one_array(content: bytes | mmap, begin: int, record: dict[str, Any]) -> Array:
    kind, shape, (first, end) = np.dtype(KINDS[record["dtype"]]), record["shape"], record["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, first, end)):
        raise ValueError("its header does not fit its arrays")
    if end - first != prod(shape) * kind.itemsize or begin + end > len(content):
        raise ValueError("its header does not fit its arrays")
    return np.frombuffer(content, kind, prod(shape), begin + first).reshape(shape)
