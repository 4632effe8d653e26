"""The lists of an IVF index in a memory-mapped file, for indexes larger than memory.

The file holds the length of each list, then the codes and entries of one list after another. It is written in one pass
over the keys: each block is assigned, encoded, sorted by list and written to a temporary file. Then the lists are
gathered from the blocks, as many at a time as memory allows. The trained quantisers are in the index's own file.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from knnmt.files import flush_to_disk, lists_name, reading
from knnmt.search.library import faiss

MEMORY = 1 << 30  # bytes that gathering lists may take
RESIDENT = 3 << 28  # bytes of lists that a process keeps mapped before it lets go of them
DONTNEED = 4
ID = np.dtype(np.int64)
BOUND = np.dtype(np.uint32)

Keys = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Block:
    """Keys on their way into lists, as a temporary file holds them.

    Where each list begins among them, [lists + 1], then their codes, then their entries, both in order of lists.
    """

    begin: int  # in the file
    entries: int


class ListWriter:
    """Takes keys block by block, then writes the lists."""

    def __init__(self, index: Any, file: Path, *, memory: int = MEMORY) -> None:
        self.index, self.memory = index, memory
        self.lists, self.code = int(index.nlist), int(index.code_size)
        self.final = file.with_name(lists_name(file.name))
        self.temporary = self.final.with_name(f"{self.final.name}.blocks")
        self.opened: BinaryIO = self.temporary.open("w+b")
        self.blocks: list[Block] = []
        self.sizes = np.zeros(self.lists, np.int64)
        self.entries = 0

    def add(self, keys: Keys, owners: NDArray[np.int64]) -> None:
        """Keys with the cluster of each."""
        codes = np.empty((len(keys), self.code), np.uint8)
        engine: Any = faiss
        pointers = [engine.swig_ptr(array) for array in (np.ascontiguousarray(keys), owners, codes)]
        self.index.encode_vectors(len(keys), *pointers, False)
        order = np.argsort(owners, kind="stable")
        sizes = np.bincount(owners, minlength=self.lists)
        self.blocks.append(Block(self.opened.tell(), len(keys)))
        self.opened.write(np.concatenate([[0], np.cumsum(sizes)]).astype(BOUND).data)
        self.opened.write(codes[order].data)
        self.opened.write((self.entries + order).astype(ID).data)
        self.sizes += sizes
        self.entries += len(keys)

    def finish(self) -> Path:
        """Write the lists and delete the blocks."""
        self.opened.flush()
        with self.final.open("wb") as file:
            file.write(self.sizes.astype(np.uint64).data)
            for first, end in self.groups():
                file.write(self.gathered(first, end).data)
        self.opened.close()
        self.temporary.unlink()
        flush_to_disk(self.final)
        return self.final

    def groups(self) -> Iterator[tuple[int, int]]:
        """Runs of lists that fit into memory, each of at least one."""
        first, size = 0, 0
        for number, length in enumerate(self.sizes * (self.code + ID.itemsize)):
            if size and size + length > self.memory:
                yield first, number
                first, size = number, 0
            size += int(length)
        yield first, self.lists

    def gathered(self, first: int, end: int) -> NDArray[np.uint8]:
        """Lists from `first` up to `end`, as the file stores them."""
        sizes = self.sizes[first:end]
        begins = np.concatenate([[0], np.cumsum(sizes * (self.code + ID.itemsize))])
        whole, filled = np.empty(begins[-1], np.uint8), np.zeros(end - first, np.int64)
        for block in self.blocks:
            bounds, codes, ids = self.inside(block, first, end)
            lengths = np.diff(bounds)
            rows = np.repeat(np.arange(end - first), lengths)
            places = np.arange(len(codes)) - np.repeat(bounds[:-1] - bounds[0], lengths) + filled[rows]
            at = begins[rows] + places * self.code
            whole[at[:, None] + np.arange(self.code)] = codes
            at = begins[rows] + sizes[rows] * self.code + places * ID.itemsize
            whole[at[:, None] + np.arange(ID.itemsize)] = ids
            filled += lengths
        return whole

    def inside(self, block: Block, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Of a block, lists from `first` up to `end`: where each begins, [end - first + 1], their codes and entries."""
        read = self.read(block.begin + first * BOUND.itemsize, (end - first + 1) * BOUND.itemsize)
        bounds = read.view(BOUND).astype(np.int64)
        low, count = int(bounds[0]), int(bounds[-1] - bounds[0])
        begin = block.begin + (self.lists + 1) * BOUND.itemsize
        codes = self.read(begin + low * self.code, count * self.code)
        ids = self.read(begin + block.entries * self.code + low * ID.itemsize, count * ID.itemsize)
        return bounds, codes.reshape(-1, self.code), ids.reshape(-1, ID.itemsize)

    def read(self, begin: int, length: int) -> NDArray[np.uint8]:
        return np.frombuffer(os.pread(self.opened.fileno(), length, begin), np.uint8)


def attach_lists(index: Any, ivf: Any, file: Path) -> None:
    """Give an index without entries the memory-mapped lists of a file."""
    with reading(file):
        with file.open("rb") as opened:
            sizes = np.frombuffer(opened.read(8 * ivf.nlist), np.uint64)
        if len(sizes) != ivf.nlist:
            raise ValueError("it has fewer lists than the index has clusters")
        lengths = sizes.astype(np.int64) * (ivf.code_size + ID.itemsize)
        begins = 8 * ivf.nlist + np.concatenate([[0], np.cumsum(lengths)])
        if begins[-1] != file.stat().st_size or (sizes > 1 << 40).any():
            raise ValueError("its lists are not as long as it says")
        lists: Any = faiss.OnDiskInvertedLists(ivf.nlist, ivf.code_size, str(file))
        table = np.stack([sizes, sizes, begins[:-1].astype(np.uint64)], axis=1)
        engine: Any = faiss
        engine.memcpy(lists.lists.data(), engine.swig_ptr(np.ascontiguousarray(table)), table.nbytes)
        lists.totsize, lists.read_only = int(begins[-1]), True
        lists.do_mmap()
    lists.this.disown()
    ivf.replace_invlists(lists, True)
    ivf.ntotal = index.ntotal = int(sizes.sum())


def list_bytes(ivf: Any) -> NDArray[np.int64]:
    """The size of each list in bytes, [lists]."""
    sizes = np.array([ivf.invlists.list_size(number) for number in range(ivf.nlist)], np.int64)
    return sizes * (int(ivf.code_size) + ID.itemsize)


def letting_go(ivf: Any) -> Callable[[int], None] | None:
    """A counter of bytes read from lists; from time to time, it releases the mapped pages.

    What the system has in memory of the file stays there; only this process's own share of it is bounded.
    """
    lists: Any = faiss.downcast_InvertedLists(ivf.invlists)
    if not isinstance(lists, faiss.OnDiskInvertedLists) or not hasattr(ctypes, "CDLL") or os.name != "posix":
        return None
    address, length = int(lists.ptr.this) if hasattr(lists.ptr, "this") else int(lists.ptr), int(lists.totsize)
    system, read = ctypes.CDLL(None), 0

    def note(count: int) -> None:
        nonlocal read
        read += count
        if read >= RESIDENT:
            system.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), DONTNEED)
            read = 0

    return note
