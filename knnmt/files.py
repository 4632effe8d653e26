"""Durable files: written under a temporary name, flushed to disk, then renamed into place."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from knnmt.errors import SettingsError

BLOCK = 1 << 20


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


def rename_durably(temporary: Path, final: Path) -> None:
    """Move a finished file or folder into place."""
    temporary.rename(final)
    flush_to_disk(final.parent)


def check_writable(file: Path, flag: str) -> None:
    """Known before the work begins: whether a file can stand there."""
    if not file.parent.is_dir():
        raise SettingsError(f"{flag} {file}: there is no folder {file.parent}")
    if file.is_dir():
        raise SettingsError(f"{flag} {file}: a folder, not a file")


def write_durably(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a new file; `path` appears only when it is complete, replacing what was there."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON, durably."""
    data = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_durably(path, lambda file: file.write(data.encode()))
