"""Durable files: written under a temporary name, flushed to disk, then renamed into place."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from knnmt.errors import SettingsError, StoreError

BLOCK = 1 << 20
FLUSHED_AT_ONCE = 8
PLACE_IN_SOURCE = re.compile(r"^Error in .* at \S+:\d+: ")
REMEDY = "restore it from a copy or build the store again"


def sha256_of(path: Path) -> str:
    """The file's checksum, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on disk: a rename may otherwise survive a crash that its content does not."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_all(paths: Sequence[Path]) -> None:
    """Flush several files at the same time, so that the disk writes them together."""
    with ThreadPoolExecutor(FLUSHED_AT_ONCE) as pool:
        others = [pool.submit(flush_to_disk, path) for path in paths[1:]]
        flush_to_disk(paths[0])
        for other in others:
            other.result()


def rename_durably(temporary: Path, final: Path) -> None:
    """Move a finished file or folder into place."""
    temporary.rename(final)
    flush_to_disk(final.parent)


def check_writable(file: Path, flag: str) -> None:
    """Raise before the work begins if the file cannot be written."""
    if not file.parent.is_dir():
        raise SettingsError(f"{flag} {file}: there is no folder {file.parent}")
    if file.is_dir():
        raise SettingsError(f"{flag} {file}: a folder, not a file")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors inside name the file: for a write to a full disk, the system does not say which one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_durably(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file, then rename it to `path`."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with naming(path), temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def replace_durably(paths: Sequence[Path], data: bytes) -> None:
    """Write the same content to several places, in this order."""
    temporaries = [path.with_name(f".{path.name}.partial") for path in paths]
    try:
        for temporary in temporaries:
            temporary.write_bytes(data)
        flush_all(temporaries)
        for temporary, path in zip(temporaries, paths, strict=True):
            temporary.replace(path)
    except BaseException:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
        raise
    flush_all([path.parent for path in paths])


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON, durably."""
    data = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_durably(path, lambda file: file.write(data.encode()))


@contextmanager
def reading(file: Path | str) -> Iterator[None]:
    """Inside, any error in reading a file of a store becomes one error that names the file."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{file}: {trouble(error)}") from error
    except MemoryError as error:
        raise StoreError(f"{file}: does not fit into memory, or is damaged; `knnmt verify` tells which") from error
    except Exception as error:
        raise StoreError(f"{file}: damaged ({short_reason(error)}); {REMEDY}") from error


def trouble(error: OSError) -> str:
    """What the system reports. It distinguishes a damaged file from one that cannot be opened now."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files; raise the limit (ulimit -n), or join the parts with `knnmt compact --tiers`"
    if error.errno == errno.ENOENT:
        return "missing; the store was changed in the meantime (open it again), or its folder is incomplete"
    if error.errno is not None:
        return f"cannot be read ({(error.strerror or str(error)).lower()})"
    return f"damaged ({short_reason(error)}); {REMEDY}"


def short_reason(error: BaseException) -> str:
    """One line, without the position in C++ sources with which libraries begin."""
    return PLACE_IN_SOURCE.sub("", " ".join(str(error).split()))[:200] or type(error).__name__


# The files of an index


def trained_name(name: str) -> str:
    """The file beside an index that holds only its trained part."""
    return name.replace(".faiss", ".trained.faiss", 1)


def lists_name(name: str) -> str:
    """The file beside an index that holds its codes and ids, cluster by cluster."""
    return name.replace(".faiss", ".lists", 1)
