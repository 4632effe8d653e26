"""SRT and WebVTT: the text of cues is translated; numbers, times, settings, notes and styles stay."""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from knnmt.documents.content import Content, DocumentUnit, Tag, UnitResult, plain_text
from knnmt.documents.document import DocumentOptions, Piece, Slot, SplicedDocument
from knnmt.documents.passages import Tags
from knnmt.documents.plain import around
from knnmt.errors import DocumentError
from knnmt.scanning.encodings import MARK, EncodedFile, open_text
from knnmt.text.inputs import LONGEST, ending_of

TIMES = re.compile(r"\s*(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}\s+-->\s+(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}")
# <i>, </c.loud>, <v Anna>, <00:00:01.000>, and {\an8} of SubStation that many SRT files have.
TAG = re.compile(r"<(/?)([A-Za-z]+)(?:[.\s][^<>]*)?>|<\d[\d:.]*>|\{\\[^{}]*\}")
SPEAKER = re.compile(r"\s*[-–—]\s*\S")


def open_subtitles(path: Path, options: DocumentOptions) -> SplicedDocument:  # noqa: ARG001
    file = open_text(path)
    kind = ending_of(path)[1:].upper()
    if kind == "VTT" and not next(iter(file.lines()), "").removeprefix(MARK).startswith("WEBVTT"):
        raise DocumentError(f"{path}: not WebVTT: its first line is not WEBVTT")
    return SplicedDocument(path, kind, file.encoding, partial(pieces, file, kind == "VTT"))


def pieces(file: EncodedFile, escaped: bool) -> Iterator[Piece]:
    found = 0
    for block in blocks_of(file):
        at = next((at for at, line in enumerate(block.lines[:2]) if TIMES.match(line.removeprefix(MARK))), None)
        if at is None:
            yield "".join(block.lines)
            continue
        found += 1
        yield "".join(block.lines[: at + 1])
        yield from cue_pieces(block, at + 1, escaped, f"{file.path}: line {block.number + at}")
    if not found and not escaped and any(line.strip(f"{MARK}\r\n ") for line in file.lines()):
        raise DocumentError(f"{file.path}: not SRT: it has no line of times such as 00:00:01,000 --> 00:00:02,000")


@dataclass(slots=True)
class Block:
    """Lines up to a blank one, and the blank ones after them."""

    number: int
    lines: list[str] = field(default_factory=list)


def blocks_of(file: EncodedFile) -> Iterator[Block]:
    block, blank, size = Block(1), False, 0
    for number, line in enumerate(file.lines(), start=1):
        if blank and line.strip():
            yield block
            block, size = Block(number), 0
        blank = not line.strip()
        block.lines.append(line)
        size += len(line)
        if size > LONGEST:
            raise DocumentError(f"{file.path}: the cue at line {block.number} is longer than {LONGEST >> 20} MB")
    yield block


def cue_pieces(block: Block, first: int, escaped: bool, place: str) -> Iterator[Piece]:
    """The text of a cue: one unit, or one for each speaker."""
    lines = block.lines[first:]
    text = [line for line in lines if line.strip()]
    for part in parts_of(text):
        cue = Cue(part, escaped)
        yield from cue.pieces(place)
    yield "".join(lines[len(text) :])


def parts_of(lines: list[str]) -> Iterable[list[str]]:
    """Lines that begin with a dash are what different people say."""
    if len(lines) > 1 and all(SPEAKER.match(line) for line in lines):
        return [[line] for line in lines]
    return [lines] if lines else []


@dataclass(frozen=True, slots=True)
class Cue:
    lines: list[str]
    escaped: bool  # WebVTT writes < and & as references

    def pieces(self, place: str) -> Iterator[Piece]:
        before, text, after = around("".join(self.lines))
        content = self.content_of(text)
        yield before
        if any(isinstance(piece, str) and piece.strip() for piece in content):
            yield Slot((DocumentUnit(0, content, place),), partial(self.written, text, content))
        else:
            yield text
        yield after

    def content_of(self, text: str) -> Content:
        """Line breaks are spaces to a model."""
        tags, done = Tags(), 0
        for match in TAG.finditer(text):
            tags.text(self.plain(text[done : match.start()]))
            self.add_tag(match, tags)
            done = match.end()
        tags.text(self.plain(text[done:]))
        return tags.content()

    def add_tag(self, match: re.Match[str], tags: Tags) -> None:
        name = (match.group(2) or "").lower()
        if not name:
            tags.empty(match.group())
        elif match.group(1):
            tags.close(match.group(), name)
        else:
            tags.open(match.group(), name)

    def plain(self, raw: str) -> str:
        first, *others = raw.split("\n")
        text = first
        for line in others:
            text = text.rstrip(" \t\r") + " " + line.lstrip(" \t")
        return html.unescape(text) if self.escaped else text

    def written(self, raw: str, content: Content, results: tuple[UnitResult, ...]) -> str:
        """The translation in as many lines as the source has, of about the same length each."""
        target = results[0].target
        if target == content:
            return raw
        line_end = "\r\n" if "\r\n" in raw else "\n"
        visible = plain_text(target)
        breaks, out, done = break_places(visible, raw.count("\n") + 1), [], 0
        for piece in target:
            if isinstance(piece, Tag):
                out.append(piece.markup)
                continue
            places = [place - done for place in breaks if done <= place < done + len(piece)]
            out.append(line_end.join(self.spelled(part) for part in cut_at(piece, places)))
            done += len(piece)
        return "".join(out)

    def spelled(self, text: str) -> str:
        text = text.replace("\n", " ")
        return html.escape(text, quote=False) if self.escaped else text


def break_places(text: str, count: int) -> list[int]:
    """The spaces at which a text is broken into lines of about the same length."""
    spaces = [place for place, letter in enumerate(text) if letter == " "]
    chosen: list[int] = []
    for line in range(1, count):
        wanted = len(text) * line / count
        left = [place for place in spaces if not chosen or place > chosen[-1]]
        if left:
            chosen.append(min(left, key=lambda place: abs(place - wanted)))
    return chosen


def cut_at(text: str, places: list[int]) -> list[str]:
    """The text without the spaces at these places, which divide it."""
    edges = [-1, *places, len(text)]
    return [text[start + 1 : end] for start, end in pairwise(edges)]
