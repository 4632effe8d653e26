"""The datastore: a folder of immutable files, and a manifest that names those which are the store now.

STORE/manifest.json
STORE/parts/000000/{keys.npy, values.npy, segments.npy, positions.npy, hashes.npy, segments.parquet, part.json}
STORE/index.faiss, index-000002.faiss …
STORE/removed-000003.npy
STORE/versions/000001.json …

An entry is (key, value, segment, position): the decoder's state, the token that followed it, and where that was.
Entries and segments are numbered through all parts, in the order of the corpus. docs/store.md has the details.
"""

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array, starts
from knnmt.errors import StoreError
from knnmt.store.manifest import PARTS as PARTS  # these with `as`: modules that look for them here find them
from knnmt.store.manifest import FileRecord as FileRecord
from knnmt.store.manifest import IndexRecord as IndexRecord
from knnmt.store.manifest import Manifest, files_of
from knnmt.store.manifest import ModelRecord as ModelRecord
from knnmt.store.manifest import PartRecord as PartRecord
from knnmt.store.manifest import read_manifest as read_manifest
from knnmt.store.rows import RowReader

INDEX = "index.faiss"
HASHES = "hashes"
COLUMNS = {"keys": np.float16, "values": np.int32, "segments": np.uint32, "positions": np.uint16}
FILES_OPEN_A_PART = 7
FILES_OPEN_OTHERWISE = 512
LARGE = 64 << 20  # bytes of a column
PARTS_IN_MEMORY = 64  # tables of sentence pairs that a reader keeps


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


@dataclass(frozen=True)
class Store:
    """A finished datastore, open for reading."""

    path: Path
    manifest: Manifest
    _columns: dict[str, list[Array]] = field(default_factory=dict, repr=False, compare=False)
    _files: dict[tuple[str, int], BinaryIO] = field(default_factory=dict, repr=False, compare=False)
    _readers: dict[str, RowReader | None] = field(default_factory=dict, repr=False, compare=False)
    _pairs: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)
    _tables: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Open a store; files that are missing or have another size than recorded are an error here, not later."""
        store = cls(Path(path), read_manifest(Path(path)))
        try:
            store.check_files()
        except StoreError:
            if read_manifest(store.path) == store.manifest:
                raise
            return cls.open(path)  # it was changed in this very moment
        return store

    def check_files(self) -> None:
        for file, record in self.files().items():
            if not file.is_file():
                raise StoreError(f"{file}: missing; restore it from a copy or build the store again")
            if file.stat().st_size != record.bytes:
                raise StoreError(
                    f"{file}: has {file.stat().st_size:,} bytes instead of {record.bytes:,}; "
                    "restore it from a copy or build the store again"
                )

    def files(self) -> dict[Path, FileRecord]:
        """Every file that the manifest names."""
        return files_of(self.path, self.manifest)

    def index_file(self, index: IndexRecord) -> Path:
        return self.path / index.name

    @property
    def entries(self) -> int:
        """All entry numbers, those of removed segments among them."""
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
        """A name for exactly this content, for signatures."""
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
    def values(self) -> NDArray[np.int32]:
        """All tokens [entries]: four bytes an entry, held in memory because every step reads thousands of them."""
        tokens = np.concatenate([np.asarray(column) for column in self.columns("values")])
        give_back_pages(self.columns("values"))
        return tokens

    @cached_property
    def removed(self) -> NDArray[np.int64]:
        """The numbers of removed segments, ascending."""
        if self.manifest.removed is None:
            return np.empty(0, np.int64)
        return read_array(self.path / self.manifest.removed.name).astype(np.int64)

    def columns(self, name: str) -> list[Array]:
        """One column of each part, memory-mapped."""
        if name not in self._columns:
            self._columns[name] = [map_column(self.part_folder(part), name) for part in self.manifest.parts]
        return self._columns[name]

    def hold(self) -> None:
        """Open every file now: a later change may take it out of the folder, but not from a reader that has it open."""
        allow_open_files(len(self.manifest.parts) * FILES_OPEN_A_PART)
        for name in COLUMNS:
            if name != "keys" or self.has_keys:
                self.columns(name)
        for part in range(len(self.manifest.parts)):
            self.open_file("segments.parquet", part)
            if self.has_keys:
                self.open_file("keys.npy", part)
        _ = self.removed

    @cached_property
    def has_keys(self) -> bool:
        return all(part.has_keys for part in self.manifest.parts)

    def gather(self, name: str, entries: NDArray[np.int64]) -> Array:
        """A column's rows for the given entries, [entries, …]; one that comes again is read once."""
        distinct, places = np.unique(entries, return_inverse=True)
        found: Array = self.rows(name, distinct)[places]
        return found

    def rows(self, name: str, entries: NDArray[np.int64]) -> Array:
        """The same, each read as often as it comes."""
        parts = np.searchsorted(self.first_entries, entries, side="right") - 1
        within = entries - self.first_entries[parts]
        reader = self.row_reader(name)
        return rows_of(self.columns(name), parts, within) if reader is None else reader.read(parts, within)

    def row_reader(self, name: str) -> RowReader | None:
        """What reads the rows of a column that is too large to be touched."""
        if name not in self._readers:
            columns = self.columns(name)
            large = hasattr(os, "pread") and sum(column.nbytes for column in columns) > LARGE
            files = [self.open_file(f"{name}.npy", part) for part in range(len(columns))] if large else []
            self._readers[name] = RowReader(columns, files) if large else None
        return self._readers[name]

    def open_file(self, name: str, part: int) -> BinaryIO:
        if (name, part) not in self._files:
            self._files[name, part] = (self.part_folder(self.manifest.parts[part]) / name).open("rb")
        return self._files[name, part]

    def segment_numbers(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The segments that entries belong to."""
        parts = np.searchsorted(self.first_entries, entries, side="right") - 1
        numbers: NDArray[np.int64] = self.gather("segments", entries) + self.first_segments[parts]
        return numbers

    def entries_of(self, segments: NDArray[np.int64]) -> NDArray[np.int64]:
        """All entries of the given segments, which are in ascending order."""
        found = [np.empty(0, np.int64)]
        bounds = np.searchsorted(segments, [*self.first_segments, self.manifest.segments])
        for part, (low, high) in enumerate(pairwise(bounds)):
            rows = segments[low:high] - self.first_segments[part]
            found += [run + self.first_entries[part] for run in runs_of(self.columns("segments")[part], rows)]
        return np.concatenate(found)

    def pairs_file(self, part: int) -> Any:
        """The open file of a part's sentence pairs."""
        if part not in self._pairs:
            from pyarrow import ArrowException, parquet  # 40 MB that translating does without

            file = self.open_file("segments.parquet", part)
            try:
                self._pairs[part] = parquet.ParquetFile(file)
            except ArrowException as error:
                raise StoreError(f"{file.name}: damaged ({error})") from error
        return self._pairs[part]

    def table(self, part: int) -> Any:
        """The sentence pairs of a part."""
        if part not in self._tables:
            if len(self._tables) >= PARTS_IN_MEMORY:
                self._tables.pop(next(iter(self._tables)))
            self._tables[part] = self.pairs_file(part).read()
        return self._tables[part]

    def segment(self, number: int) -> StoredSegment:
        """The sentence pair of that number."""
        part = int(np.searchsorted(self.first_segments, number, side="right")) - 1
        row = self.table(part).slice(number - int(self.first_segments[part]), 1).to_pylist()[0]
        return stored_segment(number, row, self.manifest.parts[part])

    def segments_at(self, numbers: NDArray[np.int64]) -> list[StoredSegment]:
        """The sentence pairs of several numbers, which are in ascending order."""
        found = []
        bounds = np.searchsorted(numbers, [*self.first_segments, self.manifest.segments])
        for part, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                rows = self.table(part).take(numbers[low:high] - self.first_segments[part]).to_pylist()
                record = self.manifest.parts[part]
                found += [stored_segment(int(n), row, record) for n, row in zip(numbers[low:high], rows, strict=True)]
        return found

    def all_segments(self) -> Iterator[StoredSegment]:
        """Every sentence pair of the memory, in order; removed ones are left out."""
        gone = set(self.removed.tolist())
        for part, record in enumerate(self.manifest.parts):
            number = int(self.first_segments[part])
            for row in self.table(part).to_pylist():
                if number not in gone:
                    yield stored_segment(number, row, record)
                number += 1


def stored_segment(number: int, row: dict[str, Any], part: PartRecord) -> StoredSegment:
    metadata = dict(row.pop("metadata"))
    return StoredSegment(segment=number, **row | {"created": row["created"] or part.created}, metadata=metadata)


def runs_of(column: Array, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Where each of some values stands in a column that is in ascending order."""
    firsts, lasts = np.searchsorted(column, rows), np.searchsorted(column, rows, side="right")
    return [np.arange(first, last) for first, last in zip(firsts, lasts, strict=True)]


def allow_open_files(wanted: int) -> None:
    """Ask the system for as many open files as a large store needs, where it has a limit that can be raised."""
    try:
        import resource
    except ImportError:  # not on every system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_OPEN_OTHERWISE
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )


def give_back_pages(columns: list[Array]) -> None:
    for column in columns:
        mapped = getattr(column, "_mmap", None)
        if mapped is not None and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


def rows_of(columns: list[Array], parts: NDArray[np.int64], rows: NDArray[np.int64]) -> Array:
    """Row `rows[i]` of the column of part `parts[i]`, for every i."""
    found = np.empty((len(rows), *columns[0].shape[1:]), columns[0].dtype)
    for part in np.unique(parts):
        here = parts == part
        found[here] = columns[part][rows[here]]
    return found


def map_column(folder: Path, name: str) -> Array:
    """A column of a part, memory-mapped."""
    return read_array(folder / f"{name}.npy", mapped=True)


def read_array(file: Path, *, mapped: bool = False) -> Array:
    """An array on disk; no pickle is ever read."""
    try:
        return np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise StoreError(f"{file}: damaged ({error})") from error


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
