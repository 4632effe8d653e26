"""The indexes of a store: one over all that was built, smaller ones over what was added since.

New entries get an index of their own, so that adding costs what is added and not what is there. It takes in the indexes
before it that are not larger, so that there are never more than a handful.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from knnmt.files import rename_durably
from knnmt.index import BuiltIndex, build_index, extend_index, fits_exact_search
from knnmt.progress import progress_bar
from knnmt.store import INDEX, PARTS, Array, FileRecord, IndexRecord, PartRecord, Store, map_column

OUTGROWN = 4  # times as many entries as the index was trained for


def write_index(
    path: Path, parts: list[PartRecord], *, name: str = INDEX, factory: str | None, show_progress: bool = False
) -> IndexRecord:
    """Train an index and put it in place, over all keys of some parts."""
    with progress_bar("indexing", sum(part.entries for part in parts), show=show_progress) as advance:

        def build(keys: list[Array], file: Path) -> BuiltIndex:
            return build_index(keys, file, factory=factory, on_entries=lambda count: advance(count, 0))

        return place_index(path, name, parts, build)


def indexes_with(store: Store, added: list[PartRecord]) -> list[IndexRecord]:
    """The store's indexes after parts were added to it."""
    kept, taken_in = split_indexes(store.manifest.indexes, sum(part.entries for part in added))
    entries = sum(index.entries for index in taken_in)
    parts = [*last_parts(store.manifest.parts, entries), *added]
    base = store.manifest.index
    name = f"index-{store.manifest.version + 1:06d}.faiss"
    if fits_exact_search(sum(part.entries for part in parts), store.index_file(base) if base.nprobe else None):
        new = write_index(store.path, parts, name=name, factory="Flat")
    elif base.nprobe:
        new = place_index(store.path, name, parts, lambda keys, file: extend_index(store.index_file(base), keys, file))
    else:
        new = write_index(store.path, parts, name=name, factory=None)
    return [*kept, new]


def split_indexes(indexes: list[IndexRecord], added: int) -> tuple[list[IndexRecord], list[IndexRecord]]:
    """Those that stay as they are, and those at the end that are not larger than what comes; the first one stays."""
    kept = list(indexes)
    while len(kept) > 1 and kept[-1].entries <= added:
        added += kept.pop().entries
    return kept, indexes[len(kept) :]


def last_parts(parts: list[PartRecord], entries: int) -> list[PartRecord]:
    """The parts at the end that hold just so many entries."""
    first = len(parts)
    while entries > 0:
        first -= 1
        entries -= parts[first].entries
    return parts[first:]


def place_index(
    path: Path, name: str, parts: list[PartRecord], build: Callable[[list[Any], Path], BuiltIndex]
) -> IndexRecord:
    """Build an index beside its place, then move it there."""
    temporary = path / f".{name}.partial"
    built = build([map_column(path / PARTS / part.name, "keys") for part in parts], temporary)
    entries = sum(part.entries for part in parts)
    record = IndexRecord(name, entries, built.factory, built.nprobe, built.recall, FileRecord.of(temporary))
    rename_durably(temporary, path / name)
    return record


def outgrown(store: Store) -> bool:
    """Whether the first index was made for a much smaller store than this one has become."""
    return store.entries > OUTGROWN * store.manifest.index.entries
