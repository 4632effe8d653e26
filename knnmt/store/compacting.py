"""Rewrites a store without what was removed from it: one index, no earlier versions, less space."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.errors import SettingsError, StoreError
from knnmt.files import flush_to_disk, write_json
from knnmt.layout.bitmaps import as_array
from knnmt.layout.manifest import PARTS, read_manifest
from knnmt.layout.parts import PART_RECORD, EncodedSegment, PartWriter, next_part
from knnmt.layout.records import MixingRecord, PartRecord, as_json
from knnmt.search.factories import make_index, was_automatic
from knnmt.search.internals import ivf_of
from knnmt.store.compacting_tiers import joining
from knnmt.store.datastore import Store, runs_of
from knnmt.store.downsampling import Downsampling, record_for
from knnmt.store.index_files import make_store_index
from knnmt.store.versions import changing, commit
from knnmt.text.corpus import Segment

PART_ENTRIES = 131_072


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A segment that stays, with those of its entries that stay."""

    segment: Segment
    tokens: list[int]
    positions: list[int]  # of the tokens in the segment's target
    keys: NDArray[np.float16]  # [tokens, dimension]

    def thinned(self, downsampling: Downsampling) -> "KeptSegment":
        stay = [row for row, token in enumerate(self.tokens) if downsampling.keeps_next(token)]
        tokens, positions = ([values[row] for row in stay] for values in (self.tokens, self.positions))
        return KeptSegment(self.segment, tokens, positions, self.keys[stay])

    def encoded(self) -> EncodedSegment:
        """The form in which a part is written; tokens that are not entries are unknown here, and not needed."""
        target = [0] * (max(self.positions, default=-1) + 1)
        for position, token in zip(self.positions, self.tokens, strict=True):
            target[position] = token
        return EncodedSegment(self.segment, [], target, tuple(self.positions))


def compact_store(
    path: str | Path,
    *,
    index: str | None = None,
    drop_keys: bool = False,
    cap: int | None = None,
    part_entries: int = PART_ENTRIES,
    memory: int | None = None,
    show_progress: bool = False,
) -> Store:
    """Rewrite the parts, train one index over all of them, and forget every earlier version.

    With `drop_keys` only the index's codes remain of the keys, as in the paper: a fraction of the size, but distances
    are then as rough as the codes, and the store cannot be compacted again. With `cap`, frequent target tokens lose
    entries until each has at most so many.
    """
    if cap is not None and cap < 1:
        raise SettingsError(f"--cap {cap}: must be at least 1")
    if index is not None:  # before any lock, so that a wrong call leaves nothing behind
        make_index(index, read_manifest(Path(path)).model.dimension)
    with joining(Path(path)), changing(Path(path)) as store:
        check_rewritable(store)
        downsampling = count_live(store, cap) if cap else None
        parts = rewrite_parts(store, part_entries, downsampling)
        entries, corpora = sum(part.entries for part in parts), corpora_left(store)
        name = f"index-{store.manifest.version + 1:06d}.faiss"
        factory = index or factory_for(store)
        record = make_store_index(
            store.path, parts, name=name, factory=factory, memory=memory, show_progress=show_progress
        )
        return commit(
            store,
            "compacted" + (", keys dropped" if drop_keys else ""),
            parts=[without_keys(store.path, part) for part in parts] if drop_keys else parts,
            indexes=[record],
            entries=entries,
            segments=sum(part.segments for part in parts),
            removed=None,
            oldest=store.manifest.version + 1,  # what was removed must not come back
            corpora=corpora,
            downsampling=thinning(store, downsampling, corpora),
            mixing=mixing_after(store),
        )


def mixing_after(store: Store) -> MixingRecord | None:
    """The store's mixing; removed segments no longer count as covered."""
    before = store.manifest.mixing
    if before is None:
        return None
    left = before.covered - store.removed.range_cardinality(0, before.covered)
    return replace(before, covered=left)


def check_rewritable(store: Store) -> None:
    if not store.has_keys:
        raise StoreError(f"{store.path}: its keys were dropped, so it cannot be written anew; build it again")
    if not store.live_entries:
        raise StoreError(f"{store.path}: every sentence pair has been removed; delete the folder instead")


def corpora_left(store: Store) -> list[dict[str, Any]]:
    """The corpora that still have a segment."""
    left = {pair.corpus for pair in store.all_segments()}
    return [corpus for corpus in store.manifest.corpora if corpus["name"] in left]


def factory_for(store: Store) -> str | None:
    """The factory of the new index: one that was chosen by size is chosen again, one that a person chose stays."""
    before, dimension = store.manifest.index, store.manifest.model.dimension
    if was_automatic(before.factory, before.entries, dimension):
        return None
    clusters = ivf_of(make_index(before.factory, dimension))
    return None if clusters and clusters.nlist > store.live_entries else before.factory


def count_live(store: Store, cap: int) -> Downsampling:
    """How often each token occurs in the entries that have not been removed."""
    values = np.delete(store.values, store.entries_of(as_array(store.removed)))
    tokens, counts = np.unique(values, return_counts=True)
    return Downsampling(cap, Counter(dict(zip(tokens.tolist(), counts.tolist(), strict=True))))


def thinning(store: Store, downsampling: Downsampling | None, corpora: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The manifest's record of dropped entries of frequent tokens, now and before."""
    before = store.manifest.downsampling
    if downsampling is None:
        return record_for(before, {corpus["name"] for corpus in corpora})
    now = downsampling.to_json()
    return now | {"dropped": now["dropped"] + (before["dropped"] if before else 0)}


def rewrite_parts(store: Store, part_entries: int, downsampling: Downsampling | None) -> list[PartRecord]:
    """New parts of the segments that stay."""
    parts: list[PartRecord] = []
    number, batch, entries = next_part(store.path), list[KeptSegment](), 0
    for kept in kept_segments(store):
        batch.append(kept.thinned(downsampling) if downsampling else kept)
        entries += len(batch[-1].tokens)
        if entries >= part_entries:
            parts.append(write_part(store, number + len(parts), batch))
            batch, entries = [], 0
    if batch:
        parts.append(write_part(store, number + len(parts), batch))
    return parts


def kept_segments(store: Store) -> Iterator[KeptSegment]:
    """The live segments in order, with the tokens and keys that they have in the store."""
    gone = store.removed
    for part, record in enumerate(store.manifest.parts):
        first = int(store.first_segments[part])
        keys, values, positions, owners = (
            store.column(name, part) for name in ("keys", "values", "positions", "segments")
        )
        runs = runs_of(owners, np.arange(record.segments))
        for pair, run in zip(store.segments_at(np.arange(first, first + record.segments)), runs, strict=True):
            if pair.segment not in gone:
                segment = Segment(pair.source, pair.target, pair.corpus, pair.number, pair.created, pair.metadata)
                yield KeptSegment(segment, values[run].tolist(), positions[run].tolist(), keys[run])


def write_part(store: Store, number: int, batch: list[KeptSegment]) -> PartRecord:
    dimension = store.manifest.model.dimension
    writer = PartWriter(store.path, number, [kept.encoded() for kept in batch], dimension=dimension)
    for position, kept in enumerate(batch):
        writer.put_kept(position, kept.keys.astype(np.float32))
    return writer.finish(consumed=0, skipped={})


def without_keys(path: Path, part: PartRecord) -> PartRecord:
    """Delete the keys of a part that no version names yet."""
    folder = path / PARTS / part.name
    slim = replace(part, files={name: file for name, file in part.files.items() if name != "keys.npy"})
    write_json(folder / PART_RECORD, as_json(slim))
    (folder / "keys.npy").unlink()
    flush_to_disk(folder)
    return slim
