"""Opens the files of a store's parts once, checks them, and keeps a limited number of them open.

Columns are memory-mapped. Rows of a large column are read from the file instead, because touching one place of a
mapping loads a whole stretch of the file into the memory of this process.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from itertools import chain, pairwise, repeat
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array
from knnmt.errors import StoreError
from knnmt.files import REMEDY, reading
from knnmt.layout.hashes import hashes_of, rows_with
from knnmt.layout.lru import LastUsed
from knnmt.layout.packed_parts import PACKED, read_packed
from knnmt.layout.records import COLUMNS, HASHES, HEAD, FileRecord, PartRecord, checksum_of_head

DESCRIPTORS_HELD = 4096  # by one store, at most
OPENED_AT_ONCE = 16  # threads that open files
OPENED_BY_ONE = 32  # files, one after another
FILES_TO_COME = 512  # of this process: connections, models; at a guess
COLUMNS_AT_MOST = 16  # of one part
LARGE = 64 << 20  # bytes of a column
LARGE_KEYS = 512 << 20  # bytes of keys: a step needs thousands of them, and reading each takes ten times as long
MAPPED_FROM = 1 << 17  # bytes of a packed part: an addition looks up hashes in it and needs no keys
TABLES_IN_MEMORY = 64  # of sentence pairs
MAPPED_ALWAYS = ("values",)  # every step reads thousands of its rows
PAIRS = "segments.parquet"
ORDER = "order"
KINDS: dict[str, Any] = {**COLUMNS, HASHES: np.uint64, ORDER: np.uint32}
BY_SEGMENT = (HASHES, ORDER)


def open_checked(file: Path | str, record: FileRecord) -> BinaryIO:
    """Opens a file if its size and its beginning are as recorded."""
    with reading(file):
        opened = open(file, "rb", buffering=0)  # noqa: PTH123, SIM115 - a store has thousands, and paths take time
        try:
            check_beginning(opened, file, record)
        except BaseException:
            opened.close()
            raise
    return opened


def check_beginning(opened: BinaryIO, file: Path | str, record: FileRecord) -> None:
    """Raise unless its size and its first bytes are as recorded."""
    size = os.fstat(opened.fileno()).st_size
    if size != record.bytes:
        raise StoreError(f"{file}: has {size:,} bytes instead of {record.bytes:,}; {REMEDY}")
    if record.head is not None and checksum_of_head(opened.read(HEAD)) != record.head:
        raise StoreError(f"{file}: damaged (it does not begin as it was written); {REMEDY}")
    opened.seek(0)


def check_file(file: Path | str, record: FileRecord) -> None:
    """The same, without keeping it open."""
    open_checked(file, record).close()


def beginning(opened: BinaryIO) -> bytes:
    """Its first bytes, without moving in the file where the system can: another thread may read from it."""
    if hasattr(os, "pread"):
        return os.pread(opened.fileno(), HEAD, 0)
    opened.seek(0)
    return opened.read(HEAD)


def mapped(opened: BinaryIO, file: Path) -> Array:
    """A NumPy array on disk, memory-mapped; no pickle is ever read."""
    with reading(file):
        head = BytesIO(beginning(opened))
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read(head)
        begin, length = head.tell(), int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if kind.hasobject or fortran or min(shape, default=0) < 0:
            raise ValueError("not a plain array")
        if begin + length > os.fstat(opened.fileno()).st_size:
            raise ValueError("shorter than its header says")
        if not length:
            return np.empty(shape, kind)
        return np.memmap(opened, kind, "r", begin, shape)


def map_file(file: Path) -> Array:
    with reading(file), file.open("rb") as opened:
        return mapped(opened, file)


def read_array(file: Path) -> Array:
    """A small array on disk."""
    return np.array(map_file(file))


class PartFiles:
    """What is in the files of some parts; `dimension` is that of the keys."""

    def __init__(self, folder: Path, parts: Sequence[PartRecord], dimension: int) -> None:
        self.folder = folder
        self.parts = parts
        self.entries = sum(part.entries for part in parts)
        self.dimension = dimension
        needed = sum(len(part.files) for part in parts)
        # A mapping has a descriptor of its own.
        self.descriptors = descriptors_allowed(min(2 * needed, DESCRIPTORS_HELD))
        self.held = 2 * needed <= self.descriptors
        # A map or a table of pairs keeps its file open after `files` has let go of it.
        most = len(parts) * COLUMNS_AT_MOST if self.held else self.descriptors // 3
        self.files, self.maps, self.pairs = LastUsed(most), LastUsed(most), LastUsed(most)
        self.tables = LastUsed(TABLES_IN_MEMORY)
        self.checked = False
        OPEN.add(self)

    def hold(self) -> None:
        """Open all files now. A later change may delete them from the folder; open files stay readable.

        Of a store in thousands of parts, files are checked now and opened when they are needed.
        """
        if self.checked:
            return
        wanted = [(part, name) for part, record in enumerate(self.parts) for name in record.files]
        missing = [one for one in wanted if one not in self.files.things]
        some = [missing[first : first + OPENED_BY_ONE] for first in range(0, len(missing), OPENED_BY_ONE)]
        with ExitStack() as opening:  # closes what was opened if another file is refused
            if len(some) < 2:
                files = self.opened(missing, opening)
            else:
                with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:  # each thread waits for the disk
                    files = [*chain.from_iterable(pool.map(partial(self.opened, opening=opening), some))]
            opening.pop_all()
        self.keep(missing, files)
        self.checked = True

    def opened(self, names: Sequence[tuple[int, str]], opening: ExitStack) -> list[BinaryIO | None]:
        """Files of parts, or None for those that are only checked; `opening` may close them."""
        found: list[BinaryIO | None] = []
        for part, name in names:
            record = self.parts[part]
            file = os.path.join(self.folder, record.name, name)  # noqa: PTH118
            opened = open_checked(file, record.files[name])
            if self.held:
                opening.callback(opened.close)
            else:
                opened.close()
            found.append(opened if self.held else None)
        return found

    def keep(self, names: Sequence[tuple[int, str]], files: Sequence[BinaryIO | None]) -> None:
        for name, file in zip(names, files, strict=True):
            if file is not None:
                self.files.things[name] = file

    def path(self, part: int, name: str) -> Path:
        return self.folder / self.parts[part].name / name

    def file(self, part: int, name: str) -> BinaryIO:
        record = self.parts[part].files.get(name)
        if record is None:
            raise StoreError(f"{self.path(part, name)}: not part of this store")
        return self.files.get((part, name), lambda: open_checked(self.path(part, name), record))

    def has(self, part: int, name: str) -> bool:
        files = self.parts[part].files
        return f"{name}.npy" in files or PACKED in files

    def packed(self, part: int) -> dict[str, Array]:
        """The arrays of a part that is one file."""
        return self.maps.get((part, PACKED), lambda: self.open_packed(part))

    def open_packed(self, part: int) -> dict[str, Array]:
        opened, size = self.file(part, PACKED), self.parts[part].files[PACKED].bytes
        with reading(self.path(part, PACKED)):
            if size < MAPPED_FROM:
                return read_packed(os.pread(opened.fileno(), size, 0))
            return read_packed(mmap(opened.fileno(), size, access=ACCESS_READ))

    def column(self, part: int, name: str) -> Array:
        """A column of a part."""
        return self.maps.get((part, name), lambda: self.open_column(part, name))

    def open_column(self, part: int, name: str) -> Array:
        record = self.parts[part]
        if PACKED in record.files:
            file = self.path(part, PACKED)
            with reading(file):
                column = self.packed(part)[name]
            self.check_column(column, name, record, file)
            return column
        if name == HASHES and not self.has(part, HASHES):  # in the first format
            pairs = self.table(part).select(["source", "target"]).to_pylist()
            return np.array([hashes_of(pair["source"], pair["target"]) for pair in pairs], np.uint64).reshape(-1, 2)
        file = self.path(part, f"{name}.npy")
        column = mapped(self.file(part, file.name), file)
        self.check_column(column, name, record, file)
        return column - np.uint32(record.origin) if name == "segments" and record.origin else column

    def check_column(self, column: Array, name: str, record: PartRecord, file: Path) -> None:
        rows = record.segments if name in BY_SEGMENT else record.entries
        wide = {"keys": (self.dimension,), HASHES: (2,)}.get(name, ())
        if column.shape != (rows, *wide) or column.dtype != KINDS[name]:
            found = f"{column.dtype} {list(column.shape)}"
            raise StoreError(f"{file}: {found} instead of {np.dtype(KINDS[name])} {[rows, *wide]}; {REMEDY}")

    def rows(self, name: str, parts: NDArray[np.int64], rows: NDArray[np.int64]) -> Array:
        """Row `rows[i]` of the column of part `parts[i]`, for every i."""
        if len(parts) and (parts == parts[0]).all():  # of most stores: it has one part
            return self.rows_of_part(name, parts, rows)
        found = np.empty((len(rows), *((self.dimension,) if name == "keys" else ())), KINDS[name])
        from_file = np.zeros(len(rows), bool)
        for part, here in places_by_part(parts):
            if self.is_read(name, column := self.column(int(part), name)):
                from_file[here] = True
            else:
                found[here] = column[rows[here]]
        if from_file.all() and len(rows):
            return self.read_rows(name, parts, rows)
        if from_file.any():
            found[from_file] = self.read_rows(name, parts[from_file], rows[from_file])
        return found

    def rows_of_part(self, name: str, parts: NDArray[np.int64], rows: NDArray[np.int64]) -> Array:
        """The same where all parts are one."""
        column = self.column(int(parts[0]), name)
        return self.read_rows(name, parts, rows) if self.is_read(name, column) else np.asarray(column[rows])

    def is_read(self, name: str, column: Array) -> bool:
        """Whether rows are read from files and not through a mapping. That has the files of all parts open at once."""
        if not self.held or name in MAPPED_ALWAYS or not isinstance(column, np.memmap) or not hasattr(os, "pread"):
            return False
        if name == "keys":
            return self.entries * column.itemsize * self.dimension > LARGE_KEYS
        return self.entries * column.itemsize > LARGE

    def read_rows(self, name: str, parts: NDArray[np.int64], rows: NDArray[np.int64]) -> Array:
        """The same rows, read from the files."""
        columns = {int(part): self.column(int(part), name) for part in np.unique(parts)}
        files = {part: self.file(part, f"{name}.npy") for part in columns}
        shape, kind = columns[int(parts[0])].shape[1:], np.dtype(KINDS[name])
        begins = np.zeros(len(self.parts), np.int64)
        descriptors = np.zeros(len(self.parts), np.int64)
        for part, column in columns.items():
            begins[part], descriptors[part] = column.offset, files[part].fileno()  # type: ignore[attr-defined]
        return rows_at(descriptors[parts], begins[parts], rows, kind, shape)

    def rows_with(self, part: int, hashes: NDArray[np.uint64], *, pair: bool = False) -> NDArray[np.int64]:
        """The rows of a part's table whose source, or whole pair, has one of these hashes."""
        if pair:
            return np.flatnonzero(np.isin(self.column(part, HASHES)[:, 1], hashes))
        order = self.column(part, ORDER) if self.has(part, ORDER) else None
        return rows_with(self.column(part, HASHES), order, hashes)

    def pairs_file(self, part: int) -> Any:
        """The open file of a part's sentence pairs."""
        return self.pairs.get(part, lambda: self.open_pairs(part))

    def open_pairs(self, part: int) -> Any:
        from pyarrow import parquet  # 40 MB that translating does without

        packed = PACKED in self.parts[part].files
        with reading(self.pairs_path(part)):
            found = parquet.ParquetFile(
                BytesIO(self.packed(part)[PAIRS].tobytes()) if packed else self.file(part, PAIRS)
            )
            if found.metadata.num_rows != self.parts[part].segments:
                raise ValueError(f"{found.metadata.num_rows:,} rows instead of {self.parts[part].segments:,}")
            return found

    def read_pairs(self, part: int, columns: Sequence[str] | None = None) -> Any:
        """Columns of a part's table."""
        with reading(self.pairs_path(part)):
            return self.pairs_file(part).read(columns=columns)

    def pairs_path(self, part: int) -> Path:
        """The file that a part's sentence pairs are in."""
        return self.path(part, PACKED if PACKED in self.parts[part].files else PAIRS)

    def table(self, part: int) -> Any:
        """The sentence pairs of a part."""
        return self.tables.get(part, lambda: self.read_pairs(part))


def places_by_part(parts: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each part that occurs, and where."""
    order = np.argsort(parts, kind="stable")
    ordered = parts[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    return ((int(ordered[low]), order[low:high]) for low, high in pairwise(bounds) if low < high)


def rows_at(
    descriptors: NDArray[np.int64],
    begins: NDArray[np.int64],
    rows: NDArray[np.int64],
    kind: np.dtype[Any],
    shape: tuple[int, ...],
) -> Array:
    """Rows of arrays on disk: of the open file `descriptors[i]`, whose array starts at `begins[i]`, row `rows[i]`."""
    size = int(kind.itemsize * np.prod(shape, dtype=np.int64))
    places = (begins + rows * size).tolist()
    read = bytearray().join(map(os.pread, descriptors.tolist(), repeat(size), places))
    found: Array = np.frombuffer(read, kind).reshape(len(rows), *shape)
    return found


OPEN: WeakSet[PartFiles] = WeakSet()  # of this process


def descriptors_allowed(wanted: int) -> int:
    """How many descriptors a store may hold, given what is open and what other stores may open.

    Half of what is left at most. The system is asked for more where it has a limit that can be raised.
    """
    try:
        import resource
    except ImportError:  # not on every system
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    opened = max(descriptors_open(), sum(one.descriptors for one in list(OPEN)))
    needed = opened + 2 * wanted + FILES_TO_COME
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(soft - opened, 0) // 2)


def descriptors_open() -> int:
    """How many descriptors this process has open."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:  # not on every system
        return 0
