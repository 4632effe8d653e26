"""What a store is now: the records of its manifest, and of every file that it names. docs/store.md has the details."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from knnmt.errors import StoreError
from knnmt.files import sha256_of
from knnmt.search.file_names import trained_name

FORMAT = 2
MANIFEST = "manifest.json"
BUILDING = "building.json"
PARTS = "parts"


def check_name(name: Any) -> str:
    """A manifest may come from a stranger: every name in it must stay inside the store's folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\:\0"):
        raise ValueError(f"{name!r} is not the plain name of a file")
    return name


def check_types(record: Any) -> None:
    """Raise where a field of a record is not what its type says, as far as plain types go."""
    for name, kind in get_type_hints(type(record)).items():
        allowed = PLAIN_KINDS.get(str(kind).removeprefix("<class '").removesuffix("'>"))
        value = getattr(record, name)
        if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed)):
            raise TypeError(f"{name} is {value!r}")
        if isinstance(value, int) and not 0 <= value < 1 << 48:
            raise ValueError(f"{name} is {value}")


PLAIN_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "str": (str,),
    "str | None": (str, type(None)),
    "dict[str, typing.Any] | None": (dict, type(None)),
    "dict[str, int]": (dict,),
    "dict[str, float]": (dict,),
}


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was written: what `verify` and every opening compare with."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_types(self)

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
    created: str  # the creation time of segments that have none of their own
    files: dict[str, FileRecord]

    @property
    def has_keys(self) -> bool:
        """Whether the keys are here, or only their codes in the index."""
        return "keys.npy" in self.files

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "PartRecord":
        files = {check_name(name): file_record(file) for name, file in record["files"].items()}
        return cls(**known_fields(cls, record) | {"files": files})

    def __post_init__(self) -> None:
        check_name(self.name)
        check_types(self)


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

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """One index, over a run of parts that adjoin; its ids begin at 0."""

    name: str
    entries: int
    factory: str
    nprobe: int | None  # clusters searched, where the index has clusters
    recall: dict[str, float]  # {"k", "queries", "recall"}: measured against exact search
    file: FileRecord
    trained: FileRecord | None = None  # what it learned, without entries, where that cannot be read from its own file

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "IndexRecord":
        trained = record.get("trained")
        return cls(**known_fields(cls, with_file(record)) | {"trained": trained and file_record(trained)})

    def __post_init__(self) -> None:
        check_name(self.name)
        check_types(self)

    @property
    def trained_name(self) -> str:
        return trained_name(self.name)


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """The segments that are no longer part of the memory: their numbers, ascending, in a file."""

    name: str
    segments: int
    entries: int
    file: FileRecord

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "RemovedRecord":
        return cls(**known_fields(cls, with_file(record)))

    def __post_init__(self) -> None:
        check_name(self.name)
        check_types(self)


def with_file(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"file": file_record(record["file"])}


def file_record(record: dict[str, Any]) -> FileRecord:
    return FileRecord(**known_fields(FileRecord, record))


def known_fields(kind: Any, record: dict[str, Any]) -> dict[str, Any]:
    """What this version knows of a record; a later one may have added to it."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in record.items() if name in names}


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
    version: int = 1
    oldest: int = 1  # the first version that may be gone back to
    format: int = FORMAT
    unknown: dict[str, Any] = field(default_factory=dict)  # fields that a later version wrote: kept as they are

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("entries", "segments"):
            total = sum(getattr(part, name) for part in self.parts)
            if getattr(self, name) != total:
                raise ValueError(f"{name} is {getattr(self, name)}, but its parts have {total}")

    @property
    def index(self) -> IndexRecord:
        """The first index: the one that was trained."""
        return self.indexes[0]

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        del record["unknown"]
        return self.unknown | record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Manifest":
        removed = record["removed"]
        known = known_fields(cls, record)
        return cls(
            **{
                **known,
                "unknown": {name: value for name, value in record.items() if name not in known},
                "model": ModelRecord(**known_fields(ModelRecord, record["model"])),
                "parts": [PartRecord.from_json(dict(part)) for part in record["parts"]],
                "indexes": [IndexRecord.from_json(index) for index in record["indexes"]],
                "removed": removed and RemovedRecord.from_json(removed),
            }
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
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] > FORMAT:
            raise StoreError(f"{file.parent}: written by a newer knnmt ({record['knnmt']}); please upgrade")
        if record["format"] < FORMAT:
            raise StoreError(f"{file.parent}: written by an older knnmt ({record['knnmt']}); build the store again")
        return Manifest.from_json(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{file}: damaged ({error}); restore it from a copy or build again") from error


def files_of(path: Path, manifest: Manifest) -> dict[Path, FileRecord]:
    """Every file that a manifest names."""
    files = {path / PARTS / part.name / name: record for part in manifest.parts for name, record in part.files.items()}
    files |= {path / index.name: index.file for index in manifest.indexes}
    files |= {path / index.trained_name: index.trained for index in manifest.indexes if index.trained}
    return files | ({path / manifest.removed.name: manifest.removed.file} if manifest.removed else {})
