"""XML of strangers, one unit at a time: entities and the network off, and nothing kept that has been read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from lxml import etree

from knnmt.errors import CorpusError
from knnmt.text.inputs import LONGEST

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

    @property
    def short(self) -> str:
        return self.name.split()[-1]


class Metered:
    """A file that ends with an error when the parser has had too much of it without finishing a unit."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.taken += len(data)
        if self.taken > LONGEST:
            raise CorpusError(f"{self.name}: more than {LONGEST >> 20} MB without the end of a unit")
        return data


def read_units(file: BinaryIO, name: str, dialect: Dialect) -> Iterator[Any]:
    """One element a unit, emptied when the next is asked for."""
    metered = Metered(file, name)
    events = etree.iterparse(metered, tag=[f"{{*}}{tag}" for tag in (dialect.unit, *dialect.around)], **SAFELY)
    done = 0
    try:
        for _, element in events:
            if etree.QName(element).localname == dialect.unit:
                yield element
                done += 1
                metered.taken = 0
            forget(element)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{name}: broken {dialect.short} after unit {done}: {reason_of(error, events)}") from error


def read_root(file: BinaryIO, name: str, dialect: Dialect) -> dict[str, str]:
    """The attributes of the first element, by which another kind of file is known before all of it is in memory."""
    events = etree.iterparse(Metered(file, name), events=("start",), **SAFELY)
    try:
        _, root = next(events)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{name}: not {dialect.name} file: {reason_of(error, events)}") from error
    kind = etree.QName(root).localname
    if kind != dialect.root:
        raise CorpusError(f"{name}: not {dialect.name} file: its first element is <{kind}>, not <{dialect.root}>")
    file.seek(0)
    return {str(key): str(value) for key, value in root.attrib.items()}


def reason_of(error: Any, events: Any) -> str:
    """What the parser says, in one line; its log knows of undefined entities, the exception does not."""
    last = events.error_log.last_error
    return " ".join((f"{last.message} (line {last.line})" if last else str(error.msg)).split())


def forget(element: Any) -> None:
    """Free an element that has been read, and the empty shells of those before it."""
    element.clear()
    while element.getprevious() is not None:
        del element.getparent()[0]


def text_inside(element: Any, name: str, number: int) -> str:
    """All text of an element; an entity in it is an error, since leaving it out would change the text."""
    if len(element) == 0:
        return str(element.text or "")
    for entity in element.iter(etree.Entity):
        raise CorpusError(f"{name}: unit {number} uses the entity {entity.text}; entities are not resolved")
    return "".join(element.itertext())
