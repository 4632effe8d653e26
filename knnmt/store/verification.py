"""Is a datastore what its manifest says? Checksums, counts, and an index that agrees with the parts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet

from knnmt.arrays import starts
from knnmt.errors import StoreError
from knnmt.files import sha256_of
from knnmt.search.index import open_index
from knnmt.store.datastore import COLUMNS, HASHES, Store, map_column
from knnmt.store.manifest import IndexRecord, PartRecord

SAMPLE = 64
NEAREST = 8


def problems_of(store: Store) -> Iterator[str]:
    """What is wrong, one line each; nothing where all is well."""
    for file, record in store.files().items():
        if sha256_of(file) != record.sha256:
            yield f"{file}: content differs from what was written"
    for part in store.manifest.parts:
        yield from part_problems(store, part)
    if sum(part.entries for part in store.manifest.parts) != store.entries:
        yield f"{store.path}: parts do not add up to {store.entries:,} entries"
    yield from removed_problems(store)
    yield from index_problems(store)


def part_problems(store: Store, part: PartRecord) -> Iterator[str]:
    """Every column must have a row for each entry, and what is kept by segment a row for each segment."""
    folder = store.part_folder(part)
    for name in (*COLUMNS, HASHES):
        if f"{name}.npy" not in part.files:
            continue
        try:
            rows, expected = len(map_column(folder, name)), part.segments if name == HASHES else part.entries
        except StoreError as error:
            yield str(error)
        else:
            if rows != expected:
                yield f"{folder / name}.npy: {rows:,} rows instead of {expected:,}"
    yield from table_problems(folder / "segments.parquet", part)


def table_problems(file: Path, part: PartRecord) -> Iterator[str]:
    try:
        segments = parquet.read_metadata(file).num_rows
    except (OSError, ValueError) as error:
        yield f"{file}: damaged ({error})"
    else:
        if segments != part.segments:
            yield f"{file}: {segments:,} rows instead of {part.segments:,}"


def removed_problems(store: Store) -> Iterator[str]:
    """What is removed must be there, and be counted."""
    removed, record = store.removed, store.manifest.removed
    if record is None:
        return
    file = store.path / record.name
    if len(removed) != record.segments or len(np.unique(removed)) != len(removed):
        yield f"{file}: {len(removed):,} segments instead of {record.segments:,}"
    elif len(removed) and not 0 <= removed.min() <= removed.max() < store.manifest.segments:
        yield f"{file}: names segments that the store does not have"
    elif len(store.entries_of(removed)) != record.entries:
        yield f"{file}: {len(store.entries_of(removed)):,} entries instead of {record.entries:,}"


def index_problems(store: Store) -> Iterator[str]:
    """The indexes together must know every entry, and find stored keys where they are."""
    indexes = store.manifest.indexes
    if sum(index.entries for index in indexes) != store.entries:
        yield f"{store.path}: indexes do not add up to {store.entries:,} entries"
        return
    for index, first in zip(indexes, starts([index.entries for index in indexes]), strict=True):
        yield from problems_of_index(store, index, int(first))


def problems_of_index(store: Store, record: IndexRecord, first: int) -> Iterator[str]:
    file = store.index_file(record)
    try:
        index = open_index(file, record.nprobe)
    except StoreError as error:
        yield str(error)
        return
    if index.ntotal != record.entries:
        yield f"{file}: {index.ntotal:,} entries instead of {record.entries:,}"
    elif store.has_keys:
        found = share_found(store, index, record.entries, first)
        if found < 0.5:
            yield f"{file}: finds {found:.0%} of stored keys; it belongs to other parts"


def share_found(store: Store, index: Any, entries: int, first: int) -> float:
    """How many of some stored keys a search finds."""
    sample = first + np.random.default_rng(0).choice(entries, min(SAMPLE, entries), replace=False)
    keys = store.gather("keys", sample).astype(np.float32)
    _, found = index.search(keys, min(NEAREST, entries))
    same = [nearly_equal(store, key, first + near[near >= 0]) for key, near in zip(keys, found, strict=True)]
    return float(np.mean(same))


def nearly_equal(store: Store, key: np.ndarray, entries: np.ndarray) -> bool:
    """Whether a search for a stored key found that key (or one equal to it)."""
    keys = store.gather("keys", entries).astype(np.float32)
    return bool(len(keys)) and bool((np.abs(keys - key).max(axis=1) < 1e-3).any())
