"""The datastore: a folder of immutable parts, an index, and a manifest that is written last.

STORE/manifest.json
STORE/parts/000000/{keys.npy, values.npy, segments.npy, positions.npy, segments.parquet, part.json}
STORE/index.faiss

An entry is (key, value, segment, position): the decoder's state, the token that followed it, and where that was.
Entries and segments are numbered through all parts, in the order of the corpus. docs/store.md has the details.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from knnmt.errors import StoreError
from knnmt.files import sha256_of

FORMAT = 1
MANIFEST = "manifest.json"
BUILDING = "building.json"
INDEX = "index.faiss"
PARTS = "parts"
COLUMNS = {"keys": np.float16, "values": np.int32, "segments": np.uint32, "positions": np.uint16}
PAGES_HELD = 16_384  # of 4 KB
PARTS_IN_MEMORY = 64  # tables of sentence pairs kept open by a reader that explains

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was written: what `verify` and every opening compare with."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileRecord":
        return cls(path.stat().st_size, sha256_of(path))


@dataclass(frozen=True, slots=True)
class PartRecord:
    name: str
    entries: int
    segments: int
    consumed: int  # segments of the corpus read up to the end of this part, those left out too
    skipped: dict[str, int]  # and how many of them were left out, by reason
    files: dict[str, FileRecord]

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "PartRecord":
        files = {name: FileRecord(**file) for name, file in record.pop("files").items()}
        return cls(**record, files=files)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What the keys were made with."""

    name: str
    type: str
    fingerprint: str
    dimension: int
    key_site: str
    source_lang: str | None
    target_lang: str | None
    source_prefix: str


@dataclass(frozen=True, slots=True)
class IndexRecord:
    factory: str
    nprobe: int | None  # clusters searched, where the index has clusters
    recall: dict[str, float]  # {"k", "queries", "recall"}: measured against exact search
    file: FileRecord


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything known about a store, as kept in manifest.json."""

    model: ModelRecord
    corpora: list[dict[str, Any]]
    entries: int
    segments: int
    skipped: dict[str, int]
    parts: list[PartRecord]
    index: IndexRecord
    created: str
    knnmt: str
    tuned: dict[str, Any] | None = None
    downsampling: dict[str, Any] | None = None  # {"cap", "dropped"}: entries of one token at most; left out for it
    version: int = 1
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Manifest":
        index = dict(record.pop("index"))
        return cls(
            **{
                **record,
                "model": ModelRecord(**record["model"]),
                "parts": [PartRecord.from_json(dict(part)) for part in record["parts"]],
                "index": IndexRecord(**{**index, "file": FileRecord(**index["file"])}),
            }
        )


def read_manifest(path: Path) -> Manifest:
    """The manifest of a store, or an error that says what the folder is instead."""
    file = path / MANIFEST
    if not file.is_file():
        if (path / BUILDING).is_file():
            raise StoreError(f"{path}: its build was not finished; run the same build with --resume")
        raise StoreError(f"{path}: not a datastore (no {MANIFEST} there)")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] > FORMAT:
            raise StoreError(f"{path}: written by a newer knnmt ({record['knnmt']}); please upgrade")
        return Manifest.from_json(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{file}: damaged ({error}); restore it from a copy or build again") from error


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A sentence pair of the memory."""

    segment: int
    source: str
    target: str
    corpus: str
    number: int


@dataclass(frozen=True)
class Store:
    """A finished datastore, open for reading."""

    path: Path
    manifest: Manifest
    _columns: dict[str, list[Array]] = field(default_factory=dict, repr=False, compare=False)
    _touched: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    _tables: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Open a store; files that are missing or have another size than recorded are an error here, not later."""
        store = cls(Path(path), read_manifest(Path(path)))
        for file, record in store.files().items():
            if not file.is_file():
                raise StoreError(f"{file}: missing; restore it from a copy or build the store again")
            if file.stat().st_size != record.bytes:
                raise StoreError(
                    f"{file}: has {file.stat().st_size:,} bytes instead of {record.bytes:,}; "
                    "restore it from a copy or build the store again"
                )
        return store

    def files(self) -> dict[Path, FileRecord]:
        """Every file that the manifest names."""
        parts = {
            self.part_folder(part) / name: record for part in self.manifest.parts for name, record in part.files.items()
        }
        return parts | {self.index_file: self.manifest.index.file}

    @property
    def index_file(self) -> Path:
        return self.path / INDEX

    @property
    def entries(self) -> int:
        return self.manifest.entries

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.files().values())

    @property
    def fingerprint(self) -> str:
        """A name for exactly this content, for signatures."""
        sums = [file.sha256 for part in self.manifest.parts for file in part.files.values()]
        return hashlib.sha256("".join([*sums, self.manifest.index.file.sha256]).encode()).hexdigest()[:12]

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
        return np.concatenate([np.asarray(column) for column in self.columns("values")])

    def columns(self, name: str) -> list[Array]:
        """One column of each part, memory-mapped."""
        if name not in self._columns:
            self._columns[name] = [map_column(self.part_folder(part), name) for part in self.manifest.parts]
        return self._columns[name]

    def gather(self, name: str, entries: NDArray[np.int64]) -> Array:
        """A column's rows for the given entries, [entries, …].

        Random rows touch a page each. Pages that were read are given back from time to time, so that a long run on a
        large store does not seem to hold all of it; the system keeps them for as long as it has room.
        """
        columns = self.columns(name)
        self._touched[name] = self._touched.get(name, 0) + len(entries)
        if self._touched[name] > PAGES_HELD:
            self._columns.pop(name)
            self._touched[name] = 0
        rows = np.empty((len(entries), *columns[0].shape[1:]), columns[0].dtype)
        parts = np.searchsorted(self.first_entries, entries, side="right") - 1
        for part in np.unique(parts):
            here = parts == part
            rows[here] = columns[part][entries[here] - self.first_entries[part]]
        return rows

    def segment(self, number: int) -> StoredSegment:
        """The sentence pair of that number."""
        part = int(np.searchsorted(self.first_segments, number, side="right")) - 1
        if part not in self._tables:
            if len(self._tables) >= PARTS_IN_MEMORY:
                self._tables.clear()
            self._tables[part] = parquet.read_table(self.part_folder(self.manifest.parts[part]) / "segments.parquet")
        row = self._tables[part].slice(number - int(self.first_segments[part]), 1).to_pylist()[0]
        return StoredSegment(**row)


def starts(lengths: list[int]) -> NDArray[np.int64]:
    """Where each of several adjoining stretches begins."""
    return np.cumsum([0, *lengths[:-1]], dtype=np.int64)


def map_column(folder: Path, name: str) -> Array:
    """A column of a part, memory-mapped; no pickle is ever read."""
    file = folder / f"{name}.npy"
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise StoreError(f"{file}: damaged ({error})") from error
