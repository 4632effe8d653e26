"""A unit as words and the gaps between them: text for a model, and places to which tags can return.

A word is never split by a tag that returns: a placeholder, a run of letters, a punctuation mark, or a single character
of a script without spaces. An apostrophe belongs to the letters before it.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from knnmt.documents.content import Content, Tag
from knnmt.text.writing_systems import SPACE_AFTER, is_spaceless
from knnmt.units.protected import things

Gap = tuple[str | Tag, ...]  # white space and tags, in order
Span = tuple[int, int]

ONE_SPACE = (" ",)

RUN = re.compile("w+(?:a(?=w))?|cm*|m+|[pa]")  # over the classes of characters


class Classes(dict[int, str]):
    """The class of each character: space, part of a word, a word by itself, a mark on one, apostrophe, punctuation."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if sign.isspace():
            kind = "s"
        elif unicodedata.category(sign)[0] in "LMN" or sign in "_\u200c\u200d\u00ad":
            kind = ("m" if unicodedata.combining(sign) else "c") if is_spaceless(sign) else "w"
        else:
            kind = "a" if sign in "'’" else "p"
        self[code] = kind
        return kind


CLASSES = Classes()


@dataclass(frozen=True, slots=True)
class Flat:
    """Words, and the gaps before, between and after them: one more than words."""

    words: tuple[str, ...]
    gaps: tuple[Gap, ...]

    @property
    def tags(self) -> list[Tag]:
        return [piece for gap in self.gaps for piece in gap if isinstance(piece, Tag)]

    def text(self, first: int = 0, last: int | None = None) -> str:
        """A run of words as a model sees it: no tags, one space where there is white space."""
        last = len(self.words) if last is None else last
        return "".join(self.pieces(first, last))

    def part(self, first: int, last: int) -> "Flat":
        """A run of words without tags."""
        gaps: list[Gap] = [(" ",) if at > first and self.is_apart(at) else () for at in range(first, last)]
        return Flat(self.words[first:last], (*gaps, ()))

    def pieces(self, first: int, last: int) -> Iterator[str]:
        for at in range(first, last):
            if at > first and self.is_apart(at):
                yield " "
            yield self.words[at]

    def spans(self, first: int, last: int) -> list[Span]:
        """Where each word of a run stands in the run's text."""
        spans, end = [], 0
        for at in range(first, last):
            start = end + (at > first and self.is_apart(at))
            end = start + len(self.words[at])
            spans.append((start, end))
        return spans

    def is_apart(self, at: int) -> bool:
        """Whether a model sees a space in the gap before a word."""
        gap = self.gaps[at]
        if gap == ONE_SPACE:  # nearly always
            return True
        return bool(gap) and (bool(white(gap)) or self.is_glued(at))

    def is_glued(self, at: int) -> bool:
        """Whether only tags part two words: `one.<br/>Two`, `<td>one</td><td>two</td>`, but not `<b>F</b>ile`."""
        gap = self.gaps[at]
        if not gap or white(gap) or not 0 < at < len(self.words):
            return False
        kinds = [piece.kind for piece in gap if isinstance(piece, Tag)]
        parts = "empty" in kinds or ("close" in kinds and "open" in kinds[kinds.index("close") :])
        return parts and are_words(self.words[at - 1], self.words[at])

    def white_text(self) -> str:
        """The whole text with its own white space, for a splitter that knows paragraphs."""
        pieces = [white(self.gaps[0])]
        for at, word in enumerate(self.words, start=1):
            pieces += [word, white(self.gaps[at]) or (" " if at < len(self.words) and self.is_glued(at) else "")]
        return "".join(pieces)


def are_words(left: str, right: str) -> bool:
    """Whether a space belongs between two words that only tags part."""
    if CLASSES[ord(right[0])] != "w":
        return False
    return CLASSES[ord(left[-1])] == "w" or (left[-1] in SPACE_AFTER and right[0].isalpha())


def white(gap: Gap) -> str:
    """The white space of a gap."""
    if len(gap) < 2:  # nearly always
        return gap[0] if gap and isinstance(gap[0], str) else ""
    return "".join(piece for piece in gap if isinstance(piece, str))


def flattened(content: Content) -> Flat:
    """Words and gaps of a unit; a tag inside a word splits it in two."""
    standing: list[tuple[int, Tag]] = []  # tags with the offset at which they stand in the text
    text = ""
    for piece in content:
        if isinstance(piece, Tag):
            standing.append((len(text), piece))
        else:
            text += piece
    words = [*split_at(spans_of_words(text), {at for at, _ in standing})]
    starts, ends = [start for start, _ in words], [end for _, end in words]
    gaps = zip([0, *ends], [*starts, len(text)], strict=True)
    waiting = deque(standing)
    return Flat(tuple(text[start:end] for start, end in words), tuple(gap_of(text, *gap, waiting) for gap in gaps))


def split_at(spans: Sequence[Span], cuts: set[int]) -> Iterator[Span]:
    for start, end in spans:
        bounds = [start, *sorted(cut for cut in cuts if start < cut < end), end] if cuts else [start, end]
        yield from pairwise(bounds)


def gap_of(text: str, start: int, end: int, waiting: deque[tuple[int, Tag]]) -> Gap:
    """White space from one word to the next, with the tags that stand in it; those are taken off the queue."""
    pieces: list[str | Tag] = []
    while waiting and waiting[0][0] <= end:
        at, tag = waiting.popleft()
        pieces += [text[start:at], tag]
        start = at
    return tuple(piece for piece in (*pieces, text[start:end]) if piece != "")


def spans_of_words(text: str) -> list[Span]:
    """Where the words of a text stand; everything between them is white space."""
    spans: list[Span] = []
    at = 0
    for thing in things(text):
        spans += runs(text, at, thing.start)
        spans.append((thing.start, thing.end))
        at = thing.end
    return [*spans, *runs(text, at, len(text))]


def runs(text: str, start: int, end: int) -> list[Span]:
    classes = text[start:end].translate(CLASSES)
    return [(start + found.start(), start + found.end()) for found in RUN.finditer(classes)]


def joined_content(pieces: Sequence[str | Tag]) -> Content:
    """Content with neighbouring texts joined and empty ones left out."""
    content: list[str | Tag] = []
    for piece in pieces:
        if isinstance(piece, str) and content and isinstance(content[-1], str):
            content[-1] += piece
        elif piece != "":
            content.append(piece)
    return tuple(content)
