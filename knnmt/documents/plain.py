"""Plain text: a unit is a line, or a paragraph, which is wrapped to its old width again."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from knnmt.documents.content import DocumentUnit, UnitResult, plain_text
from knnmt.documents.document import DocumentOptions, Piece, Slot, SplicedDocument
from knnmt.scanning.encodings import MARK, EncodedFile, open_text

BLANK = MARK + "".join(filter(str.isspace, map(chr, range(0x3001))))


def open_plain(path: Path, options: DocumentOptions) -> SplicedDocument:
    file = open_text(path)
    cut = paragraph_pieces if options.paragraphs else line_pieces
    return SplicedDocument(path, "TXT", file.encoding, partial(cut, file))


def around(text: str, blank: str = BLANK) -> tuple[str, str, str]:
    """The white space before the text, the text, and the white space after it."""
    inner = text.strip(blank)
    start = text.find(inner) if inner else len(text)
    return text[:start], inner, text[start + len(inner) :]


def line_pieces(file: EncodedFile) -> Iterator[Piece]:
    for number, line in enumerate(file.lines(), start=1):
        before, text, after = around(line)
        yield before
        if text:
            unit = DocumentUnit(0, (text,), f"{file.path}: line {number}", has_lines=True)  # columns stay columns
            yield Slot((unit,), written_line)
        yield after


def written_line(results: tuple[UnitResult, ...]) -> str:
    """One line: a line break in a translation would make two."""
    return plain_text(results[0].target).replace("\r\n", " ").replace("\n", " ")


@dataclass(slots=True)
class Paragraph:
    """Lines without a blank line between them."""

    number: int
    lines: list[str]

    @property
    def texts(self) -> list[str]:
        return [around(line)[1] for line in self.lines]

    def pieces(self, path: Path) -> Iterator[Piece]:
        first, last = around(self.lines[0]), around(self.lines[-1])
        yield first[0]
        unit = DocumentUnit(0, (" ".join(self.texts),), f"{path}: line {self.number}")
        yield Slot((unit,), self.written)
        yield last[2]

    def written(self, results: tuple[UnitResult, ...]) -> str:
        """The text as it was where it is the same, else filled to the width of the longest line."""
        text = written_line(results)
        if text == " ".join(self.texts):
            body = "".join(self.lines)
            return body[len(around(self.lines[0])[0]) : len(body) - len(around(self.lines[-1])[2])]
        if len(self.lines) == 1:
            return text
        return self.filled(text)

    def filled(self, text: str) -> str:
        _, _, end = around(self.lines[0])
        indent = around(self.lines[1])[0]
        width = max(map(len, self.texts)) + len(indent)
        wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
        return end.lstrip(" \t").join(wrap(text, max(width, 20), subsequent_indent=indent))


def paragraph_pieces(file: EncodedFile) -> Iterator[Piece]:
    for item in paragraphs_of(file.lines()):
        if isinstance(item, str):
            yield item
        else:
            yield from item.pieces(file.path)


def paragraphs_of(lines: Iterable[str]) -> Iterator[str | Paragraph]:
    """Blank lines as they are, and the paragraphs between them."""
    paragraph: Paragraph | None = None
    for number, line in enumerate(lines, start=1):
        if around(line)[1]:
            paragraph = paragraph or Paragraph(number, [])
            paragraph.lines.append(line)
            continue
        if paragraph is not None:
            yield paragraph
            paragraph = None
        yield line
    if paragraph is not None:
        yield paragraph
