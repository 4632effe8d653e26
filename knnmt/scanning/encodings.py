"""Text of a file in lines or whole, so that encoding it again gives the same bytes."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from knnmt.errors import DocumentError
from knnmt.text.inputs import LONGEST, open_binary

# A byte order mark is decoded as a character of the text, so that it is written back like any other.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A file whose encoding is known."""

    path: Path
    encoding: str

    def lines(self) -> Iterator[str]:
        """Lines with their line ends; only \\n ends a line, so joining them gives the text."""
        with open_binary(self.path) as file:
            text = TextIOWrapper(file, encoding=self.encoding, newline="\n")
            try:
                yield from self.checked(text)
            finally:
                text.detach()  # who opened the file closes it

    def checked(self, text: TextIOWrapper) -> Iterator[str]:
        number = 0
        try:
            while line := text.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise DocumentError(f"{self.path}: line {number} is longer than {LONGEST >> 20} MB")
                if "\0" in line:
                    raise DocumentError(f"{self.path}: line {number} is not text (it holds a zero byte)")
                yield line
        except UnicodeDecodeError as error:
            where = self.wrong_line()
            told = f"not {self.encoding} after line {number}"
            if where is not None:
                told = f"line {where} is not {self.encoding}"
            raise DocumentError(f"{self.path}: {told} ({error.reason})") from error

    def wrong_line(self) -> int | None:
        """The line that cannot be decoded, which is read in blocks; None where a line end is more than one byte."""
        if self.encoding.startswith(("utf-16", "utf-32")):
            return None
        with open_binary(self.path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), start=1):
                try:
                    line.decode(self.encoding)
                except UnicodeDecodeError:
                    return number
        return None

    def text(self) -> str:
        """All of it, line ends as they are."""
        with open_binary(self.path) as file:
            return self.decoded(file.read())

    def decoded(self, data: bytes) -> str:
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise DocumentError(f"{self.path}: line {line} is not {self.encoding} ({error.reason})") from error


def known_by_mark(file: BinaryIO) -> str | None:
    """The encoding that a byte order mark names."""
    beginning = file.read(4)
    return next((encoding for mark, encoding in MARKS if beginning.startswith(mark)), None)


def open_text(path: Path) -> EncodedFile:
    """A file of text: UTF-8, or what its byte order mark names."""
    with open_binary(path) as file:
        return EncodedFile(path, known_by_mark(file) or "utf-8")
