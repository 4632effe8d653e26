"""Line breaks inside a unit: those with a meaning, and those where a text was only wrapped.

In a catalogue or a table a line break is part of the text. What was a list must not become one line, columns stay
columns, and what was wrapped to a width is wrapped to it again.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from knnmt.units.flat import Flat, Gap, Span, white

NARROW = 40  # characters: no text is wrapped to less
FEW = 3  # words: what stands in fewer is a label
ITEM = re.compile(r"[-–—*+•·#>|]|\(?\w{1,2}[.)]\s")  # how an item of a list begins, or a line of a table
ENDS = ".:;!?…。：；！？"
COLUMNS = re.compile(r"\t| {2,}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a unit."""

    words: Span
    text: str
    indent: str

    @property
    def width(self) -> int:
        return len(self.indent) + len(self.text)


def lines_of(flat: Flat) -> list[Line]:
    """The lines that have words."""
    breaks = [at for at in range(1, len(flat.words)) if "\n" in white(flat.gaps[at])]
    spans = pairwise([0, *breaks, len(flat.words)])
    return [Line(span, flat.text(*span), white(flat.gaps[span[0]]).rpartition("\n")[2]) for span in spans]


def ends_of_lines(flat: Flat) -> list[int]:
    """The gaps at which a text must be cut, so that lines and columns stay."""
    columns = [at for at in range(1, len(flat.words)) if COLUMNS.search(white(flat.gaps[at]).strip("\r\n"))]
    return sorted({*columns, *hard_breaks(flat)})


def hard_breaks(flat: Flat) -> list[int]:
    lines = lines_of(flat)
    width = max((line.width for line in lines), default=0)
    return [after.words[0] for before, after in pairwise(lines) if is_hard(flat, before, after, width)]


def is_hard(flat: Flat, before: Line, after: Line, width: int) -> bool:
    """Whether a line ended for a reason of its own."""
    if white(flat.gaps[after.words[0]]).count("\n") > 1 or after.indent != before.indent:
        return True
    if ITEM.match(after.text) or before.text[-1] in ENDS:
        return True
    if width >= NARROW and before.width + 1 + len(after.text.split()[0]) > width:
        return False  # the next word had no room
    return not after.text[0].islower() or len(before.text.split()) < FEW


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How a unit's text was wrapped: its width, and what stood at the ends of its lines."""

    width: int
    line_end: str


def wrapping_of(flat: Flat) -> Wrapping | None:
    """None where no line was wrapped."""
    lines = lines_of(flat)
    hard = set(hard_breaks(flat))
    soft = [line.words[0] for line in lines[1:] if line.words[0] not in hard]
    return Wrapping(max(line.width for line in lines), white(flat.gaps[soft[0]])) if soft else None


def line_ends(flat: Flat) -> int:
    """How many lines end inside a text."""
    return sum("\n" in white(gap) for gap in flat.gaps[1:-1])


def is_wrapped(flat: Flat, span: Span) -> bool:
    """Whether a run of words goes over more than one line."""
    return any("\n" in white(flat.gaps[at]) for at in range(span[0] + 1, span[1]))


def wrapped_again(target: Flat, spans: Sequence[Span], how: Wrapping) -> Flat:
    """The target with lines broken in some runs of its words, where they would be longer than the source's."""
    free = {at for first, last in spans for at in range(first + 1, last)}
    return Flat(target.words, tuple(broken(target, free, how)))


def broken(target: Flat, free: set[int], how: Wrapping) -> Iterator[Gap]:
    column = 0
    for at, gap in enumerate(target.gaps):
        space = white(gap)
        if space == " " and at in free and column + 1 + length_of_run(target, at) > how.width:
            gap, space = (how.line_end,), how.line_end
        column = len(space.rpartition("\n")[2]) + (0 if "\n" in space else column)
        column += len(target.words[at]) if at < len(target.words) else 0
        yield gap


def length_of_run(target: Flat, at: int) -> int:
    """The length of the run of words that belong together from here on."""
    length = len(target.words[at])
    while at + 1 < len(target.words) and not white(target.gaps[at + 1]):
        at += 1
        length += len(target.words[at])
    return length
