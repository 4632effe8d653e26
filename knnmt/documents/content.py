"""The records that a document and a translator exchange: units with their content, and results."""

from dataclasses import dataclass
from typing import Literal

ACCELERATORS = "&_"  # what programs mark them with; gettext's `_` and Qt's `&` cannot be told apart by a file's kind


@dataclass(frozen=True, slots=True)
class Tag:
    """Inline markup inside a unit. It is written back verbatim.

    Markup that protects the text inside it (`<ph>%s</ph>`, `<code>x</code>`) is one empty tag.
    """

    markup: str  # as it stands in the file
    kind: Literal["open", "close", "empty"] = "empty"
    pair: int | None = None  # the same number on an opening tag and its closing tag; None: it stands alone


Content = tuple[str | Tag, ...]  # plain text, unescaped, and tags, in order


def plain_text(content: Content) -> str:
    """The text without tags, as a model sees it."""
    return "".join(piece for piece in content if isinstance(piece, str))


def tags_of(content: Content) -> list[Tag]:
    return [piece for piece in content if isinstance(piece, Tag)]


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a document lets a translation be."""

    most: int
    encoding: str | None = None  # what is counted are its bytes; None: characters

    def size(self, text: str) -> int:
        return len(text if self.encoding is None else text.encode(self.encoding, "surrogatepass"))


@dataclass(frozen=True, slots=True)
class DocumentUnit:
    """A text of a document that is to be translated. White space at its ends belongs to it only where it matters."""

    number: int  # from 1, in the document's order
    source: Content
    place: str  # for messages: "manual.xlf: unit 12"
    context: str | None = None  # msgctxt, id or name: the same text elsewhere may mean something else
    existing: Content | None = None  # an unfinished translation that the document has
    accelerators: str = ""  # signs that may mark one, as in `&Datei`; a single sign is the one that the file names
    has_lines: bool = False  # its line breaks and runs of spaces are part of the text, and not of the file's layout
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A sentence pair of the memory that is near to a unit."""

    source: str
    target: str
    percent: float  # 100: the same text
    origin: str = ""  # the memory or corpus that it came from


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The translation of a unit; `target` has each tag of the source exactly once."""

    target: Content
    origin: Literal["machine", "exact"] = "machine"
    confidence: float | None = None  # 0 to 1
    matches: tuple[Match, ...] = ()  # written where the kind has a place for them
    flags: tuple[str, ...] = ()  # what is doubtful
