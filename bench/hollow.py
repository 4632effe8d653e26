"""A store around an index: its columns are holes in files of the right length, which take no room on the disk."""

import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.files import lists_name
from knnmt.layout.manifest import PARTS, Manifest
from knnmt.layout.parts import now
from knnmt.layout.records import COLUMNS, HASHES, HEAD, FileRecord, IndexRecord, ModelRecord, PartRecord
from knnmt.release import __version__
from knnmt.search.index import BuiltIndex
from knnmt.store.versions import write_version

SEGMENT = 20  # entries of a segment


def hollow_store(path: Path, index: Path, built: BuiltIndex, entries: int, dimension: int, part_entries: int) -> None:
    """A store with this index, which is linked into it, and parts of so many entries."""
    (path / PARTS).mkdir(parents=True)
    bounds = pairwise([*range(0, entries, part_entries), entries])
    parts = [hollow_part(path, number, end - first, dimension) for number, (first, end) in enumerate(bounds)]
    (path / index.name).hardlink_to(index)
    (path / lists_name(index.name)).hardlink_to(index.with_name(lists_name(index.name)))
    files = [record_of(path / name) for name in (index.name, lists_name(index.name))]
    record = IndexRecord(
        index.name, entries, built.factory, built.nprobe, built.recall, files[0], lists=files[1],
        quantiser=built.quantiser,
    )  # fmt: skip
    model = ModelRecord("hollow", "marian", "hollow", dimension, "none", None, None, "")
    manifest = Manifest(
        model, [], entries, sum(part.segments for part in parts), {}, parts, [record], now(), now(), "made", __version__
    )
    write_version(path, manifest)


def hollow_part(path: Path, number: int, entries: int, dimension: int) -> PartRecord:
    folder, segments = path / PARTS / f"{number:06d}", -(-entries // SEGMENT)
    folder.mkdir()
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(COLUMNS, (entries,)) | {"keys": (entries, dimension)}
    kinds: dict[str, Any] = {**COLUMNS, HASHES: np.uint64, "order": np.uint32}
    for name, shape in (shapes | {HASHES: (segments, 2), "order": (segments,)}).items():
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kinds[name], shape)
    (folder / "segments.parquet").write_bytes(bytes(HEAD))
    files = {file.name: record_of(file) for file in sorted(folder.iterdir())}
    return PartRecord(folder.name, entries, segments, 0, {}, now(), files)


def record_of(file: Path) -> FileRecord:
    """Without a checksum of all of it, which nobody asks for here."""
    with file.open("rb") as opened:
        return FileRecord(file.stat().st_size, "", zlib.crc32(opened.read(HEAD)))
