"""Writing the parts of a datastore: each appears whole or not at all."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from knnmt.arrays import starts
from knnmt.errors import ModelError, StoreError
from knnmt.files import flush_to_disk, rename_durably, write_json
from knnmt.store.datastore import COLUMNS, HASHES, map_column
from knnmt.store.manifest import PARTS, FileRecord, PartRecord
from knnmt.text.corpus import Segment

PART_RECORD = "part.json"


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

    def __init__(self, store: Path, number: int, segments: Sequence[EncodedSegment], *, dimension: int):
        self.final = store / PARTS / f"{number:06d}"
        self.folder = self.final.with_name(f".{self.final.name}.partial")
        self.segments = segments
        self.rows = starts([len(segment.positions) for segment in segments])
        self.entries = sum(len(segment.positions) for segment in segments)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        shape = (self.entries, dimension)
        self.keys = np.lib.format.open_memmap(self.file("keys"), "w+", COLUMNS["keys"], shape)
        reserve_space(self.file("keys"))

    def file(self, column: str) -> Path:
        return self.folder / f"{column}.npy"

    def put(self, position: int, keys: NDArray[np.floating[Any]]) -> None:
        """The keys of one segment's tokens, [tokens, dimension]; those that become entries are written."""
        self.put_kept(position, keys[np.asarray(self.segments[position].positions, dtype=np.intp)])

    def put_kept(self, position: int, keys: NDArray[np.floating[Any]]) -> None:
        """The keys of just those tokens of one segment that become entries."""
        first = self.rows[position]
        with np.errstate(over="ignore"):
            self.keys[first : first + len(keys)] = keys

    def finish(self, *, consumed: int, skipped: dict[str, int]) -> PartRecord:
        """Write the other columns and the sentence pairs, then rename the whole part into place."""
        if not np.isfinite(self.keys).all():
            raise ModelError("the model's keys do not fit half precision: choose another place with --key-site")
        self.keys.flush()
        self._write_columns()
        self._write_segments()
        return place_part(self.folder, self.final, self.entries, len(self.segments), consumed=consumed, skipped=skipped)

    def _write_columns(self) -> None:
        lengths = [len(segment.positions) for segment in self.segments]
        values = [segment.target[position] for segment in self.segments for position in segment.positions]
        positions = [position for segment in self.segments for position in segment.positions]
        np.save(self.file("values"), np.array(values, COLUMNS["values"]))
        np.save(self.file("segments"), np.repeat(np.arange(len(lengths)), lengths).astype(COLUMNS["segments"]))
        np.save(self.file("positions"), np.array(positions, COLUMNS["positions"]))
        np.save(self.file(HASHES), np.array([hashes_of(encoded.segment) for encoded in self.segments], np.uint64))

    def _write_segments(self) -> None:
        rows = [row_of(encoded.segment) for encoded in self.segments]
        parquet.write_table(arrow.Table.from_pylist(rows, schema=SEGMENT_SCHEMA), self.folder / "segments.parquet")


def reserve_space(file: Path) -> None:
    """Claim a file's whole size on disk: a mapped page that finds no room later would end the process, not raise."""
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)


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


def hashes_of(segment: Segment) -> tuple[int, int]:
    """Short hashes of the source and of the whole pair: how a duplicate is suspected without reading any text."""
    return hash_of(segment.source), hash_of(f"{segment.source}\n{segment.target}")


def hash_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def next_part(path: Path) -> int:
    """A number that no part of any version has."""
    return max((int(folder.name) for folder in (path / PARTS).iterdir() if folder.name.isdecimal()), default=-1) + 1


def join_parts(path: Path, parts: Sequence[PartRecord]) -> PartRecord:
    """A new part with the content of several, in order; they stay where they are."""
    final = path / PARTS / f"{next_part(path):06d}"
    folder = final.with_name(f".{final.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folders = [path / PARTS / part.name for part in parts]
    for column in (*COLUMNS, HASHES):
        arrays = [map_column(each, column) for each in folders]
        if column == "segments":  # rows of the part's own table
            rows = starts([part.segments for part in parts])
            arrays = [array + row for array, row in zip(arrays, rows.astype(array_type(column)), strict=True)]
        np.save(folder / f"{column}.npy", np.concatenate(arrays).astype(array_type(column)))
    tables = [
        dated(parquet.read_table(each / "segments.parquet"), part) for each, part in zip(folders, parts, strict=True)
    ]
    parquet.write_table(arrow.concat_tables(tables), folder / "segments.parquet")
    entries, segments = sum(part.entries for part in parts), sum(part.segments for part in parts)
    return place_part(folder, final, entries, segments, consumed=0, skipped={})


def array_type(column: str) -> Any:
    return np.uint64 if column == HASHES else COLUMNS[column]


def dated(table: Any, part: PartRecord) -> Any:
    """The table with the part's creation time where a pair has none of its own."""
    created = [own or part.created for own in table.column("created").to_pylist()]
    at = table.schema.get_field_index("created")
    return table.set_column(at, table.schema.field(at), arrow.array(created, arrow.string()))


def place_part(
    folder: Path, final: Path, entries: int, segments: int, *, consumed: int, skipped: dict[str, int]
) -> PartRecord:
    """Flush a part's files to disk, note what they are, and rename the whole into place."""
    names = [f"{column}.npy" for column in (*COLUMNS, HASHES)] + ["segments.parquet"]
    for name in names:
        flush_to_disk(folder / name)
    files = {name: FileRecord.of(folder / name) for name in names}
    record = PartRecord(final.name, entries, segments, consumed, skipped, now(), files)
    write_json(folder / PART_RECORD, asdict(record))
    rename_durably(folder, final)
    return record


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
