"""A passage: text with inline markup in the spelling of a file, and how its translation is written there.

Some markup holds text of its own (`alt` of an image, `sub` in XLIFF): a nested passage, which is a unit of its own.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from knnmt.documents.content import Content, DocumentUnit, Tag, UnitResult, plain_text
from knnmt.documents.document import Slot

Spell = Callable[[str], str]  # plain text to the file's own way of writing it


@dataclass(frozen=True, slots=True)
class Nested:
    """A passage inside the markup of a tag."""

    tag: int  # its place in the content
    start: int  # of the passage in the tag's markup
    end: int
    passage: "Passage"


@dataclass(frozen=True, slots=True)
class Passage:
    """What a stretch of a file says, and how it says it."""

    content: Content
    raw: str
    spell: Spell
    nested: tuple[Nested, ...] = field(default=())

    @property
    def has_text(self) -> bool:
        return any(not letter.isspace() for letter in plain_text(self.content))

    def parts(self) -> "Iterator[Passage]":
        """The passages that are units: this one and those inside its tags, if they have text."""
        if self.has_text:
            yield self
        for nested in self.nested:
            yield from nested.passage.parts()

    def written(self, results: Iterator[UnitResult]) -> str:
        """The passage with a result for each of its parts; unchanged text is written as it was."""
        target = next(results).target if self.has_text else self.content
        changed = {tag: markup for tag, markup in self.new_markup(results) if markup != self.markup_of(tag)}
        if target == self.content and not changed:
            return self.raw
        renewed: dict[Tag, deque[str]] = defaultdict(deque)  # equal tags are renewed in their order
        for place, piece in enumerate(self.content):
            if isinstance(piece, Tag):
                renewed[piece].append(changed.get(place, piece.markup))
        return "".join(self.spell(piece) if isinstance(piece, str) else renewed[piece].popleft() for piece in target)

    def markup_of(self, place: int) -> str:
        tag = self.content[place]
        return tag.markup if isinstance(tag, Tag) else tag

    def new_markup(self, results: Iterator[UnitResult]) -> Iterator[tuple[int, str]]:
        """Tags by their place, with what is nested in them translated."""
        inside: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for nested in self.nested:
            inside[nested.tag].append((nested.start, nested.end, nested.passage.written(results)))
        for place, changes in inside.items():
            yield place, spliced(self.markup_of(place), changes)


def spliced(text: str, changes: list[tuple[int, int, str]]) -> str:
    """The text with stretches replaced; they are in order and do not overlap."""
    pieces, done = [], 0
    for start, end, new in changes:
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]])


def slot_of(passage: Passage, place: str, *, context: str | None = None) -> Slot | None:
    """A slot that the passage fills; None where it has nothing to translate."""
    units = tuple(DocumentUnit(0, part.content, place, context) for part in passage.parts())
    return Slot(units, partial(passage_text, passage)) if units else None


def passage_text(passage: Passage, results: tuple[UnitResult, ...]) -> str:
    return passage.written(iter(results))


class Tags:
    """Content as it is gathered: neighbouring texts are joined, and tags are paired where they nest."""

    def __init__(self) -> None:
        self.pieces: list[str | Tag] = []
        self.keys: dict[int, str] = {}  # the place of an opening or closing tag, and what its partner has too
        self.nested: list[Nested] = []

    def text(self, text: str) -> None:
        if text and self.pieces and isinstance(self.pieces[-1], str):
            self.pieces[-1] += text
        elif text:
            self.pieces.append(text)

    def empty(self, markup: str) -> int:
        self.pieces.append(Tag(markup))
        return len(self.pieces) - 1

    def open(self, markup: str, key: str) -> int:
        self.pieces.append(Tag(markup, "open"))
        self.keys[len(self.pieces) - 1] = key
        return len(self.pieces) - 1

    def close(self, markup: str, key: str) -> int:
        self.pieces.append(Tag(markup, "close"))
        self.keys[len(self.pieces) - 1] = key
        return len(self.pieces) - 1

    def markup_at(self, place: int) -> str:
        piece = self.pieces[place]
        return piece.markup if isinstance(piece, Tag) else ""

    def nest(self, tag: int, start: int, end: int, passage: Passage) -> None:
        self.nested.append(Nested(tag, start, end, passage))

    def content(self) -> Content:
        pairs = nesting_pairs([(at, self.kind_at(at), self.keys[at]) for at in sorted(self.keys)])
        return tuple(
            Tag(piece.markup, piece.kind, pairs.get(at)) if isinstance(piece, Tag) else piece
            for at, piece in enumerate(self.pieces)
        )

    def kind_at(self, place: int) -> str:
        piece = self.pieces[place]
        return piece.kind if isinstance(piece, Tag) else ""


def nesting_pairs(marks: list[tuple[int, str, str]]) -> dict[int, int]:
    """Numbers of pairs by the places of their tags, from (place, kind, key).

    Tags whose partner is missing or that overlap with another pair stand alone.
    """
    pairs: dict[int, int] = {}
    stack: list[tuple[int, str]] = []
    waiting: dict[str, int] = defaultdict(int)
    for place, kind, key in marks:
        if kind == "open":
            stack.append((place, key))
            waiting[key] += 1
        elif waiting[key]:
            while stack[-1][1] != key:  # opened inside, not closed inside
                waiting[stack.pop()[1]] -= 1
            opened, _ = stack.pop()
            waiting[key] -= 1
            pairs[opened] = pairs[place] = len(pairs) // 2 + 1
    return pairs
