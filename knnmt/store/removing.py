"""Taking sentence pairs out of a store: they stay on disk until it is compacted, but are never found again."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knnmt.errors import SettingsError
from knnmt.files import write_durably
from knnmt.store.datastore import Store
from knnmt.store.filters import Condition, live_segments, matching_segments, segments_where
from knnmt.store.manifest import FileRecord, RemovedRecord
from knnmt.store.parts import hash_of
from knnmt.store.versions import changing, commit


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
        chosen = np.zeros(store.manifest.segments, bool)
        chosen |= by_number(store, segments)
        chosen |= by_corpus(store, corpora)
        chosen |= by_source(store, source_texts)
        chosen |= by_conditions(store, where)
        gone = np.flatnonzero(chosen)
        change = f"removed {len(gone):,} segment{'' if len(gone) == 1 else 's'}"
        return commit(store, change, removed=write_removed(store, gone)), len(gone)


def write_removed(store: Store, more: Iterable[int]) -> RemovedRecord:
    """The segments that are out from the next version on: those that were, and more."""
    removed = np.union1d(store.removed, np.fromiter(more, np.int64))
    name = f"removed-{store.manifest.version + 1:06d}.npy"
    write_durably(store.path / name, lambda file: np.save(file, removed))
    return RemovedRecord(name, len(removed), len(store.entries_of(removed)), FileRecord.of(store.path / name))


def by_number(store: Store, numbers: Sequence[int]) -> NDArray[np.bool_]:
    live, chosen = live_segments(store), np.zeros(store.manifest.segments, bool)
    for number in numbers:
        if not 0 <= number < len(live) or not live[number]:
            raise SettingsError(f"--segment {number}: {store.path} has no such segment")
        chosen[number] = True
    return chosen


def by_corpus(store: Store, names: Sequence[str]) -> NDArray[np.bool_]:
    chosen = np.zeros(store.manifest.segments, bool)
    for name in names:
        found = live_segments(store) & matching_segments(store, [Condition("corpus", "=", name)])
        if not found.any():
            known = ", ".join(dict.fromkeys(corpus["name"] for corpus in store.manifest.corpora))
            raise SettingsError(f"--corpus {name}: {store.path} has no segment of it; it was made of {known}")
        chosen |= found
    return chosen


def by_source(store: Store, texts: Sequence[str]) -> NDArray[np.bool_]:
    """Every segment with exactly this source sentence."""
    chosen = np.zeros(store.manifest.segments, bool)
    for text in texts:
        wanted = " ".join(text.split())
        found = [number for number in suspects(store, wanted) if store.segment(number).source == wanted]
        if not found:
            raise SettingsError(f"--source-text {text!r}: {store.path} has no segment with that source")
        chosen[found] = True
    return chosen


def suspects(store: Store, source: str) -> list[int]:
    """Live segments whose source has the hash of a sentence."""
    columns = [np.asarray(column)[:, 0] for column in store.columns("hashes")]
    found = np.flatnonzero(np.concatenate(columns) == np.uint64(hash_of(source)))
    return [int(number) for number in found if live_segments(store)[number]]


def by_conditions(store: Store, where: Sequence[str]) -> NDArray[np.bool_]:
    return segments_where(store, where) if where else np.zeros(store.manifest.segments, bool)
