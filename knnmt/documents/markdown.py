"""Markdown: the text of paragraphs, headings, list items and table cells; code and front matter stay."""

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from markdown_it.token import Token

from knnmt.documents.content import UnitResult
from knnmt.documents.document import DocumentOptions, Piece, Slot, SplicedDocument
from knnmt.documents.html import html_pieces
from knnmt.documents.markdown_inline import MarkdownSpelling, guarded_start, parser, passage_of
from knnmt.documents.passages import Passage, slot_of
from knnmt.scanning.encodings import MARK, open_text

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
CELLS = ("th_open", "td_open")
# What dialects begin in the middle of a paragraph of CommonMark: a footnote, a definition.
BEGINS = re.compile(r"\[\^[^\]\s]+\]:|:[ \t]+")
# Lines of dialects that are no text: fences of admonitions, and what a template has on a line of its own.
FIXED = re.compile(r":{3,}|(?:!!!|\?\?\?)\+?[ \t]+[a-z]|\$\$|(?:\{%.*%\}|\{\{[<%].*[%>]\}\})\s*\Z")
FENCES = {"---": ("---", "..."), "+++": ("+++",)}  # of YAML and TOML


def open_markdown(path: Path, options: DocumentOptions) -> SplicedDocument:
    file = open_text(path)
    outline = cache(partial(outlined, file.text))  # read twice at the same time, held once
    return SplicedDocument(path, "Markdown", file.encoding, partial(pieces, outline, options, str(path)))


def pieces(read: Callable[[], "Outline"], options: DocumentOptions, name: str) -> Iterator[Piece]:
    outline = read()
    yield outline.before
    yield from Body(outline, options, name).pieces()


def front_matter_end(text: str) -> int:
    """The offset where the document begins: after its byte order mark and front matter."""
    begin = 1 if text.startswith(MARK) else 0
    first = ""
    for match in LINE.finditer(text, begin):
        line = match.group().rstrip()
        if not first and line not in FENCES:
            break
        if first and line in FENCES[first]:
            return match.end()
        first = first or line
    return begin


@dataclass(frozen=True, slots=True)
class Region:
    """The text of a block in the file, without the prefixes of its lines."""

    start: int
    end: int
    line_break: str  # between its lines, with what stands before each


@dataclass(frozen=True, slots=True)
class Block:
    """What the parser says of a block with text."""

    is_html: bool
    encoded: bytes  # its content in UTF-8: as a string, a text with one emoji takes four bytes a letter
    first: int  # of its lines
    end: int
    in_table: bool
    markup: str  # `##` of a heading

    @property
    def content(self) -> str:
        """Its text without the prefixes of its lines."""
        return self.encoded.decode()


class Sink(list[Token]):
    """The parser's list of tokens, which keeps of each no more than its block: tokens take much memory."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self.around = self.last = Token("", "", 0)

    def append(self, token: Token) -> None:
        """A token is complete when the next one comes."""
        around, done = self.around, self.last
        self.around, self.last = done, token
        if done.map is not None and done.type in ("inline", "html_block") and done.content.strip():
            (first, end), is_html = done.map, done.type == "html_block"
            block = Block(is_html, done.content.encode(), first, end, around.type in CELLS, around.markup)
            self.blocks += parts_of(block)


@dataclass(frozen=True, slots=True)
class Outline:
    """A document's text and its blocks. The inside of each is parsed when it is its turn."""

    before: str  # byte order mark and front matter
    text: str
    starts: "array[int]"  # of its lines
    blocks: list[Block]
    references: dict[str, Any]  # what links by label need


def outlined(read: Callable[[], str]) -> Outline:
    text = read()
    begin = front_matter_end(text)
    before, text = text[:begin], text[begin:]
    ends = (line.end() for line in LINE.finditer(text) if line.group())
    sink, references = Sink(), dict[str, Any]()
    markdown = parser()
    markdown.block.parse(normal_text(text), markdown, references, sink)
    sink.append(Token("", "", 0))
    return Outline(before, text, array("q", chain([0], ends)), sink.blocks, references)


def normal_text(text: str) -> str:
    """The text as the parser takes it; the same object where that is how it stands."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


class Body:
    """A document without its front matter."""

    def __init__(self, outline: Outline, options: DocumentOptions, name: str) -> None:
        self.outline, self.options, self.name = outline, options, name
        self.text, self.starts = outline.text, outline.starts
        self.lines_before = outline.before.count("\n")
        self.parser = parser()
        self.cells: tuple[int, int] = (-1, 0)  # a line of a table, and the place up to which its cells have been found

    def pieces(self) -> Iterator[Piece]:
        done = 0
        for block in self.outline.blocks:
            region = self.region_of(block)
            if region is None or region.start < done:
                continue
            yield self.text[done : region.start]
            yield from self.block(block, region)
            done = region.end
        yield self.text[done:]

    def inside(self, content: str) -> list[Token]:
        children: list[Token] = []
        self.parser.inline.parse(content, self.parser, self.outline.references, children)
        return children

    def block(self, block: Block, region: Region) -> Iterator[Piece]:
        raw = self.text[region.start : region.end]
        line = block.first + 1 + self.lines_before
        if block.is_html:
            yield from html_pieces(raw, self.options, self.name, line)
            return
        children, in_table = self.inside(block.content), block.in_table
        brackets = any(child.type == "text" and ("[" in child.content or "]" in child.content) for child in children)
        spelling = MarkdownSpelling(in_table, region.line_break, brackets)
        passage = passage_of(children, raw, spelling)
        slot = slot_of(passage, f"{self.name}: line {line}")
        yield raw if slot is None else Slot(slot.units, partial(written_block, passage, in_table))

    # Places

    def region_of(self, block: Block) -> Region | None:
        if block.is_html:
            plain = "".join(self.line(at).strip() for at in range(block.first, block.end))
            same = plain == "".join(line.strip() for line in block.content.splitlines())
            return Region(self.starts[block.first], self.starts[block.end], "\n") if same else None
        if block.in_table:
            return self.cell(block.content, block.first)
        if block.markup.startswith("#"):
            return self.heading(block.content, block.first, block.markup)
        return self.paragraph(block.content.split("\n"), block.first)

    def heading(self, content: str, line: int, marks: str) -> Region:
        start = self.text.find(content, self.text.find(marks, self.starts[line]) + len(marks))
        return Region(start, start + len(content), "\n")

    def cell(self, content: str, line: int) -> Region | None:
        """The next cell of a row that has this text; in the file its bars are escaped."""
        pattern = re.compile("".join(r"\\?\|" if letter == "|" else re.escape(letter) for letter in content))
        begin = self.cells[1] if self.cells[0] == line else self.starts[line]
        match = pattern.search(self.text, begin, self.starts[line + 1])
        if match is None:
            return None
        self.cells = (line, match.end())
        return Region(match.start(), match.end(), " ")

    def paragraph(self, lines: list[str], first: int) -> Region | None:
        """From the first line's text to the last line's, each of which ends a line of the file or nearly."""
        start = self.place_in(lines[0], first)
        last = self.place_in(lines[-1], first + len(lines) - 1)
        if start is None or last is None:
            return None
        begin = self.place_in(lines[1], first + 1) if len(lines) > 1 else None
        line_break = "\n" if begin is None else self.text[self.line_end(first) : begin]
        return Region(start, last + len(lines[-1].strip()), line_break)

    def place_in(self, content: str, line: int) -> int | None:
        content = content.strip()
        if line + 1 >= len(self.starts):
            return None
        place = self.text.rfind(content, self.starts[line], self.starts[line + 1])
        return place if place >= 0 else None

    def line_end(self, line: int) -> int:
        """Where the text of a line ends and its line end begins."""
        return self.starts[line] + len(self.line(line).rstrip("\r\n"))

    def line(self, number: int) -> str:
        return self.text[self.starts[number] : self.starts[number + 1]]


def parts_of(block: Block) -> Iterator[Block]:
    """A paragraph of CommonMark as what dialects take it for; lines that are no text are left out."""
    if block.is_html or block.in_table or block.markup:
        yield block
        return
    lines = block.content.split("\n")
    groups: list[list[int]] = []
    is_open = in_formula = False
    for at, line in enumerate(line.strip() for line in lines):
        formula = line.startswith("$$")
        if formula or in_formula or FIXED.match(line):
            in_formula ^= formula and not (len(line) > 3 and line.endswith("$$"))
            is_open = False
        elif is_open and not BEGINS.match(line):
            groups[-1].append(at)
        else:
            groups.append([at])
            is_open = True
    for group in groups:
        content = "\n".join(lines[group[0] : group[-1] + 1])
        yield replace(block, encoded=without_mark(content, group[0]).encode(), first=block.first + group[0])


def without_mark(content: str, at: int) -> str:
    """What begins in the middle, without its indentation and the colon of a definition."""
    return re.sub(r"\A\s*(?::[ \t]+)?", "", content) if at else content


def written_block(passage: Passage, in_table: bool, results: tuple[UnitResult, ...]) -> str:
    """The block's text, so that its first line begins and its last ends nothing else."""
    text = passage.written(iter(results))
    if text == passage.raw or in_table:
        return text
    return re.sub(r"(?<=\s)(#+)\s*\Z", r"\\\1", guarded_start(text))
