"""Merges stores of one model: their parts and indexes are taken over as they are, and nothing is computed again."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.errors import StoreError
from knnmt.files import flush_to_disk, lists_name, rename_durably, write_json
from knnmt.layout.bitmaps import as_array
from knnmt.layout.manifest import PARTS
from knnmt.layout.parts import PART_RECORD, next_part
from knnmt.layout.records import HASHES, IndexRecord, PartRecord, as_json, summed
from knnmt.store.datastore import Store, StoredSegment, check_same_model
from knnmt.store.downsampling import merged_record
from knnmt.store.filters import numbers_below
from knnmt.store.removing import write_removed
from knnmt.store.versions import changing, commit


def merge_stores(path: str | Path, others: Sequence[str | Path]) -> Store:
    """Add the content of other stores to the one at `path`, in one change. Pairs that it already has are skipped."""
    opened = [Store.open(other) for other in others]
    with changing(Path(path)) as store:
        if any(other.path.resolve() == store.path.resolve() for other in opened):
            raise StoreError(f"{path}: cannot be merged with itself")
        check_same_model([store, *opened])
        grown = store
        for other in opened:
            grown = with_store(grown, other)
        removed = removed_of(store, opened)
        removed |= repeated_pairs(grown, removed, first=store.manifest.segments)
        names = ("parts", "indexes", "entries", "segments", "corpora", "skipped", "downsampling")
        return commit(
            store,
            f"merged with {' and '.join(other.path.name for other in opened)}",
            **{name: getattr(grown.manifest, name) for name in names},
            removed=write_removed(grown, removed) if removed else None,
        )


def with_store(store: Store, other: Store) -> Store:
    """The store with another's files in its folder, as its next manifest will name them."""
    number, manifest = next_part(store.path), store.manifest
    parts = [take_part(other, part, store.path, number + at) for at, part in enumerate(other.manifest.parts)]
    indexes = [
        take_index(other, index, store.path, f"index-{manifest.version + 1:06d}-{len(manifest.indexes) + at}.faiss")
        for at, index in enumerate(other.manifest.indexes)
    ]
    return Store(
        store.path,
        replace(
            manifest,
            parts=[*manifest.parts, *parts],
            indexes=[*manifest.indexes, *indexes],
            entries=manifest.entries + other.entries,
            segments=manifest.segments + other.manifest.segments,
            corpora=[*manifest.corpora, *(c for c in other.manifest.corpora if c not in manifest.corpora)],
            skipped=summed(manifest.skipped, other.manifest.skipped),
            downsampling=merged_record(manifest, other.manifest),
        ),
    )


def take_part(other: Store, part: PartRecord, path: Path, number: int) -> PartRecord:
    """A part under a new number, whole or not at all."""
    taken = replace(part, name=f"{number:06d}")
    final = path / PARTS / taken.name
    temporary = final.with_name(f".{taken.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name in part.files:
        copy_durably(other.part_folder(part) / name, temporary / name)
    write_json(temporary / PART_RECORD, as_json(taken))
    rename_durably(temporary, final)
    return taken


def take_index(other: Store, index: IndexRecord, path: Path, name: str) -> IndexRecord:
    if index.file is None:
        return index
    temporary = path / f".{name}.partial"
    temporary.unlink(missing_ok=True)
    copy_durably(other.index_file(index), temporary)
    rename_durably(temporary, path / name)
    if index.lists:
        copy_durably(other.path / lists_name(index.name), path / f".{lists_name(name)}.partial")
        rename_durably(path / f".{lists_name(name)}.partial", path / lists_name(name))
    return replace(index, name=name, trained=None)  # only the first index is ever extended


def copy_durably(source: Path, target: Path) -> None:
    """Copy a file instead of linking it, so that damage to one store cannot reach the other."""
    shutil.copyfile(source, target)
    flush_to_disk(target)


def removed_of(store: Store, others: Sequence[Store]) -> BitMap:
    """The removed segments of each store, numbered as in the merged store."""
    numbers, first = store.removed, store.manifest.segments
    for other in others:
        numbers = numbers | other.removed.shift(first)
        first += other.manifest.segments
    return numbers


def repeated_pairs(grown: Store, removed: BitMap, *, first: int) -> BitMap:
    """Segments from number `first` on whose pair is already in the memory."""
    hashes = np.concatenate([np.array(column[:, 1]) for column in grown.columns(HASHES)])
    live = as_array(numbers_below(len(hashes)) - removed)
    _, earliest, groups = np.unique(hashes[live], return_index=True, return_inverse=True)
    suspects, originals = live, live[earliest[groups]]
    again = (suspects != originals) & (suspects >= first)
    pairs = {pair.segment: (pair.source, pair.target) for pair in pairs_at(grown, suspects[again], originals[again])}
    same = [pairs[int(a)] == pairs[int(b)] for a, b in zip(suspects[again], originals[again], strict=True)]
    return BitMap(suspects[again][np.array(same, bool)].astype(np.uint32))


def pairs_at(store: Store, *numbers: NDArray[np.int64]) -> list[StoredSegment]:
    return store.segments_at(np.unique(np.concatenate(numbers)))
