"""The indexes of a store: one over all that was built, and smaller ones over later additions.

New entries get an index of their own, so the cost of adding depends on what is added. Few entries need no index file:
all their keys are compared. `tiers` decides which indexes are joined when.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyroaring import BitMap

from knnmt.arrays import Array
from knnmt.errors import StoreError
from knnmt.files import REMEDY, lists_name, reading, rename_durably, trained_name
from knnmt.layout.joining import Inputs, join_into
from knnmt.layout.manifest import PARTS
from knnmt.layout.packed_parts import PACKED, read_packed
from knnmt.layout.part_files import PartFiles, map_file
from knnmt.layout.parts import new_folder, next_part
from knnmt.layout.records import FileRecord, IndexRecord, PartRecord, RemovedRecord
from knnmt.progress import progress_bar
from knnmt.search.factories import can_be_extended, fits_exact_search
from knnmt.search.index import Assign, BuiltIndex, build_index, extend_index
from knnmt.store.datastore import INDEX, Store
from knnmt.store.removing import write_removed
from knnmt.store.tiers import JOINED_BY_A_CHANGE, PATIENCE, IndexUnit, Run, due, taken_in, units_of

Build = Callable[[list[Any], Path], BuiltIndex]

OUTGROWN = 4  # times as many entries as the index was trained for


def make_store_index(
    path: Path,
    parts: list[PartRecord],
    *,
    name: str = INDEX,
    factory: str | None,
    memory: int | None = None,
    show_progress: bool = False,
    assign: Assign | None = None,
) -> IndexRecord:
    """Train an index and put it in place, over all keys of some parts; `assign` finds the clusters of the keys."""
    with progress_bar("indexing", sum(part.entries for part in parts), show=show_progress) as advance:

        def build(keys: list[Array], file: Path) -> BuiltIndex:
            return build_index(
                keys, file, factory=factory, memory=memory, on_entries=lambda count: advance(count, 0), assign=assign
            )

        return place_index(path, name, keys_of(path / PARTS, parts), build)


def grown(store: Store, added: Sequence[PartRecord], outdated: Iterable[int] = ()) -> dict[str, Any]:
    """The fields of the manifest after parts were added and segments removed.

    Small units are joined on the way; `outdated` are segments of the store as it is.
    """
    removed = write_removed(store, outdated) if outdated else store.manifest.removed
    units = units_of(store.manifest)
    if added:
        units, removed = with_added(store, units, added, removed)
        for bound in ({"most": JOINED_BY_A_CHANGE}, {"patience": PATIENCE}):
            while run := due(units, **bound):
                joint, dropped = joint_unit(store, units, run)
                units, removed = [*units[: run.first], joint, *units[run.end :]], less(removed, dropped)
    return manifest_fields(units, removed)


def with_added(
    store: Store, units: list[IndexUnit], added: Sequence[PartRecord], removed: RemovedRecord | None
) -> tuple[list[IndexUnit], RemovedRecord | None]:
    """The units with new parts at the end, joined with smaller ones before them."""
    entries = sum(part.entries for part in added)
    count = taken_in(units, entries)
    new = [*units, IndexUnit(IndexRecord.of_keys(entries), tuple(added))]
    if not count:
        return [*units, indexed(store, added)], removed
    joint, dropped = joint_unit(store, new, Run(len(units) - count, len(new)))
    return [*units[: len(units) - count], joint], less(removed, dropped)


def joint_unit(store: Store, units: Sequence[IndexUnit], run: Run) -> tuple[IndexUnit, int]:
    """One unit out of several, and how many entries it lost because they had been removed."""
    number = next_part(store.path)
    final = store.path / PARTS / f"{number:06d}"
    part = join_into(new_folder(final), final, inputs_of(store, units, run))
    before = sum(unit.entries for unit in units[run.first : run.end])
    return indexed(store, [part]), before - part.entries


def inputs_of(store: Store, units: Sequence[IndexUnit], run: Run) -> Inputs:
    """The parts of some units, and which of their segments have been removed."""
    parts = [part for unit in units[run.first : run.end] for part in unit.parts]
    first = sum(part.segments for unit in units[: run.first] for part in unit.parts)
    end = first + sum(part.segments for part in parts)
    here = BitMap()
    here.add_range(first, end)
    here &= store.removed
    return Inputs(PartFiles(store.path / PARTS, parts, store.manifest.model.dimension), here.shift(-first))


def less(removed: RemovedRecord | None, dropped: int) -> RemovedRecord | None:
    return replace(removed, entries=removed.entries - dropped) if removed else None


def manifest_fields(units: Sequence[IndexUnit], removed: RemovedRecord | None) -> dict[str, Any]:
    """The fields of the manifest for some units."""
    parts = [part for unit in units for part in unit.parts]
    return {
        "parts": parts,
        "indexes": [unit.index for unit in units],
        "entries": sum(part.entries for part in parts),
        "segments": sum(part.segments for part in parts),
        "removed": removed,
    }


def indexed(store: Store, parts: Sequence[PartRecord], place: Path | None = None) -> IndexUnit:
    """New parts with an index: exact, with the same clusters, or with its own.

    `place` is a folder with the part in it, where the index is to be written, too; by default both are in the store.
    """
    base, entries = store.manifest.index, sum(part.entries for part in parts)
    dimension = store.manifest.model.dimension
    if fits_exact_search(entries, base.factory, dimension):
        return IndexUnit(IndexRecord.of_keys(entries), tuple(parts))
    name = INDEX if place else unused_name(store.path, store.manifest.version + 1)
    keys = keys_of(place or store.path / PARTS, parts)
    if base.nprobe and can_be_extended(base.factory, dimension):
        build: Build = partial(extend_index, store.index_file(base), nprobe=base.nprobe)
    else:
        build = partial(build_index, factory=None, on_entries=lambda _: None)
    record = place_index(place or store.path, name, keys, build)
    if record.factory.startswith("clusters of") and base.quantiser and record.quantiser != base.quantiser:
        raise StoreError(f"{store.index_file(base)}: not what was trained (its clusters or codes are others); {REMEDY}")
    return IndexUnit(record, tuple(parts))


def keys_of(folder: Path, parts: Sequence[PartRecord]) -> list[Array]:
    return [
        packed_keys(folder / part.name) if PACKED in part.files else mapped_keys(folder / part.name) for part in parts
    ]


def mapped_keys(folder: Path) -> Array:
    return map_file(folder / "keys.npy")


def packed_keys(folder: Path) -> Array:
    with reading(folder / PACKED):
        return read_packed((folder / PACKED).read_bytes())["keys"]


def unused_name(path: Path, version: int) -> str:
    """A name for an index that no file has."""
    names = (f"index-{version:06d}{f'-{number}' if number else ''}.faiss" for number in count())
    return next(name for name in names if not (path / name).exists())


def place_index(folder: Path, name: str, keys: list[Array], build: Build) -> IndexRecord:
    """Build an index beside its place, then move it there."""
    temporary = folder / f".{name}.partial"
    built = build(keys, temporary)
    entries = sum(len(part) for part in keys)
    record = IndexRecord(
        name, entries, built.factory, built.nprobe, built.recall, FileRecord.of(temporary), quantiser=built.quantiser
    )
    for field, named in (("trained", trained_name), ("lists", lists_name)):
        beside = temporary.with_name(named(temporary.name))
        if beside.exists():
            beside_it: Any = {field: FileRecord.of(beside)}
            record = replace(record, **beside_it)
            rename_durably(beside, folder / named(name))
    rename_durably(temporary, folder / name)
    return record


def outgrown(store: Store) -> bool:
    """Whether the first index was made for a much smaller store than this one has become."""
    return store.entries > OUTGROWN * store.manifest.index.entries
