"""Writes the parts of a datastore: each appears whole or not at all."""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from knnmt.arrays import Array, starts
from knnmt.errors import ModelError, StoreError
from knnmt.files import flush_all, rename_durably, write_json
from knnmt.layout.hashes import hashes_of, order_of
from knnmt.layout.manifest import PARTS
from knnmt.layout.packed_parts import PACKED, write_packed
from knnmt.layout.part_files import KINDS, ORDER, PAIRS
from knnmt.layout.records import COLUMNS, HASHES, FileRecord, PartRecord, as_json
from knnmt.text.corpus import Segment

PART_RECORD = "part.json"
MOST_PACKED = 4096  # entries of a part that is one file


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment with its tokens; the target's end token is among them."""

    segment: Segment
    source: list[int]
    target: list[int]
    kept: tuple[int, ...] | None = None  # positions of the target that become entries; None: all of them

    @property
    def positions(self) -> Sequence[int]:
        return range(len(self.target)) if self.kept is None else self.kept


class PartWriter:
    """One part under a temporary name: keys arrive in any order, straight to disk; `finish` puts it in place."""

    def __init__(
        self, store: Path, number: int, segments: Sequence[EncodedSegment], *, dimension: int, packed: bool = False
    ):
        self.final = store / PARTS / f"{number:06d}"
        self.segments = segments
        self.rows = starts([len(segment.positions) for segment in segments])
        self.entries = sum(len(segment.positions) for segment in segments)
        self.folder = new_folder(self.final)
        self.packed = packed and self.entries <= MOST_PACKED
        shape = (self.entries, dimension)
        if self.packed:
            self.keys = np.empty(shape, COLUMNS["keys"])
        else:
            self.keys = np.lib.format.open_memmap(self.file("keys"), "w+", COLUMNS["keys"], shape)
            reserve_space(self.file("keys"))

    def file(self, column: str) -> Path:
        return self.folder / f"{column}.npy"

    def put(self, position: int, keys: NDArray[np.floating[Any]]) -> None:
        """The keys of one segment's tokens, [tokens, dimension]; those that become entries are written."""
        self.put_kept(position, keys[np.asarray(self.segments[position].positions, dtype=np.intp)])

    def put_kept(self, position: int, keys: NDArray[np.floating[Any]]) -> None:
        """Write the keys of those tokens of one segment that become entries."""
        first = self.rows[position]
        with np.errstate(over="ignore"):
            self.keys[first : first + len(keys)] = keys

    def finish(self, *, consumed: int, skipped: dict[str, int]) -> PartRecord:
        """Write the other columns and the sentence pairs, then rename the whole part into place."""
        if not np.isfinite(self.keys).all():
            raise ModelError("the model's keys do not fit half precision: choose another place with --key-site")
        if self.packed:
            columns = {"keys": self.keys, **self.columns()}
            return place_packed(self.folder, self.final, columns, self.pairs(), consumed=consumed, skipped=skipped)
        self.keys.flush()  # type: ignore[attr-defined]
        for name, column in self.columns().items():
            np.save(self.file(name), column)
        parquet.write_table(self.pairs(), self.folder / PAIRS)
        return place_part(self.folder, self.final, self.entries, len(self.segments), consumed=consumed, skipped=skipped)

    def columns(self) -> dict[str, Array]:
        """All columns except the keys."""
        lengths = [len(segment.positions) for segment in self.segments]
        values = [segment.target[position] for segment in self.segments for position in segment.positions]
        positions = [position for segment in self.segments for position in segment.positions]
        pairs = [one.segment for one in self.segments]
        hashes = np.array([hashes_of(pair.source, pair.target) for pair in pairs], np.uint64).reshape(-1, 2)
        return {
            "values": np.array(values, COLUMNS["values"]),
            "segments": np.repeat(np.arange(len(lengths)), lengths).astype(COLUMNS["segments"]),
            "positions": np.array(positions, COLUMNS["positions"]),
            HASHES: hashes,
            ORDER: order_of(hashes),
        }

    def pairs(self) -> Any:
        return arrow.Table.from_pylist([row_of(one.segment) for one in self.segments], schema=SEGMENT_SCHEMA)


def partial_folder(final: Path) -> Path:
    return final.with_name(f".{final.name}.partial")


def new_folder(final: Path) -> Path:
    """An empty folder beside the place of a part."""
    folder = partial_folder(final)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def reserve_space(file: Path) -> None:
    """Claim a file's whole size on disk: a mapped page that finds no room later would end the process, not raise."""
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            try:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
            except OSError as error:  # it names no file
                raise OSError(error.errno, error.strerror, str(file)) from error


SEGMENT_SCHEMA = arrow.schema(
    [
        ("source", arrow.string()),
        ("target", arrow.string()),
        ("corpus", arrow.string()),
        ("number", arrow.uint64()),
        ("created", arrow.string()),
        ("metadata", arrow.map_(arrow.string(), arrow.string())),
    ]
)


def row_of(segment: Segment) -> dict[str, Any]:
    return asdict(segment) | {"metadata": list(segment.metadata.items())}


def now(precision: str = "seconds") -> str:
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def next_part(path: Path) -> int:
    """A number that no part of any version has."""
    return max((int(folder.name) for folder in (path / PARTS).iterdir() if folder.name.isdecimal()), default=-1) + 1


def place_part(
    folder: Path,
    final: Path,
    entries: int,
    segments: int,
    *,
    consumed: int,
    skipped: dict[str, int],
    columns: Iterable[str] = tuple(KINDS),
) -> PartRecord:
    """Flush a part's files to disk, note what they are, and rename the whole into place."""
    names = [f"{column}.npy" for column in columns] + [PAIRS]
    flush_all([folder / name for name in names])
    files = {name: FileRecord.of(folder / name) for name in names}
    record = PartRecord(final.name, entries, segments, consumed, skipped, now(), files)
    write_json(folder / PART_RECORD, as_json(record))
    rename_durably(folder, final)
    return record


def place_packed(
    folder: Path, final: Path, columns: dict[str, Array], pairs: Any, *, consumed: int, skipped: dict[str, int]
) -> PartRecord:
    """Write a small part as one file."""
    table = BytesIO()
    parquet.write_table(pairs, table)
    arrays = columns | {PAIRS: np.frombuffer(table.getbuffer(), np.uint8)}
    with (folder / PACKED).open("wb") as file:
        write_packed(file, arrays)
    flush_all([folder / PACKED, folder])
    files = {PACKED: FileRecord.of(folder / PACKED)}
    rename_durably(folder, final)
    return PartRecord(final.name, len(columns["values"]), len(pairs), consumed, skipped, now(), files)


def finished_parts(store: Path) -> list[PartRecord]:
    """The parts that a build has completed so far, in order."""
    numbered = sorted(folder for folder in (store / PARTS).glob("[0-9]*") if folder.name.isdecimal())
    folders = [folder for folder in numbered if (folder / PART_RECORD).is_file()]
    return [read_part_record(folder) for folder in folders]


def read_part_record(folder: Path) -> PartRecord:
    file = folder / PART_RECORD
    try:
        return PartRecord.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{file}: damaged; remove the folder and build again") from error
