"""The manifest: the current state of a store, with the names of all its files. docs/store.md has the details."""

import json
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from knnmt.errors import StoreError
from knnmt.layout.lru import LastUsed
from knnmt.layout.older_formats import as_second
from knnmt.layout.records import (
    FileRecord,
    IndexRecord,
    MixingRecord,
    ModelRecord,
    PartRecord,
    RemovedRecord,
    as_json,
    check_numbers,
    check_types,
    read_record,
)

FORMAT = 3
MANIFEST = "manifest.json"
BUILDING = "building.json"
PARTS = "parts"
MANIFESTS = LastUsed(16)  # as they were read, by their texts
LINES = LastUsed(1024)  # of parts and indexes, by the record's id
SETTINGS = ("k", "temperature", "weight", "certain")  # numbers that tuning chooses


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything known about a store, as kept in manifest.json."""

    model: ModelRecord
    corpora: list[dict[str, Any]]
    entries: int  # of all parts, the removed ones too
    segments: int
    skipped: dict[str, int]
    parts: list[PartRecord]
    indexes: list[IndexRecord]
    created: str
    changed: str
    change: str  # what made this version of the one before
    knnmt: str
    removed: RemovedRecord | None = None
    tuned: dict[str, Any] | None = None
    downsampling: dict[str, Any] | None = None  # {"cap", "dropped"}: entries of one token at most; see downsampling.py
    mixing: MixingRecord | None = None
    version: int = 1
    oldest: int = 1  # the first version that may be gone back to
    format: int = FORMAT
    unknown: dict[str, Any] = field(default_factory=dict)  # fields that a later version wrote: kept as they are

    def __post_init__(self) -> None:
        check_types(self)
        check_numbers("skipped", self.skipped)
        check_numbers("tuned", {name: value for name, value in (self.tuned or {}).items() if name in SETTINGS})
        if not all(isinstance(corpus, dict) and isinstance(corpus.get("name"), str) for corpus in self.corpora):
            raise ValueError("a corpus has no name")
        self.check_sums()

    def check_sums(self) -> None:
        """Raise unless the totals agree with the parts and indexes."""
        counted = {"entries": self.parts, "segments": self.parts}
        for name, records in counted.items():
            total = sum(getattr(record, name) for record in records)
            if getattr(self, name) != total:
                raise ValueError(f"{name} is {getattr(self, name)}, but its parts have {total}")
        if not self.indexes or sum(index.entries for index in self.indexes) != self.entries:
            raise ValueError(f"entries is {self.entries}, but not of its indexes")
        out = self.removed
        if out and (out.segments > self.segments or out.entries > self.entries):
            raise ValueError("more is removed than there is")

    @property
    def index(self) -> IndexRecord:
        """The first index: the one that was trained."""
        return self.indexes[0]

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = as_json(self)
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Manifest":
        removed, mixing = record["removed"], record.get("mixing")
        return read_record(
            cls,
            record,
            model=read_record(ModelRecord, record["model"]),
            parts=[PartRecord.from_json(part) for part in record["parts"]],
            indexes=[IndexRecord.from_json(index) for index in record["indexes"]],
            removed=None if removed is None else RemovedRecord.from_json(removed),
            mixing=None if mixing is None else MixingRecord.from_json(mixing),
        )


def read_manifest(path: Path) -> Manifest:
    """The manifest of a store, or an error that says what the folder is instead."""
    file = path / MANIFEST
    if not file.is_file():
        if (path / BUILDING).is_file():
            raise StoreError(f"{path}: its build was not finished; run the same build with --resume")
        raise StoreError(f"{path}: not a datastore (no {MANIFEST} there)")
    return manifest_in(file)


def manifest_in(file: Path) -> Manifest:
    """A manifest, or one of its earlier versions."""
    try:
        return parsed(file.read_text(encoding="utf-8"))
    except NewerError as error:
        raise StoreError(f"{file.parent}: written by a newer knnmt ({error}); please upgrade") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{file}: damaged ({error}); restore it from a copy or build again") from error


class NewerError(Exception):
    """A manifest of a later format; the message names the knnmt version that wrote it."""


def parsed(text: str) -> Manifest:
    """A manifest from its text, cached, because a change reads the same manifest several times."""
    return MANIFESTS.get(text, lambda: newly_parsed(text))


def newly_parsed(text: str) -> Manifest:
    record = json.loads(text)
    if record["format"] > FORMAT:
        raise NewerError(record["knnmt"])
    return Manifest.from_json(as_second(record) if record["format"] == 1 else record)


def as_text(manifest: Manifest) -> str:
    """The text of a manifest file: a line for each field, and for each record in a list."""
    values = {one.name: getattr(manifest, one.name) for one in fields(manifest) if one.name != "unknown"}
    told = (f" {json.dumps(name)}: {lines_of(value)}" for name, value in (manifest.unknown | values).items())
    text = "{\n" + ",\n".join(told) + "\n}\n"
    MANIFESTS.get(text, lambda: manifest)  # the next change of this process need not parse it
    return text


def lines_of(value: Any) -> str:
    if not (isinstance(value, list) and value and (isinstance(value[0], dict) or is_dataclass(value[0]))):
        return json.dumps(as_json(value), ensure_ascii=False)
    return "[\n  " + ",\n  ".join(map(line_of, value)) + "\n ]"


def line_of(record: Any) -> str:
    """The line of a record. A change leaves nearly all parts and indexes as they are, so their lines are kept."""
    if not isinstance(record, PartRecord | IndexRecord):
        return json.dumps(as_json(record), ensure_ascii=False)
    kept: tuple[Any, str] = LINES.get(id(record), lambda: (record, json.dumps(as_json(record), ensure_ascii=False)))
    return kept[1]  # the record is kept too: no other one gets its id


def files_of(path: Path, manifest: Manifest) -> dict[Path, FileRecord]:
    """Every file that a manifest names."""
    files = {path / PARTS / part.name / name: record for part in manifest.parts for name, record in part.files.items()}
    files |= {path / name: record for index in manifest.indexes for name, record in index.files().items()}
    files |= {path / name: record for name, record in (manifest.mixing.files if manifest.mixing else {}).items()}
    removed = manifest.removed
    return files | ({path / removed.name: removed.file} if removed and removed.name and removed.file else {})
