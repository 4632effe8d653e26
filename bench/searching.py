"""Searching by the size of the datastore: the time of one step's search, and how much of the nearest it finds.

Keys are clustered as real ones are: synthetic, or those of a store. A larger datastore is made of them by copies with
noise, each in the cluster of its original, so that ten million take minutes and not hours.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.cost import cost_of_retrieval
from bench.translating import Plan
from knnmt.layout.part_files import rows_at
from knnmt.retrieval.searchers import IndexedEntries, Opened
from knnmt.search.distances import Keys
from knnmt.search.exact import nearest, norms_of
from knnmt.search.factories import UNCODED_ENTRIES, automatic_factory, automatic_nprobe, make_index
from knnmt.search.index import train, unpacked
from knnmt.search.internals import found_among, plain_clusters
from knnmt.search.library import faiss
from knnmt.store.datastore import Store

SIZES = (100_000, 1_000_000, 10_000_000)
DIMENSIONS = (256, 512, 1024)
ORIGINALS = 200_000  # synthetic keys, the others are copies
CENTRES = 4_000
NOISE = 0.3  # of a copy, in standard deviations of the keys
BLOCK = 65_536
QUERIES = 160  # a step of 32 sentences with 5 beams
JUDGED = 64  # queries whose true neighbours are looked up
K = 16


class GrownKeys:
    """A file of keys that grows by noisy copies, and what the search for neighbours asks of a store."""

    has_keys = True

    def __init__(self, originals: Keys, folder: Path) -> None:
        self.originals, self.file = originals, folder / "keys.npy"
        self.spread = originals.std(axis=0)

    def grow(self, entries: int) -> None:
        shape = (entries, self.originals.shape[1])
        self.column = np.lib.format.open_memmap(self.file, mode="w+", dtype=np.float16, shape=shape)
        for first in range(0, entries, BLOCK):
            rows = np.arange(first, min(entries, first + BLOCK))
            self.column[rows[0] : rows[-1] + 1] = self.copies(rows)
        self.column.flush()
        self.column, self.opened = np.load(self.file, mmap_mode="r"), self.file.open("rb")

    def copies(self, rows: NDArray[np.int64]) -> Keys:
        """The first of each original is the original itself."""
        noise = np.random.default_rng(int(rows[0])).normal(size=(len(rows), self.originals.shape[1])).astype(np.float32)
        noise *= (rows >= len(self.originals))[:, None] * NOISE * self.spread
        return np.asarray(self.originals[rows % len(self.originals)] + noise, np.float32)

    def rows(self, name: str, entries: NDArray[np.int64]) -> NDArray[np.float16]:
        """As a store does it."""
        assert name == "keys"
        descriptors, begins = (np.full_like(entries, at) for at in (self.opened.fileno(), self.column.offset))
        return rows_at(descriptors, begins, entries, np.dtype(np.float16), self.column.shape[1:])

    def index_file(self) -> Path:
        return self.file.with_name("index.faiss")

    def blocks(self) -> Any:
        for first in range(0, len(self.column), BLOCK):
            yield np.asarray(self.column[first : first + BLOCK], np.float32)


def synthetic(dimension: int) -> Keys:
    random = np.random.default_rng(0)
    centres = random.normal(size=(CENTRES, dimension)).astype(np.float32)
    return centres[random.integers(0, CENTRES, ORIGINALS)] + random.normal(size=(ORIGINALS, dimension)).astype(
        np.float32
    )


def keys_of(store: Store) -> Keys:
    return np.concatenate([np.asarray(part, np.float32) for part in store.columns("keys")])


def searching(
    sizes: tuple[int, ...], dimensions: tuple[int, ...], repeats: int, store: str | None, plan: Plan
) -> list[dict[str, Any]]:
    """A row for each size and dimension; with a store's keys, also what retrieval costs its model."""
    opened = Store.open(Path(store)) if store else None
    cost = cost_of_retrieval(opened, plan, K) if opened else None
    wanted = (opened.manifest.model.dimension,) if opened else dimensions
    rows = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for dimension in wanted:
            keys = GrownKeys(keys_of(opened) if opened else synthetic(dimension), Path(folder))
            for size in sizes:
                rows.append(measured(keys, size, repeats, cost))
                print_rows(rows[-1:])
    print_rows(rows)
    return rows


def measured(
    keys: GrownKeys, entries: int, repeats: int, cost: Callable[[IndexedEntries], dict[str, Any]] | None = None
) -> dict[str, Any]:
    keys.grow(entries)
    dimension = keys.originals.shape[1]
    factory = automatic_factory(max(entries, UNCODED_ENTRIES + 1), dimension)
    began = time.perf_counter()
    index = built(keys, factory)
    built_in = time.perf_counter() - began
    searcher = searcher_of(index, keys, entries)
    queries = keys.copies(np.arange(len(keys.originals), len(keys.originals) + QUERIES) * 7919)
    times = [timed(searcher, queries) for _ in range(repeats + 1)][1:]
    return {
        "entries": entries, "dimension": dimension, "index": factory, "nprobe": automatic_nprobe(entries),
        "milliseconds": round(statistics.median(times) * 1e3, 2), "lowest": round(min(times) * 1e3, 2),
        "highest": round(max(times) * 1e3, 2), "recall": round(recall(searcher, keys, queries[:JUDGED]), 4),
        "index_seconds": round(built_in, 1), **(cost(searcher) if cost else {}),
    }  # fmt: skip


def built(keys: GrownKeys, factory: str) -> Any:
    """Clusters and codes are trained on the originals; a copy is put where its original is."""
    index = make_index(factory, keys.originals.shape[1])
    random = np.random.default_rng(0)
    train(index, [keys.originals.astype(np.float16)], random, factory)
    filling, engine = unpacked(index), faiss
    owners = found_among(plain_clusters(index)).owners(keys.originals)
    first = 0
    for block in keys.blocks():
        here = np.ascontiguousarray(owners[(first + np.arange(len(block))) % len(owners)])
        filling.add_core(len(block), engine.swig_ptr(block), None, engine.swig_ptr(here))
        first += len(block)
    return faiss.IndexIVFPQFastScan(filling)


def searcher_of(index: Any, keys: GrownKeys, entries: int) -> IndexedEntries:
    """What searches a store, on these keys."""
    file = keys.index_file()
    faiss.write_index(index, str(file))
    return GrownEntries(keys, entries, Opened(file, automatic_nprobe(entries)))


class GrownEntries(IndexedEntries):
    def __init__(self, keys: GrownKeys, entries: int, opened: Opened) -> None:
        self.store, self.first, self.entries = cast(Store, keys), 0, entries
        self.allowed, self.has_keys = None, True
        self.use(opened)


def timed(searcher: IndexedEntries, queries: Keys) -> float:
    began = time.perf_counter()
    searcher.search(queries, K)
    return time.perf_counter() - began


def recall(searcher: IndexedEntries, keys: GrownKeys, queries: Keys) -> float:
    """The share of the true k nearest that is found."""
    tensors = (torch.from_numpy(block) for block in keys.blocks())
    _, true = nearest(torch.from_numpy(queries), ((block, norms_of(block)) for block in tensors), K)
    _, found = searcher.search(queries, K)
    hits = [len({*row} & {*other}) for row, other in zip(true.tolist(), found.tolist(), strict=True)]
    return sum(hits) / true.numel()


def print_rows(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"searching for {QUERIES} queries, k = {K}", box=None, padding=(0, 1, 0, 0))
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="left" if column == "index" else "right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else value for value in row.values()))
    Console().print(table)
