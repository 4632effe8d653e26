"""The indexes of a store: one over all that was built, smaller ones over what was added since.

New entries get an index of their own, so that adding costs what is added and not what is there. It takes in the indexes
before it that are not larger, so that there are never more than a handful.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from knnmt.arrays import Array
from knnmt.files import rename_durably
from knnmt.progress import progress_bar
from knnmt.search.file_names import trained_name
from knnmt.search.index import BuiltIndex, build_index, can_be_extended, extend_index, fits_exact_search
from knnmt.store.datastore import INDEX, PARTS, FileRecord, IndexRecord, PartRecord, Store, map_column
from knnmt.store.parts import join_parts

JOINED_ENTRIES = 131_072
OUTGROWN = 4  # times as many entries as the index was trained for


def write_index(
    path: Path, parts: list[PartRecord], *, name: str = INDEX, factory: str | None, show_progress: bool = False
) -> IndexRecord:
    """Train an index and put it in place, over all keys of some parts."""
    with progress_bar("indexing", sum(part.entries for part in parts), show=show_progress) as advance:

        def build(keys: list[Array], file: Path) -> BuiltIndex:
            return build_index(keys, file, factory=factory, on_entries=lambda count: advance(count, 0))

        return place_index(path, name, parts, build)


def grown(store: Store, added: list[PartRecord]) -> tuple[list[PartRecord], list[IndexRecord]]:
    """The store's parts and indexes after parts were added to it."""
    manifest = store.manifest
    kept, taken_in = split_indexes(store, sum(part.entries for part in added))
    small = last_parts(manifest.parts, sum(index.entries for index in taken_in))
    parts = joined([*small, *added], store.path)
    return [*manifest.parts[: len(manifest.parts) - len(small)], *parts], [*kept, index_over(store, parts)]


def index_over(store: Store, parts: list[PartRecord]) -> IndexRecord:
    """An index for parts that come after those of the store: exact, in the same clusters, or of its own."""
    base, name = store.manifest.index, f"index-{store.manifest.version + 1:06d}.faiss"
    file = store.index_file(base)
    if fits_exact_search(sum(part.entries for part in parts), base.factory, store.manifest.model.dimension):
        return write_index(store.path, parts, name=name, factory="Flat")
    if base.nprobe and can_be_extended(base.factory, store.manifest.model.dimension):
        extend = partial(extend_index, file, nprobe=base.nprobe)
        return place_index(store.path, name, parts, extend)
    return write_index(store.path, parts, name=name, factory=None)


def split_indexes(store: Store, added: int) -> tuple[list[IndexRecord], list[IndexRecord]]:
    """Those that stay as they are, and those at the end that are not larger than what comes.

    The first one stays, and so does one whose keys were dropped.
    """
    manifest = store.manifest
    kept, taken_in = list(manifest.indexes), 0
    while len(kept) > 1 and kept[-1].entries <= added + taken_in:
        taken_in += kept[-1].entries
        if not all(part.has_keys for part in last_parts(manifest.parts, taken_in)):
            break
        kept.pop()
    return kept, manifest.indexes[len(kept) :]


def last_parts(parts: list[PartRecord], entries: int) -> list[PartRecord]:
    """The parts at the end that hold just so many entries."""
    first = len(parts)
    while entries > 0:
        first -= 1
        entries -= parts[first].entries
    return parts[first:]


def joined(parts: list[PartRecord], path: Path) -> list[PartRecord]:
    """One part out of several small ones: a reader has a few files open for each."""
    if len(parts) < 2 or sum(part.entries for part in parts) > JOINED_ENTRIES:
        return parts
    return [join_parts(path, parts)]


def place_index(
    path: Path, name: str, parts: list[PartRecord], build: Callable[[list[Any], Path], BuiltIndex]
) -> IndexRecord:
    """Build an index beside its place, then move it there."""
    temporary = path / f".{name}.partial"
    built = build([map_column(path / PARTS / part.name, "keys") for part in parts], temporary)
    entries = sum(part.entries for part in parts)
    record = IndexRecord(name, entries, built.factory, built.nprobe, built.recall, FileRecord.of(temporary))
    rename_durably(temporary, path / name)
    beside = temporary.with_name(trained_name(temporary.name))
    if not beside.exists():
        return record
    record = replace(record, trained=FileRecord.of(beside))
    rename_durably(beside, path / record.trained_name)
    return record


def outgrown(store: Store) -> bool:
    """Whether the first index was made for a much smaller store than this one has become."""
    return store.entries > OUTGROWN * store.manifest.index.entries
