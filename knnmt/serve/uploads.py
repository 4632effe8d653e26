"""Checks uploaded files: safe names, limited size, limited size after decompression."""

import asyncio
import gzip
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.datastructures import UploadFile

from knnmt.errors import KnnmtError
from knnmt.service.failures import BadRequest, TooLarge

UNPACKED = 16  # times the limit of an upload that a packed file may grow to
BLOCK = 1 << 20
LONGEST_NAME = 120


async def received(upload: UploadFile, folder: Path, limit: int) -> Path:
    """The upload as a file in the folder, under its own name without any path."""
    file = folder / plain_name(upload.filename or "")
    size = 0
    with file.open("wb") as out:
        while block := await upload.read(BLOCK):
            size += len(block)
            if size > limit:
                raise TooLarge(f"Invalid request: the file has more than {limit:,} bytes")
            out.write(block)
    await asyncio.to_thread(check_unpacked, file, limit * UNPACKED)
    return file


@contextmanager
def working_folder() -> Iterator[Path]:
    """A folder for one request. Error messages about files in it do not contain its path."""
    with tempfile.TemporaryDirectory(prefix="knnmt-") as folder:
        try:
            yield Path(folder)
        except KnnmtError as error:
            raise BadRequest(str(error).replace(f"{folder}/", "")) from error


def plain_name(name: str) -> str:
    """`../../etc/x.tmx` is `x.tmx`; what a file system or a header could misread is left out."""
    last = re.split(r"[/\\]", name)[-1]
    kept = re.sub(r"[^\w.,()+ -]", "_", last).strip(". ")
    if not kept or "." not in kept:
        raise BadRequest(f"Invalid request: the file's name needs an ending ({kept[:40]!r})")
    return kept[-LONGEST_NAME:].lstrip(". -")


def check_unpacked(file: Path, limit: int) -> None:
    """A packed file may be small and endless."""
    if file.suffix.lower() != ".gz":
        return
    try:
        with gzip.open(file) as packed:
            size = 0
            while block := packed.read(BLOCK):
                size += len(block)
                if size > limit:
                    raise TooLarge(f"Invalid request: the file unpacks to more than {limit:,} bytes")
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequest("Invalid request: the file is not gzip") from error
