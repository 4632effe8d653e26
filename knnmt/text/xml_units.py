"""Untrusted XML, one unit at a time: no entities, no network, and elements are freed after use."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from lxml import etree

from knnmt.errors import CorpusError
from knnmt.text.inputs import LONGEST
from knnmt.text.writing_systems import SPACE_AFTER

MOST_TAGS = 1 << 19  # between the ends of two units

LANG = "{http://www.w3.org/XML/1998/namespace}lang"

# Entities and the network stay off: a memory comes from strangers.
SAFELY = {"resolve_entities": False, "no_network": True, "load_dtd": False}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of XML file that holds units."""

    name: str  # with its article, as in "not an XLIFF file"
    root: str
    unit: str
    around: tuple[str, ...] = ()  # elements that hold units; emptied when they end
    declares: tuple[str, ...] = ()  # attributes of the root that a reader needs

    @property
    def short(self) -> str:
        return self.name.split()[-1]


class Metered:
    """A file that raises when the parser has read too much without the end of a unit.

    Tags are limited too, because a tag of six bytes becomes a node of more than a hundred.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.taken = self.tags = 0

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.taken += len(data)
        self.tags += data.count(b"<")
        if self.taken > LONGEST:
            raise CorpusError(f"{self.name}: more than {LONGEST >> 20} MB without the end of a unit")
        if self.tags > MOST_TAGS:
            raise CorpusError(f"{self.name}: more than {MOST_TAGS:,} tags without the end of a unit")
        return data

    def unit_ended(self) -> None:
        self.taken = self.tags = 0


def read_units(file: BinaryIO, name: str, dialect: Dialect) -> Iterator[Any]:
    """Yield one element per unit. It is emptied when the next one is requested."""
    metered = Metered(file, name)
    events = etree.iterparse(metered, tag=[f"{{*}}{tag}" for tag in (dialect.unit, *dialect.around)], **SAFELY)
    done = 0
    try:
        for _, element in events:
            if local_name(element) == dialect.unit:
                yield element
                done += 1
                metered.unit_ended()
            forget(element)
    except etree.XMLSyntaxError as error:
        raise CorpusError(
            f"{name}: broken {dialect.short} after unit {done}: {parser_reason(error, events)}"
        ) from error


def read_root(file: BinaryIO, name: str, dialect: Dialect) -> dict[str, str]:
    """The attributes of the root. Another kind of file is recognised before it is read as a whole."""
    events = etree.iterparse(Metered(file, name), events=("start",), **SAFELY)
    try:
        _, root = next(events)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{name}: not {dialect.name} file: {parser_reason(error, events)}") from error
    kind = local_name(root)
    if kind != dialect.root:
        raise CorpusError(f"{name}: not {dialect.name} file: its first element is <{kind}>, not <{dialect.root}>")
    file.seek(0)
    return {key: str(root.get(key)) for key in dialect.declares if root.get(key) is not None}


def local_name(element: Any) -> str:
    """The name without its namespace. An undeclared prefix stays, and the parser reports it later."""
    return str(element.tag).rpartition("}")[2]


def parser_reason(error: Any, events: Any) -> str:
    """The parser's message in one line. Undefined entities are only in its log, not in the exception."""
    last = events.error_log.last_error
    return " ".join((f"{last.message} (line {last.line})" if last else str(error.msg)).split())


def forget(element: Any) -> None:
    """Free an element and the empty elements before it."""
    element.clear()
    while element.getprevious() is not None:
        del element.getparent()[0]


def text_inside(element: Any, name: str, number: int) -> str:
    """All text of an element. An entity is an error, because leaving it out would change the text."""
    if len(element) == 0:
        return str(element.text or "")
    for entity in element.iter(etree.Entity):
        raise unresolved(entity, name, number)
    return "".join(element.itertext())


class Mark(str):
    """The place of a tag among pieces of text."""

    __slots__ = ()


OPENED, CLOSED, SINGLE = Mark("<"), Mark(">"), Mark("/")


def without_tags(pieces: Iterable[str]) -> str:
    """Pieces of text and marks as the text that a model sees: tags that part two words become a space.

    `one<x/>two`, `one.<x/>Two` and `<g>one</g><g>two</g>` are two words, `<g>F</g>ile` is one.
    """
    text: list[str] = []
    tags = ""  # since the last piece of text
    for piece in pieces:
        if isinstance(piece, Mark):
            tags += piece
        elif piece:
            apart = SINGLE in tags or CLOSED + OPENED in tags
            if apart and text and are_words(text[-1][-1], piece[0]):
                text.append(" ")
            text.append(piece)
            tags = ""
    return "".join(text)


def are_words(left: str, right: str) -> bool:
    """Whether a space belongs between two characters that only tags part."""
    return (left.isalnum() and right.isalnum()) or (left in SPACE_AFTER and right.isalpha())


def mark_of(kind: str) -> Mark:
    """The mark of a single tag, by the name of its element."""
    if kind in ("bpt", "bx", "sc"):
        return OPENED
    return CLOSED if kind in ("ept", "ex", "ec") else SINGLE


def unresolved(entity: Any, name: str, number: int) -> CorpusError:
    return CorpusError(f"{name}: unit {number} uses the entity {entity.text}; entities are not resolved")
