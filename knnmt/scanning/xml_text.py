"""XML as text: checked by expat, then read as tokens with their offsets, so that a stretch can be replaced.

Serialising a parsed tree would change declarations, quotes, entities and line ends.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from xml.parsers import expat

from knnmt.errors import DocumentError
from knnmt.scanning.encodings import MARK, EncodedFile, known_by_mark
from knnmt.text.inputs import codec_like_ascii, open_binary

DEEPEST = 200  # elements inside each other: no document has as many, and nesting must not exhaust the stack
BLOCK = 1 << 16
BEGINNING = 1 << 10  # bytes that may hold the declaration

DECLARATION = re.compile(r"<\?xml\s[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
TOKEN = re.compile(
    r"""
      (?P<comment><!--.*?-->)
    | (?P<cdata><!\[CDATA\[.*?\]\]>)
    | (?P<instruction><\?.*?\?>)
    | (?P<doctype><!DOCTYPE(?>[^\["'>]|"[^"]*"|'[^']*'
          |\[(?><!--.*?-->|<\?.*?\?>|"[^"]*"|'[^']*'|[^\]"'])*\])*>)
    | (?P<end></[^>]*>)
    | (?P<start><(?>[^>"']|"[^"]*"|'[^']*')*>)
    | (?P<text>[^<]+)
    """,
    re.VERBOSE | re.DOTALL,
)
NAME = re.compile(r"</?([^\s/>]+)")
ATTRIBUTE = re.compile(r"""([^\s=/<>"']+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
REFERENCE = re.compile(r"&(#[0-9]+|#x[0-9A-Fa-f]+|[^;&\s]+);")
PREDEFINED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
ITS = "http://www.w3.org/2005/11/its"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True, eq=False)
class Node:
    """An element, or a comment, CDATA section or processing instruction inside one, by its places in the text."""

    kind: str
    start: int
    opened: int  # the end of its start tag
    tag: str  # the start tag, or all of what is not an element
    closed: int = 0  # the start of its end tag
    end: int = 0
    own: bool = True  # in the namespace of the root
    children: list["Node"] = field(default_factory=list)
    qualified: str = ""  # its name with its prefix; empty where it is no element
    name: str = ""

    def __post_init__(self) -> None:
        match = NAME.match(self.tag) if self.kind == "start" else None
        if match is not None:
            self.qualified = match.group(1)
            self.name = self.qualified.rpartition(":")[2]

    @property
    def prefix(self) -> str:
        """Of names beside this one: `xlf:` or nothing."""
        before, colon, _ = self.qualified.rpartition(":")
        return before + colon

    @property
    def is_empty(self) -> bool:
        return self.tag.endswith("/>")

    def get(self, name: str, default: str = "") -> str:
        """An attribute by its name with its prefix."""
        if name not in self.tag:
            return default
        for key, double, single in ATTRIBUTE.findall(self.tag):
            if key == name:
                return resolved(double or single)
        return default

    def find(self, name: str) -> "Node | None":
        """The first child of that name in the root's namespace."""
        return next((child for child in self.children if child.own and child.name == name), None)

    def every(self, name: str) -> "list[Node]":
        return [child for child in self.children if child.own and child.name == name]


def resolved(raw: str) -> str:
    """Text without references; KeyError names an entity that XML itself does not have."""
    return REFERENCE.sub(lambda match: character_of(match.group(1)), raw) if "&" in raw else raw


def character_of(name: str) -> str:
    if name.startswith("#x"):
        return chr(int(name[2:], 16))
    return chr(int(name[1:])) if name.startswith("#") else PREDEFINED[name]


@dataclass(frozen=True, slots=True)
class XmlSpelling:
    """How a stretch of XML spells its characters: as references where it does so, with its own line ends."""

    references: dict[str, str]
    line_end: str
    in_cdata: bool

    @classmethod
    def of(cls, raw: str) -> "XmlSpelling":
        spelled = {character_of(name): f"&{name};" for name in REFERENCE.findall(raw) if is_known(name)}
        plain = set(REFERENCE.sub("", raw)) if spelled else set()
        references = {letter: reference for letter, reference in spelled.items() if letter not in plain}
        cdata = raw.startswith("<![CDATA[") and raw.endswith("]]>") and raw.count("]]>") == 1
        return cls({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | references, "\r\n" if "\r\n" in raw else "\n", cdata)

    def __call__(self, text: str) -> str:
        wrong = NOT_XML.search(text)
        if wrong:
            raise DocumentError(f"a translation has the character {wrong.group()!r}, which XML cannot hold")
        if self.in_cdata and "]]>" not in text:
            written = f"<![CDATA[{text}]]>"
        else:
            written = "".join(self.references.get(letter, letter) for letter in text)
        return written.replace("\n", self.line_end) if self.line_end != "\n" else written


def is_known(name: str) -> bool:
    return name.startswith("#") or name in PREDEFINED


class Namespaces:
    """The namespaces that the open elements declare."""

    def __init__(self) -> None:
        self.stack: list[dict[str, str]] = [{"xml": "http://www.w3.org/XML/1998/namespace"}]

    def enter(self, tag: str) -> None:
        declared = {}
        if "xmlns" in tag:
            for key, double, single in ATTRIBUTE.findall(tag):
                if key == "xmlns" or key.startswith("xmlns:"):
                    declared[key[6:]] = double or single
        self.stack.append(self.stack[-1] | declared if declared else self.stack[-1])

    def leave(self) -> None:
        self.stack.pop()

    def namespace_of(self, qualified: str) -> str:
        return self.stack[-1].get(qualified.rpartition(":")[0], "")

    def prefix_of(self, namespace: str) -> str | None:
        """A prefix that is bound to a namespace here."""
        return next((prefix for prefix, bound in self.stack[-1].items() if bound == namespace and prefix), None)


@dataclass(frozen=True)
class XmlText:
    """A well-formed file and its encoding."""

    path: Path
    encoding: str

    @cached_property
    def text(self) -> str:
        return EncodedFile(self.path, self.encoding).text()

    def tokens(self) -> Iterator[re.Match[str]]:
        return TOKEN.finditer(self.text)


Seen = Callable[[str, dict[str, str]], None]  # told the local name and the attributes of every element


def open_xml(path: Path, seen: Seen) -> XmlText:
    """A file that expat accepts; declared entities are refused, since they may expand without end."""
    with open_binary(path) as file:
        beginning = file.read(BEGINNING)
        file.seek(0)
        marked = known_by_mark(file)
    document = XmlText(path, encoding_of(beginning, marked, path))
    check(document, seen)
    return document


def encoding_of(beginning: bytes, marked: str | None, path: Path) -> str:
    """By the byte order mark, by the first character where it takes two bytes, or by the declaration."""
    if marked is not None:
        return marked
    for encoding in ("utf-16-le", "utf-16-be"):
        if beginning.startswith("<?xml".encode(encoding)):
            return encoding
    match = DECLARATION.match(beginning.decode("latin-1"))
    name = match.group(1) if match else "utf-8"
    known = codec_like_ascii(name, "<?xml")
    if known is None:
        raise DocumentError(f"{path}: declares the encoding {name!r}, which cannot be read")
    return known


def check(document: XmlText, seen: Seen) -> None:
    """One pass of expat over the decoded text, whose own encoding it may not know."""
    parser = expat.ParserCreate("utf-8", " ")  # a separator makes it check prefixes
    depth = 0

    def deeper(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        seen(name.rpartition(" ")[2], attributes)
        if depth > DEEPEST:
            raise DocumentError(f"{document.path}: more than {DEEPEST} elements inside each other")

    def back(name: str) -> None:  # noqa: ARG001
        nonlocal depth
        depth -= 1

    def declared(name: str, *facts: object) -> None:  # noqa: ARG001
        raise DocumentError(f"{document.path}: declares the entity {name!r}; entities are not resolved")

    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = deeper, back, declared
    text = document.text
    try:
        for start in range(1 if text.startswith(MARK) else 0, len(text), BLOCK):
            parser.Parse(text[start : start + BLOCK].encode())
        parser.Parse(b"", True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise DocumentError(f"{document.path}: broken XML: {expat_reason(error)}") from error


def expat_reason(error: Exception) -> str:
    if not isinstance(error, expat.ExpatError):
        return "it holds half a character"
    return f"{expat.ErrorString(error.code)} (line {error.lineno})"
