"""Removes sentence pairs from a store: searches no longer find them, but they stay on disk until it is compacted."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pyroaring import BitMap

from knnmt.errors import SettingsError
from knnmt.files import write_durably
from knnmt.layout.bitmaps import as_array
from knnmt.layout.hashes import hash_of
from knnmt.layout.records import FileRecord, RemovedRecord
from knnmt.store.datastore import Store
from knnmt.store.filters import Condition, matching_segments, segments_where
from knnmt.store.versions import changing, commit

RECENT = 256  # removed segments that the manifest itself names, so that few of them need no new file


def remove_from_store(
    path: str | Path,
    *,
    segments: Sequence[int] = (),
    corpora: Sequence[str] = (),
    source_texts: Sequence[str] = (),
    where: Sequence[str] = (),
) -> tuple[Store, int]:
    """Remove what any of the lists names; returns the store and how many segments went.

    The conditions in `where` must all be met. What names nothing is an error: a slip would otherwise go unseen.
    """
    if not (segments or corpora or source_texts or where):
        raise SettingsError("--segment, --corpus, --source-text or --where is missing: what is to be removed?")
    with changing(Path(path)) as store:
        gone = by_number(store, segments) | by_corpus(store, corpora) | by_source(store, source_texts)
        if where:
            gone |= segments_where(store, where)
        change = f"removed {len(gone):,} segment{'' if len(gone) == 1 else 's'}"
        return commit(store, change, removed=write_removed(store, gone)), len(gone)


def write_removed(store: Store, more: Iterable[int]) -> RemovedRecord:
    """Write which segments are removed from the next version on: the earlier ones and more."""
    before = store.manifest.removed or RemovedRecord(None, 0, 0, None)
    new = BitMap(more) - store.removed
    entries = before.entries + len(store.entries_of(as_array(new)))
    recent = [*before.recent, *new]
    if len(recent) <= RECENT:
        return replace(before, segments=before.segments + len(new), entries=entries, recent=recent)
    return write_bitmap(store.path, store.manifest.version + 1, store.removed | new, entries)


def write_bitmap(path: Path, version: int, removed: BitMap, entries: int) -> RemovedRecord:
    """Write all numbers to one new file."""
    removed.run_optimize()
    name = f"removed-{version:06d}.roaring"
    write_durably(path / name, lambda file: file.write(removed.serialize()))
    return RemovedRecord(name, len(removed), entries, FileRecord.of(path / name))


def by_number(store: Store, numbers: Sequence[int]) -> BitMap:
    for number in numbers:
        if not 0 <= number < store.manifest.segments or number in store.removed:
            raise SettingsError(f"--segment {number}: {store.path} has no such segment")
    return BitMap(numbers)


def by_corpus(store: Store, names: Sequence[str]) -> BitMap:
    chosen = BitMap()
    for name in names:
        found = matching_segments(store, [Condition("corpus", "=", name)]) - store.removed
        if not found:
            known = ", ".join(dict.fromkeys(corpus["name"] for corpus in store.manifest.corpora))
            raise SettingsError(f"--corpus {name}: {store.path} has no segment of it; it was made of {known}")
        chosen |= found
    return chosen


def by_source(store: Store, texts: Sequence[str]) -> BitMap:
    """Every segment with exactly this source sentence."""
    chosen = BitMap()
    for text in texts:
        wanted = " ".join(text.split())
        live = [number for number in store.suspects(hash_of(wanted)) if number not in store.removed]
        found = [number for number in live if store.segment(number).source == wanted]
        if not found:
            raise SettingsError(f"--source-text {text!r}: {store.path} has no segment with that source")
        chosen.update(found)
    return chosen
