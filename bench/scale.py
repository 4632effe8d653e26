"""What a store costs as it grows: bytes, seconds to build and to open, milliseconds a step, recall; mapped from disk.

Keys are copies of some with noise, made when they are needed and never stored. `docs/scale.md` has the model that these
figures feed.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.searching import GrownKeys, keys_of, synthetic
from knnmt import Store
from knnmt.search.coarse import probing
from knnmt.search.exact import nearest, norms_of
from knnmt.search.factories import automatic_factory, automatic_nprobe, make_index
from knnmt.search.index import open_index, train, wider_of, write_index
from knnmt.search.internals import found_among, plain_clusters
from knnmt.search.mapped_lists import ListWriter

QUERIES = 160  # 32 sentences with 5 beams: a step
JUDGED = 64
K = 16
BLOCK = 65_536
MEMORY = 1 << 20  # so small that the codes are those that can be mapped

Keys = NDArray[np.float32]


def scale(sizes: tuple[int, ...], dimensions: tuple[int, ...], repeats: int, store: str | None) -> list[dict[str, Any]]:
    """A row for each dimension and size."""
    rows = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for dimension in dimensions:
            originals = keys_of(Store.open(store)) if store else synthetic(dimension)
            keys = GrownKeys(originals, Path(folder))
            rows += [row_of(keys, entries, repeats, Path(folder)) for entries in sizes]
    table = Table(title=f"{QUERIES} queries a step, recall of the nearest {K}", box=None)
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in row.values()))
    Console().print(table)
    return rows


def blocks_of(keys: GrownKeys, entries: int) -> Iterator[Keys]:
    for first in range(0, entries, BLOCK):
        yield keys.copies(np.arange(first, min(entries, first + BLOCK)))


def row_of(keys: GrownKeys, entries: int, repeats: int, folder: Path) -> dict[str, Any]:
    dimension, file = keys.originals.shape[1], folder / f"index-{entries}.faiss"
    queries = keys.copies(np.arange(len(keys.originals), len(keys.originals) + QUERIES) * 7919)
    began, before = time.perf_counter(), time.process_time()
    truth = build(keys, entries, dimension, file, queries[:JUDGED])
    built, used = time.perf_counter() - began, time.process_time() - before
    lists = file.with_suffix(".lists")
    began = time.perf_counter()
    index = open_index(file, automatic_nprobe(entries))
    opened = time.perf_counter() - began
    searcher: Any = probing(index) or index
    times = []
    for number in range(repeats + 1):
        if number == 0:
            forget(lists)
        began = time.perf_counter()
        _, found = searcher.search(queries, wider_of(index) * K)
        times.append(time.perf_counter() - began)
    return {
        "entries": entries, "dimension": dimension, "clusters": index.nlist, "nprobe": index.nprobe,
        "gigabytes": round((lists.stat().st_size + file.stat().st_size) / 1e9, 3),
        "build_seconds": round(built), "build_processor_seconds": round(used), "open_seconds": round(opened, 3),
        "cold_milliseconds": round(times[0] * 1e3, 1),
        "warm_milliseconds": round(statistics.median(times[1:]) * 1e3, 1),
        "recall": recall(truth, found[:JUDGED]),
    }  # fmt: skip


def build(keys: GrownKeys, entries: int, dimension: int, file: Path, judged: Keys) -> NDArray[np.int64]:
    """Write the index in one pass; returns the true nearest of some queries, [queries, K]."""
    factory = automatic_factory(entries, dimension, MEMORY)
    index = make_index(factory, dimension)
    sample = keys.copies(
        np.sort(np.random.default_rng(0).choice(entries, min(entries, 40 * index.nlist), replace=False))
    )
    train(index, [sample.astype(np.float16)], np.random.default_rng(0), factory)
    writer, among = ListWriter(index, file), found_among(plain_clusters(index))

    def passing() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for block in blocks_of(keys, entries):
            writer.add(block, among.owners(block))
            yield torch.from_numpy(block), norms_of(torch.from_numpy(block))

    _, true = nearest(torch.from_numpy(judged), passing(), K)
    writer.finish()
    write_index(index, file)
    return true.numpy()


def recall(true: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    """The share of the true nearest among those whose distances would be computed anew from keys."""
    hits = [len({*one} & {*other}) for one, other in zip(true.tolist(), found.tolist(), strict=True)]
    return round(sum(hits) / true.size, 4)


def forget(file: Path) -> None:
    """Take a file out of the system's memory."""
    if hasattr(os, "posix_fadvise"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
