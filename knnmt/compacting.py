"""Writing a store anew without what was removed from it: less space, one index, nothing of the past."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt.adding import next_part
from knnmt.corpus import Segment
from knnmt.errors import StoreError
from knnmt.files import flush_to_disk, write_json
from knnmt.index import automatic_factory, make_index
from knnmt.indexing import write_index
from knnmt.parts import PART_RECORD, EncodedSegment, PartWriter
from knnmt.store import PARTS, PartRecord, Store, runs_of
from knnmt.versions import changing, commit, forget_versions

PART_ENTRIES = 131_072


class Kept(NamedTuple):
    """A segment that stays, with its keys [tokens, dimension]."""

    encoded: EncodedSegment
    keys: NDArray[np.float16]


def compact_store(
    path: str | Path,
    *,
    index: str | None = None,
    drop_keys: bool = False,
    part_entries: int = PART_ENTRIES,
    show_progress: bool = False,
) -> Store:
    """Rewrite the parts, train one index over all of them, and forget every earlier version.

    With `drop_keys` only the index's codes remain of the keys, as in the paper: a fraction of the size, but distances
    are then as rough as the codes, and the store cannot be compacted again.
    """
    with changing(Path(path)) as store:
        check_rewritable(store)
        if index is not None:
            make_index(index, store.manifest.model.dimension)
        parts = rewrite_parts(store, part_entries)
        entries = sum(part.entries for part in parts)
        name = f"index-{store.manifest.version + 1:06d}.faiss"
        factory = index or factory_for(store)
        record = write_index(store.path, parts, name=name, factory=factory, show_progress=show_progress)
        compacted = commit(
            store,
            "compacted" + (", keys dropped" if drop_keys else ""),
            parts=[without_keys(store.path, part) for part in parts] if drop_keys else parts,
            indexes=[record],
            entries=entries,
            segments=sum(part.segments for part in parts),
            removed=None,
        )
        forget_versions(compacted.path)
        return compacted


def check_rewritable(store: Store) -> None:
    if not store.has_keys:
        raise StoreError(f"{store.path}: its keys were dropped, so it cannot be written anew; build it again")
    if not store.live_entries:
        raise StoreError(f"{store.path}: every sentence pair has been removed; delete the folder instead")


def factory_for(store: Store) -> str | None:
    """What was chosen by size is chosen anew; what a person chose stays."""
    before = store.manifest.index
    automatic = automatic_factory(before.entries, store.manifest.model.dimension)
    return None if before.factory == automatic else before.factory


def rewrite_parts(store: Store, part_entries: int) -> list[PartRecord]:
    """New parts out of the segments that stay."""
    parts: list[PartRecord] = []
    number, batch, entries = next_part(store.path), list[Kept](), 0
    for kept in kept_segments(store):
        batch.append(kept)
        entries += len(kept.keys)
        if entries >= part_entries:
            parts.append(write_part(store, number + len(parts), batch))
            batch, entries = [], 0
    if batch:
        parts.append(write_part(store, number + len(parts), batch))
    return parts


def kept_segments(store: Store) -> Iterator[Kept]:
    """The live segments in order, with the tokens and keys that they have in the store."""
    gone = set(store.removed.tolist())
    for part, record in enumerate(store.manifest.parts):
        first = int(store.first_segments[part])
        keys, values, owners = (store.columns(name)[part] for name in ("keys", "values", "segments"))
        runs = runs_of(owners, np.arange(record.segments))
        for pair, run in zip(store.segments_at(np.arange(first, first + record.segments)), runs, strict=True):
            if pair.segment not in gone:
                segment = Segment(pair.source, pair.target, pair.corpus, pair.number, pair.created, pair.metadata)
                yield Kept(EncodedSegment(segment, [], values[run].tolist()), keys[run])


def write_part(store: Store, number: int, batch: list[Kept]) -> PartRecord:
    writer = PartWriter(store.path, number, [kept.encoded for kept in batch], dimension=store.manifest.model.dimension)
    for position, kept in enumerate(batch):
        writer.put(position, kept.keys.astype(np.float32))
    return writer.finish(consumed=0, skipped={})


def without_keys(path: Path, part: PartRecord) -> PartRecord:
    """A part that no version names yet loses its keys."""
    folder = path / PARTS / part.name
    slim = replace(part, files={name: file for name, file in part.files.items() if name != "keys.npy"})
    write_json(folder / PART_RECORD, asdict(slim))
    (folder / "keys.npy").unlink()
    flush_to_disk(folder)
    return slim
