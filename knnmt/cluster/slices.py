"""Slices of a corpus as files. A slice holds what a worker needs to make a part."""

import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from knnmt.files import reading, rename_durably
from knnmt.layout.parts import SEGMENT_SCHEMA, EncodedSegment, row_of
from knnmt.store.building import Slice
from knnmt.text.corpus import Segment

TOKENS = arrow.list_(arrow.int32())
ABOUT = b"slice"
SCHEMA = arrow.schema(
    [*SEGMENT_SCHEMA, ("source_tokens", TOKENS), ("target_tokens", TOKENS), ("kept", arrow.list_(arrow.int32()))]
)


def write_slice(file: Path, one: Slice) -> None:
    """Write it; the file appears whole."""
    rows = [
        row_of(encoded.segment)
        | {
            "source_tokens": encoded.source,
            "target_tokens": encoded.target,
            "kept": None if encoded.kept is None else list(encoded.kept),
        }
        for encoded in one.segments
    ]
    about = {"number": one.number, "consumed": one.consumed, "skipped": one.skipped, "read": one.read}
    schema = SCHEMA.with_metadata({ABOUT: json.dumps(about).encode()})
    temporary = file.with_name(f".{file.name}.partial")
    parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), temporary)
    rename_durably(temporary, file)


def read_slice(file: Path) -> Slice:
    with reading(file):
        table = parquet.read_table(file)
        about: dict[str, Any] = json.loads(table.schema.metadata[ABOUT])
        return Slice(segments=[encoded_of(row) for row in table.to_pylist()], **about)


def encoded_of(row: dict[str, Any]) -> EncodedSegment:
    tokens, kept = (row.pop("source_tokens"), row.pop("target_tokens")), row.pop("kept")
    segment = Segment(**row | {"metadata": dict(row["metadata"])})
    return EncodedSegment(segment, *tokens, None if kept is None else tuple(kept))
