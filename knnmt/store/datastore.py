"""The datastore: a folder of immutable files, and a manifest that lists the files of the current version.

STORE/manifest.json
STORE/parts/000000/{keys.npy, values.npy, segments.npy, positions.npy, hashes.npy, segments.parquet, part.json}
STORE/index.faiss, index-000002.faiss …
STORE/removed-000003.npy
STORE/versions/000001.json …

An entry is (key, value, segment, position): the decoder's state, the token that followed it, and where that was.
Entries and segments are numbered through all parts, in the order of the corpus. docs/store.md has the details.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.arrays import Array, starts
from knnmt.errors import StoreError
from knnmt.files import REMEDY, reading
from knnmt.layout.bitmaps import read_bitmap
from knnmt.layout.manifest import PARTS, Manifest, files_of, read_manifest
from knnmt.layout.older_formats import with_later_fields
from knnmt.layout.part_files import PartFiles, check_file
from knnmt.layout.records import COLUMNS, FileRecord, IndexRecord, PartRecord

INDEX = "index.faiss"


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A sentence pair of the memory."""

    segment: int
    source: str
    target: str
    corpus: str
    number: int  # line or unit of its file
    created: str
    metadata: dict[str, str]

    @property
    def moment(self) -> str:
        """`created`, to sort by: 12:00:00Z is before 12:00:00.5Z."""
        return self.created.removesuffix("Z")


@dataclass(frozen=True)
class Store:
    """A finished datastore, open for reading."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Open a store and its files, so that it stays readable even if the folder changes.

        Raises StoreError now, not later, if a file is missing or its size or first bytes differ from the manifest.
        """
        store = cls(Path(path), read_manifest(Path(path)))
        try:
            store.hold()
        except StoreError:
            if read_manifest(store.path) == store.manifest:
                raise
            return cls.open(path)  # it was changed in this very moment
        return store

    def hold(self) -> None:
        """Open all files now. A later change may delete them from the folder; open files stay readable."""
        self.part_files.hold()
        for index in self.manifest.indexes:
            for name, record in index.files().items():
                check_file(self.path / name, record)
        for name, record in (self.manifest.mixing.files if self.manifest.mixing else {}).items():
            check_file(self.path / name, record)
        if self.manifest.removed and self.manifest.removed.name and self.manifest.removed.file:
            check_file(self.path / self.manifest.removed.name, self.manifest.removed.file)
        _ = self.removed

    @cached_property
    def part_files(self) -> PartFiles:
        return PartFiles(self.path / PARTS, self.manifest.parts, self.manifest.model.dimension)

    def files(self) -> dict[Path, FileRecord]:
        """All files that the manifest lists."""
        return files_of(self.path, self.manifest)

    def index_file(self, index: IndexRecord) -> Path:
        return self.path / index.name

    @property
    def entries(self) -> int:
        """The number of entries, including those of removed segments."""
        return self.manifest.entries

    @property
    def live_entries(self) -> int:
        return self.entries - (self.manifest.removed.entries if self.manifest.removed else 0)

    @property
    def live_segments(self) -> int:
        return self.manifest.segments - (self.manifest.removed.segments if self.manifest.removed else 0)

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.files().values())

    @property
    def fingerprint(self) -> str:
        """A hash that identifies this content, for signatures."""
        sums = [record.sha256 for record in self.files().values()]
        return hashlib.sha256("".join(sums).encode()).hexdigest()[:12]

    def part_folder(self, part: PartRecord) -> Path:
        return self.path / PARTS / part.name

    @cached_property
    def first_entries(self) -> NDArray[np.int64]:
        """The number of each part's first entry."""
        return starts([part.entries for part in self.manifest.parts])

    @cached_property
    def first_segments(self) -> NDArray[np.int64]:
        return starts([part.segments for part in self.manifest.parts])

    @cached_property
    def removed(self) -> BitMap:
        """The numbers of removed segments."""
        record = self.manifest.removed
        if record is None:
            return BitMap()
        return (read_bitmap(self.path / record.name) if record.name else BitMap()) | BitMap(record.recent)

    @cached_property
    def has_keys(self) -> bool:
        return all(part.has_keys for part in self.manifest.parts)

    @property
    def values(self) -> NDArray[np.int32]:
        """All tokens [entries], read into memory part by part."""
        found = np.empty(self.entries, COLUMNS["values"])
        for first, column in zip(self.first_entries, self.columns("values"), strict=True):
            found[first : first + len(column)] = column
        return found

    def column(self, name: str, part: int) -> Array:
        """One column of a part, memory-mapped."""
        return self.part_files.column(part, name)

    def columns(self, name: str) -> Iterator[Array]:
        """One column of each part, memory-mapped. A file stays open only while its column is referenced."""
        return (self.column(name, part) for part in range(len(self.manifest.parts)))

    def gather(self, name: str, entries: NDArray[np.int64]) -> Array:
        """The rows of a column for the given entries, [entries, …]. Repeated entries are read once."""
        distinct, places = np.unique(entries, return_inverse=True)
        found: Array = self.rows(name, distinct)[places]
        return found

    def rows(self, name: str, entries: NDArray[np.int64]) -> Array:
        """Like `gather`, but repeated entries are read repeatedly."""
        parts = np.searchsorted(self.first_entries, entries, side="right") - 1
        return self.part_files.rows(name, parts, entries - self.first_entries[parts])

    def tokens(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of the given entries, in the same shape."""
        found: NDArray[np.int64] = self.rows("values", entries.reshape(-1)).astype(np.int64).reshape(entries.shape)
        return found

    def segment_numbers(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The segments that the entries belong to."""
        parts = np.searchsorted(self.first_entries, entries, side="right") - 1
        rows = self.gather("segments", entries).astype(np.int64)
        beyond = rows >= np.array([part.segments for part in self.manifest.parts])[parts]
        if beyond.any():
            file = self.part_files.path(int(parts[beyond][0]), "segments.npy")
            raise StoreError(f"{file}: damaged (it names segments that are not there); {REMEDY}")
        numbers: NDArray[np.int64] = rows + self.first_segments[parts]
        return numbers

    def entries_of(self, segments: NDArray[np.int64]) -> NDArray[np.int64]:
        """All entries of the given segments, which must be in ascending order."""
        found = [np.empty(0, np.int64)]
        bounds = np.searchsorted(segments, [*self.first_segments, self.manifest.segments])
        for part, (low, high) in enumerate(pairwise(bounds)):
            rows = segments[low:high] - self.first_segments[part]
            if len(rows):
                found.append(entries_of_rows(self.column("segments", part), rows) + self.first_entries[part])
        return np.concatenate(found)

    def table(self, part: int) -> Any:
        """The sentence pairs of a part."""
        return self.part_files.table(part)

    def segment(self, number: int) -> StoredSegment:
        """The sentence pair with this number."""
        part = int(np.searchsorted(self.first_segments, number, side="right")) - 1
        rows = self.pairs(part, np.array([number - int(self.first_segments[part])]))
        return stored_segment(number, rows[0], self.manifest.parts[part])

    def pairs(self, part: int, rows: NDArray[np.int64] | None = None) -> list[dict[str, Any]]:
        """Rows of a part's table of sentence pairs; by default all rows."""
        with reading(self.part_files.pairs_path(part)):
            table = self.table(part)
            found: list[dict[str, Any]] = (table if rows is None else table.take(rows)).to_pylist()
            return found

    def segments_at(self, numbers: NDArray[np.int64]) -> list[StoredSegment]:
        """The sentence pairs with these numbers, which must be in ascending order."""
        found = []
        bounds = np.searchsorted(numbers, [*self.first_segments, self.manifest.segments])
        for part, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                rows = self.pairs(part, numbers[low:high] - self.first_segments[part])
                record = self.manifest.parts[part]
                found += [stored_segment(int(n), row, record) for n, row in zip(numbers[low:high], rows, strict=True)]
        return found

    def suspects(self, hashed: int, *, pair: bool = False) -> list[int]:
        """Segments whose source (or whole pair) has this hash, in ascending order, removed ones included.

        Different texts can have the same hash, so the caller must compare the texts.
        """
        wanted = np.array([hashed], np.uint64)
        rows = [
            self.part_files.rows_with(part, wanted, pair=pair) + first for part, first in enumerate(self.first_segments)
        ]
        return [int(number) for number in np.concatenate(rows)]

    def all_segments(self) -> Iterator[StoredSegment]:
        """All sentence pairs in order, without removed ones."""
        gone = self.removed
        for part, record in enumerate(self.manifest.parts):
            number = int(self.first_segments[part])
            for row in self.pairs(part):
                if number not in gone:
                    yield stored_segment(number, row, record)
                number += 1


def stored_segment(number: int, row: dict[str, Any], part: PartRecord) -> StoredSegment:
    row = with_later_fields(row)
    metadata = dict(row.pop("metadata"))
    return StoredSegment(segment=number, **row | {"created": row["created"] or part.created}, metadata=metadata)


def entries_of_rows(column: Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions of some values in a column in ascending order, as they are."""
    wanted = rows.astype(column.dtype)
    firsts = np.searchsorted(column, wanted)
    lengths = np.searchsorted(column, wanted, side="right") - firsts
    before = np.cumsum(lengths) - lengths
    return np.repeat(firsts - before, lengths) + np.arange(lengths.sum())


def runs_of(column: Array, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The run of each of some values in a column in ascending order."""
    firsts, lasts = np.searchsorted(column, rows), np.searchsorted(column, rows, side="right")
    return [np.arange(first, last) for first, last in zip(firsts, lasts, strict=True)]


def check_same_model(stores: Sequence[Store]) -> None:
    if not stores:
        raise StoreError("--store is missing: retrieval needs at least one datastore")
    first = stores[0].manifest.model
    for store in stores[1:]:
        other = store.manifest.model
        if (other.fingerprint, other.key_site) != (first.fingerprint, first.key_site):
            raise StoreError(
                f"{store.path}: made with another model ({other.name}) than {stores[0].path} ({first.name}); "
                "stores that are used together must be made with the same one"
            )
        if other.target_lang != first.target_lang:
            raise StoreError(
                f"{store.path}: translates into {other.target_lang}, but {stores[0].path} into {first.target_lang}"
            )
