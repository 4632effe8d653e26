"""The records of a manifest: model, parts, indexes, removed segments, and the file that each of them names.

A manifest may come from a stranger or from a later version. So every record is checked when it is read, and fields that
this version does not know are kept as they are.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from knnmt.files import lists_name, sha256_of, trained_name
from knnmt.layout.packed_parts import PACKED

HEAD = 4096  # bytes at the beginning of a file, which every opening compares
MOST = 1 << 48  # no count of anything is higher
COLUMNS = {"keys": np.float16, "values": np.int32, "segments": np.uint32, "positions": np.uint16}
HASHES = "hashes"
KEYS = "keys"  # the factory of an index that is no more than the keys of its parts
CHANGED = 1.5  # times larger or smaller: mixing is fitted anew
NPY_HEADER = 1 << 16  # bytes at most
PLAIN_KINDS: dict[Any, tuple[type, ...]] = {
    int: (int,),
    str: (str,),
    int | None: (int, type(None)),
    str | None: (str, type(None)),
    dict[str, Any] | None: (dict, type(None)),
    dict[str, int]: (dict,),
    dict[str, float]: (dict,),
    list[dict[str, Any]]: (list,),
    list[int]: (list,),
}

Kind = TypeVar("Kind")


def check_name(name: Any) -> str:
    """Raise unless a name is a plain file name: a manifest may come from a stranger, and its names must stay inside
    the store.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\:\0"):
        raise ValueError(f"{name!r} is not the plain name of a file")
    return name


def check_types(record: Any) -> None:
    """Raise if a field of a record does not have its type, for plain types."""
    kind: Any = type(record)
    for name, allowed in plain_fields(kind):
        value = getattr(record, name)
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}")
        if isinstance(value, int) and not 0 <= value < MOST:
            raise ValueError(f"{name} is {value}")


@cache
def plain_fields(kind: Any) -> list[tuple[str, tuple[type, ...]]]:
    hints = get_type_hints(kind)
    return [(name, PLAIN_KINDS[hint]) for name, hint in hints.items() if hint in PLAIN_KINDS]


def check_numbers(name: str, numbers: dict[str, Any]) -> None:
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} has {key} {value!r}")


def summed(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {reason: left.get(reason, 0) + right.get(reason, 0) for reason in {**left, **right}}


def read_record(kind: Callable[..., Kind], record: Any, **read: Any) -> Kind:
    """A record from JSON; `read` has the fields that are already read."""
    if not isinstance(record, dict):
        raise TypeError(f"{record!r} is no record")
    names = {one.name for one in fields(kind)} - {"unknown"}  # type: ignore[arg-type]
    known = {name: value for name, value in record.items() if name in names}
    unknown = {name: value for name, value in record.items() if name not in names}
    return kind(**known | read, unknown=unknown)


def as_json(value: Any) -> Any:
    """The JSON that `read_record` reads. Fields of a later version are written back."""
    if is_dataclass(value):
        known = {one.name: as_json(getattr(value, one.name)) for one in fields(value) if one.name != "unknown"}
        return getattr(value, "unknown", {}) | known
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and checksums of a file as it was written; opening and `verify` compare with them."""

    bytes: int
    sha256: str
    head: int | None = None  # CRC-32 of its first 4 KB; None in stores of earlier versions
    unknown: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)

    @classmethod
    def of(cls, path: Path) -> "FileRecord":
        with path.open("rb") as file:
            head = checksum_of_head(file.read(HEAD))
        return cls(path.stat().st_size, sha256_of(path), head)


def checksum_of_head(begin: bytes) -> int:
    return zlib.crc32(begin[:HEAD])


@dataclass(frozen=True, slots=True)
class PartRecord:
    name: str
    entries: int
    segments: int
    consumed: int  # segments of the corpus read up to the end of this part, those left out too
    skipped: dict[str, int]  # and how many of them were left out, by reason
    created: str  # the creation time of segments that have none of their own
    files: dict[str, FileRecord]
    origin: int = 0  # what the rows in its column of segments count from; above 0 only in the first format
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def has_keys(self) -> bool:
        """Whether the keys are here, or only their codes in the index."""
        return "keys.npy" in self.files or PACKED in self.files

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "PartRecord":
        files = {check_name(name): read_record(FileRecord, file) for name, file in record["files"].items()}
        part = read_record(cls, record, files=files)
        check_sizes(part)
        return part

    def __post_init__(self) -> None:
        check_name(self.name)
        check_types(self)
        check_numbers("skipped", self.skipped)


def check_sizes(part: PartRecord) -> None:
    """Check that the counts fit the sizes of the files."""
    rows = {name: part.entries * np.dtype(kind).itemsize for name, kind in COLUMNS.items() if name != "keys"}
    for name, content in (rows | {HASHES: part.segments * 16}).items():
        file = part.files.get(f"{name}.npy")
        if file and not content <= file.bytes <= content + NPY_HEADER:
            raise ValueError(f"part {part.name}: {file.bytes} bytes of {name}, but they should be {content}")


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
    unknown: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """One index, over a run of parts that adjoin; its ids begin at 0.

    The index of a few entries has no file: their keys themselves are looked at.
    """

    name: str
    entries: int
    factory: str
    nprobe: int | None  # clusters searched, where the index has clusters
    recall: dict[str, float]  # {"k", "queries", "recall"}: measured against exact search
    file: FileRecord | None
    trained: FileRecord | None = None  # what it learned, without entries, where that cannot be read from its own file
    lists: FileRecord | None = None  # codes and ids cluster by cluster, where they are in a file of their own
    quantiser: str | None = None  # the identity of centroids and codes: only where it is the same can lists be joined
    unknown: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "IndexRecord":
        files = {name: record.get(name) for name in ("file", "trained", "lists")}
        read = {name: None if file is None else read_record(FileRecord, file) for name, file in files.items()}
        return read_record(cls, record, **read)

    @classmethod
    def of_keys(cls, entries: int) -> "IndexRecord":
        return cls(KEYS, entries, KEYS, None, {"k": 1, "queries": 0, "recall": 1.0}, None)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_types(self)
        check_numbers("recall", self.recall)
        if (self.file is None) != (self.factory == KEYS):
            raise ValueError(f"index {self.name} has no file")

    def files(self) -> dict[str, FileRecord]:
        """Its files by their names."""
        named = {self.name: self.file, trained_name(self.name): self.trained, lists_name(self.name): self.lists}
        return {name: file for name, file in named.items() if file}


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """Segments that are no longer part of the memory: their numbers in a bitmap's file, and the latest ones here."""

    name: str | None  # None: there is no file yet
    segments: int
    entries: int  # of these segments that are still in the parts
    file: FileRecord | None
    recent: list[int] = field(default_factory=list)
    unknown: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "RemovedRecord":
        file = record["file"]
        return read_record(cls, record, file=None if file is None else read_record(FileRecord, file))

    def __post_init__(self) -> None:
        check_types(self)
        if not all(type(number) is int and 0 <= number < MOST for number in self.recent):
            raise ValueError(f"removed segments {self.recent!r}")
        if (self.file is None) != (self.name is None):
            raise ValueError("removed has a name without a file")
        if self.name is not None:
            check_name(self.name)


@dataclass(frozen=True, slots=True)
class MixingRecord:
    """How neighbours are mixed with the model, and the files of what was learned for that."""

    kind: str  # learned, adaptive, robust, fixed or paper
    covered: int  # segments, from the first on, whose n-grams are in the coverage's file
    variance: float  # of the keys
    files: dict[str, FileRecord]
    how: dict[str, Any]  # what was found
    unknown: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "MixingRecord":
        files = {check_name(name): read_record(FileRecord, file) for name, file in record["files"].items()}
        return read_record(cls, record, files=files)

    def __post_init__(self) -> None:
        check_types(self)
        check_numbers("mixing", {"variance": self.variance})
        if not isinstance(self.how, dict):
            raise TypeError(f"how is {self.how!r}")

    def outgrown(self, segments: int) -> bool:
        """Whether the number of live segments is far from the one that the mixing was fitted to."""
        before = self.how.get("segments", 0)
        return self.kind != "paper" and not before / CHANGED < segments < before * CHANGED

    def named(self, ending: str) -> str | None:
        """The file with that ending."""
        return next((name for name in self.files if name.endswith(ending)), None)
