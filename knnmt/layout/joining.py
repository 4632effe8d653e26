"""Joins several adjacent parts into one, without what was removed from them, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.arrays import Array, starts
from knnmt.files import reading
from knnmt.layout.bitmaps import as_array
from knnmt.layout.hashes import order_of
from knnmt.layout.older_formats import with_later_fields
from knnmt.layout.part_files import KINDS, ORDER, PAIRS, PartFiles, map_file
from knnmt.layout.parts import MOST_PACKED, SEGMENT_SCHEMA, place_packed, place_part
from knnmt.layout.records import HASHES, PartRecord

ROWS_AT_ONCE = 65_536
BLANK = {"source": "", "target": "", "corpus": "", "number": 0, "created": "", "metadata": []}


@dataclass(frozen=True)
class Inputs:
    """Parts to be joined, and which of their segments have been removed, numbered through these parts."""

    files: PartFiles
    removed: BitMap

    @property
    def parts(self) -> Sequence[PartRecord]:
        return self.files.parts

    @property
    def columns(self) -> list[str]:
        """The columns of the joint part. Keys may have been dropped."""
        return [name for name in KINDS if name != "keys" or all(part.has_keys for part in self.parts)]

    def removed_rows(self, part: int) -> NDArray[np.int64]:
        first = int(starts([one.segments for one in self.parts])[part])
        rows = as_array(self.removed)
        return rows[(rows >= first) & (rows < first + self.parts[part].segments)] - first

    def kept(self, part: int) -> NDArray[np.bool_] | None:
        """Which entries of a part stay, [entries]; None: all."""
        rows = self.removed_rows(part)
        return None if not len(rows) else ~np.isin(self.files.column(part, "segments"), rows)

    def kept_entries(self, part: int) -> int:
        kept = self.kept(part)
        return self.parts[part].entries if kept is None else int(kept.sum())


def join_into(folder: Path, final: Path, inputs: Inputs) -> PartRecord:
    """Write the joint part into a new folder and rename that to its place; the parts stay where they are."""
    entries = sum(inputs.kept_entries(part) for part in range(len(inputs.parts)))
    segments = sum(part.segments for part in inputs.parts)
    last = inputs.parts[-1]
    if entries <= MOST_PACKED and "keys" in inputs.columns:
        columns = {name: np.concatenate([*blocks_of(inputs, name)]) for name in inputs.columns if name != ORDER}
        columns = {name: column.astype(KINDS[name]) for name, column in columns.items()}
        columns[ORDER] = order_of(columns[HASHES])
        pairs = arrow.concat_tables([*tables_of(inputs)])
        return place_packed(folder, final, columns, pairs, consumed=last.consumed, skipped=last.skipped)
    for name in inputs.columns:
        if name != ORDER:
            rows = segments if name == HASHES else entries
            with (folder / f"{name}.npy").open("wb") as file:
                write_column(file, name, rows, blocks_of(inputs, name))
    np.save(folder / f"{ORDER}.npy", order_of(map_file(folder / f"{HASHES}.npy")))
    write_pairs(folder / PAIRS, inputs)
    last = inputs.parts[-1]
    return place_part(
        folder, final, entries, segments, consumed=last.consumed, skipped=last.skipped, columns=inputs.columns
    )


def write_column(file: BinaryIO, name: str, rows: int, blocks: Iterator[Array]) -> None:
    """A NumPy file of so many rows, one block after another."""
    header = None
    for block in blocks:
        if header is None:
            header = {"descr": np.lib.format.dtype_to_descr(np.dtype(KINDS[name])), "fortran_order": False,
                      "shape": (rows, *block.shape[1:])}  # fmt: skip
            np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(block, KINDS[name]).data)


def blocks_of(inputs: Inputs, name: str) -> Iterator[Array]:
    firsts = starts([part.segments for part in inputs.parts])
    for part in range(len(inputs.parts)):
        column = inputs.files.column(part, name)
        kept = None if name == HASHES else inputs.kept(part)
        gone = inputs.removed_rows(part) if name == HASHES else None
        for first in range(0, max(1, len(column)), ROWS_AT_ONCE):
            block = np.asarray(column[first : first + ROWS_AT_ONCE])
            if kept is not None:
                block = block[kept[first : first + ROWS_AT_ONCE]]
            if name == "segments":  # rows of the part's own table
                block = block + np.uint32(firsts[part])
            if gone is not None and len(gone):
                block = block.copy()
                block[gone[(gone >= first) & (gone < first + ROWS_AT_ONCE)] - first] = 0
            yield block


def write_pairs(file: Path, inputs: Inputs) -> None:
    with parquet.ParquetWriter(file, SEGMENT_SCHEMA) as writer:
        for table in tables_of(inputs):
            writer.write_table(table)


def tables_of(inputs: Inputs) -> Iterator[Any]:
    """The sentence pairs of each part. Removed pairs leave an empty row."""
    for part, record in enumerate(inputs.parts):
        with reading(inputs.files.pairs_path(part)):
            table = dated(inputs.files.read_pairs(part), record)
            gone = inputs.removed_rows(part)
            if len(gone):
                rows = np.arange(len(table))
                rows[gone] = len(table)
                blank = arrow.Table.from_pylist([BLANK], schema=SEGMENT_SCHEMA)
                table = arrow.concat_tables([table, blank]).take(rows)
        yield table


def dated(table: Any, part: PartRecord) -> Any:
    """The table with the part's creation time for pairs without their own."""
    from pyarrow import compute

    if "metadata" not in table.column_names:  # in the first format
        table = arrow.Table.from_pylist([with_later_fields(row) for row in table.to_pylist()], schema=SEGMENT_SCHEMA)
    own = table.column("created")
    created = compute.if_else(compute.equal(own, ""), part.created, own)
    at = table.schema.get_field_index("created")
    return table.set_column(at, table.schema.field(at), created).cast(SEGMENT_SCHEMA)
