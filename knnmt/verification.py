"""Is a datastore what its manifest says? Checksums, counts, and an index that agrees with the parts."""

from collections.abc import Iterator

import numpy as np
import pyarrow.parquet as parquet

from knnmt.errors import StoreError
from knnmt.files import sha256_of
from knnmt.index import open_index
from knnmt.store import COLUMNS, PartRecord, Store, map_column

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
    yield from index_problems(store)


def part_problems(store: Store, part: PartRecord) -> Iterator[str]:
    folder = store.part_folder(part)
    for name in COLUMNS:
        try:
            rows = len(map_column(folder, name))
        except StoreError as error:
            yield str(error)
            continue
        if rows != part.entries:
            yield f"{folder / name}.npy: {rows:,} rows instead of {part.entries:,}"
    try:
        segments = parquet.read_metadata(folder / "segments.parquet").num_rows
    except (OSError, ValueError) as error:
        yield f"{folder / 'segments.parquet'}: damaged ({error})"
    else:
        if segments != part.segments:
            yield f"{folder / 'segments.parquet'}: {segments:,} rows instead of {part.segments:,}"


def index_problems(store: Store) -> Iterator[str]:
    """The index must know every entry, and find stored keys where they are."""
    try:
        index = open_index(store.index_file, store.manifest.index.nprobe)
    except StoreError as error:
        yield str(error)
        return
    if index.ntotal != store.entries:
        yield f"{store.index_file}: {index.ntotal:,} entries instead of {store.entries:,}"
        return
    sample = np.random.default_rng(0).choice(store.entries, min(SAMPLE, store.entries), replace=False)
    keys = store.gather("keys", sample).astype(np.float32)
    _, found = index.search(keys, min(NEAREST, store.entries))
    same = np.array([nearly_equal(store, key, near) for key, near in zip(keys, found, strict=True)])
    if same.mean() < 0.5:
        yield f"{store.index_file}: finds {same.mean():.0%} of stored keys; it belongs to other parts"


def nearly_equal(store: Store, key: np.ndarray, near: np.ndarray) -> bool:
    """Whether a search for a stored key found that key (or one equal to it)."""
    keys = store.gather("keys", near[near >= 0]).astype(np.float32)
    return bool((np.abs(keys - key).max(axis=1) < 1e-3).any())
