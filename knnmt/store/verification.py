"""Checks a datastore against its manifest: checksums, counts, and whether the index agrees with the parts."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from knnmt.arrays import starts
from knnmt.errors import StoreError
from knnmt.files import reading, sha256_of
from knnmt.layout.bitmaps import as_array
from knnmt.layout.manifest import MANIFEST
from knnmt.layout.part_files import KINDS
from knnmt.layout.records import IndexRecord
from knnmt.search.index import check_index, open_index
from knnmt.search.internals import quantiser_of
from knnmt.store.datastore import Store

SAMPLE = 64
NEAREST = 8


def problems_of(store: Store) -> Iterator[str]:
    """What is wrong, one line each; empty if nothing is."""
    damaged = list(changed_files(store))
    yield from damaged
    if damaged:  # what is in them says nothing any more
        return
    for part in range(len(store.manifest.parts)):
        yield from part_problems(store, part)
    yield from removed_problems(store)
    yield from index_problems(store)


def changed_files(store: Store) -> Iterator[str]:
    """Files that differ from their checksums."""
    for file, record in store.files().items():
        try:
            with reading(file):
                same = sha256_of(file) == record.sha256
        except StoreError as error:
            yield str(error)
        else:
            if not same:
                yield f"{file}: content differs from what was written"


def part_problems(store: Store, part: int) -> Iterator[str]:
    """Every column must have a row for each entry, or for each segment if it is kept by segment."""
    try:
        for name in KINDS:
            if store.part_files.has(part, name):
                store.column(name, part)
        store.table(part)
    except StoreError as error:
        yield str(error)
        return
    owners, segments = np.asarray(store.column("segments", part)), store.manifest.parts[part].segments
    if len(owners) and (owners.max() >= segments or (np.diff(owners.astype(np.int64)) < 0).any()):
        yield f"{store.part_files.path(part, 'segments.npy')}: rows out of order, or more than {segments:,}"


def removed_problems(store: Store) -> Iterator[str]:
    """Removed segments must exist and be counted."""
    removed, record = store.removed, store.manifest.removed
    if record is None:
        return
    file = store.path / (record.name or MANIFEST)
    if len(removed) != record.segments:
        yield f"{file}: {len(removed):,} segments instead of {record.segments:,}"
    elif removed and removed.max() >= store.manifest.segments:
        yield f"{file}: names segments that the store does not have"
    elif (entries := len(store.entries_of(as_array(removed)))) != record.entries:
        yield f"{file}: {entries:,} entries instead of {record.entries:,}"


def index_problems(store: Store) -> Iterator[str]:
    """Every index must know its entries and find stored keys."""
    indexes = store.manifest.indexes
    for index, first in zip(indexes, starts([index.entries for index in indexes]), strict=True):
        if index.file:
            try:
                yield from problems_of_index(store, index, int(first))
            except StoreError as error:
                yield str(error)


def problems_of_index(store: Store, record: IndexRecord, first: int) -> Iterator[str]:
    file = store.index_file(record)
    index = open_index(file, record.nprobe)
    check_index(index, file, entries=record.entries, dimension=store.manifest.model.dimension)
    if record.quantiser and quantiser_of(index) != record.quantiser:
        yield f"{file}: its clusters or codes are not those that were trained"
    if store.has_keys:
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
