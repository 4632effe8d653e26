"""Opens untrusted input files: decompresses and decodes them, and limits the length of a line."""

import codecs
import gzip
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, cast

from knnmt.errors import CorpusError

# A line or unit that is longer is no sentence pair: a file without line ends, or one that was made to fill the memory.
LONGEST = 16 << 20

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def without_gz(path: Path) -> str:
    return path.name[:-3] if is_gzipped(path) else path.name


def ending_of(path: Path) -> str:
    """`.tmx` of `memory.TMX.gz`."""
    return Path(without_gz(path)).suffix.lower()


def check_readable(path: Path) -> None:
    """Raise unless the file is regular and readable. A corpus is read more than once, so a pipe is refused."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CorpusError(f"{path}: not a regular file, and it must be read more than once")
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise CorpusError(f"{path}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """The system's error message without the file name."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def codec_like_ascii(name: str, sample: str) -> str | None:
    """Python's name of an encoding that writes the sample as ASCII does; None for any other, or an unknown one."""
    try:
        known = codecs.lookup(name).name
        return known if sample.encode(known) == sample.encode("ascii") else None
    except (LookupError, UnicodeError):
        return None


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed if its name ends in .gz."""
    try:
        with cast(BinaryIO, gzip.open(path, "rb")) if is_gzipped(path) else path.open("rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read to its end: {reason_of(error)}") from error


def read_lines(path: Path, *, encoding: str = "utf-8") -> Iterator[str]:
    """Lines without their line ends. The encoding must be a superset of ASCII."""
    with open_binary(path) as file:
        yield from decoded_lines(file, path, encoding)


def read_wide_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8, or of UTF-16 if the file begins with a byte order mark."""
    with open_binary(path) as file:
        if file.read(2) in UTF16_MARKS:
            file.seek(0)
            yield from utf16_lines(file, path)
        else:
            file.seek(0)
            yield from decoded_lines(file, path, "utf-8")


def decoded_lines(file: BinaryIO, path: Path, encoding: str) -> Iterator[str]:
    label = "UTF-8" if encoding == "utf-8" else encoding
    lines = iter(lambda: file.readline(LONGEST + 1), b"")
    for number, line in enumerate(lines, start=1):
        check_length(line, path, number)
        try:
            text = line.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}: line {number} is not {label} ({error.reason})") from error
        if "\0" in text:
            raise CorpusError(f"{path}: line {number} is not {label} text (it holds a zero byte)")
        yield text


def utf16_lines(file: BinaryIO, path: Path) -> Iterator[str]:
    text = TextIOWrapper(file, encoding="utf-16", newline="\n")
    number = 0
    try:
        while line := text.readline(LONGEST + 1):
            number += 1
            check_length(line, path, number)
            if "\0" in line:
                raise CorpusError(f"{path}: line {number} is not UTF-16 text (it holds a zero character)")
            yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-16 after line {number} ({error.reason})") from error
    finally:
        text.detach()  # who opened the file closes it


def check_length(line: bytes | str, path: Path, number: int) -> None:
    if len(line) > LONGEST:
        raise CorpusError(f"{path}: line {number} is longer than {LONGEST >> 20} MB, which is no sentence")
