"""XLIFF 1.2, 2.0 and 2.1: units without a finished target are translated."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from knnmt.documents.content import Limit
from knnmt.documents.document import DocumentOptions, Piece, SplicedDocument
from knnmt.documents.xliff_units import MATCHES, Setting, Unit1, Unit2, preserves, with_attributes
from knnmt.errors import DocumentError
from knnmt.scanning.xml_text import ITS, Namespaces, Node, XmlText, open_xml
from knnmt.text.languages import listed
from knnmt.text.units import Languages
from knnmt.text.xliff import is_wanted

MOST_TAGS = 1 << 16  # in one unit: each takes far more memory than it has characters
RESTRICTIONS = "urn:oasis:names:tc:xliff:sizerestriction:2.0"
UNKNOWN = "unknown"
# What is counted: bytes of an encoding, or (None) characters.
COUNTED_1 = {"char": None, "byte": "utf-8"}
COUNTED_2: dict[str, dict[str, str | None]] = {
    "size": {"": None, "xliff:codepoints": None},
    "storage": {"": "utf-8", "xliff:utf8": "utf-8", "xliff:utf16": "utf-16-le", "xliff:utf32": "utf-32-le"},
}
UNIT_NAMES = {1: "trans-unit", 2: "unit"}


def open_xliff(path: Path, options: DocumentOptions) -> SplicedDocument:
    found = Found(str(path))
    xml = open_xml(path, found.see)
    document = XliffDocument(xml, options, found.generation)
    source, target = found.check(options)
    return SplicedDocument(
        path, f"XLIFF {found.version}", xml.encoding, document.pieces, source, target, errors="xmlcharrefreplace"
    )


@dataclass(slots=True)
class Found:
    """What the elements of a file say before it is read."""

    name: str
    version: str = ""
    languages: list[tuple[str, str]] = field(default_factory=list)  # of the root (2.x) or of each `file` (1.2)

    @property
    def generation(self) -> int:
        return int(self.version[0])

    def see(self, element: str, attributes: dict[str, str]) -> None:
        if not self.version:
            self.see_root(element, attributes)
        elif element == "file" and self.generation == 1:
            self.languages.append((attributes.get("source-language", ""), attributes.get("target-language", "")))

    def see_root(self, element: str, attributes: dict[str, str]) -> None:
        if element != "xliff":
            raise DocumentError(f"{self.name}: not an XLIFF file: its first element is <{element}>, not <xliff>")
        self.version = attributes.get("version", "")
        if self.version[:2] not in ("1.", "2."):
            raise DocumentError(f"{self.name}: XLIFF of version {self.version!r}; 1.0 to 1.2 and 2.x can be read")
        if self.generation == 2:
            self.languages.append((attributes.get("srcLang", ""), attributes.get("trgLang", "")))

    def check(self, options: DocumentOptions) -> Languages:
        """The languages of the first part that is wanted."""
        wanted = [pair for pair in self.languages if is_wanted(pair, options.source_lang, options.target_lang)]
        if self.languages and not wanted:
            pairs = {" to ".join(filter(None, pair)) for pair in self.languages}
            names = " to ".join(language or "any language" for language in (options.source_lang, options.target_lang))
            raise DocumentError(f"{self.name}: has no text from {names}; it has {listed(pairs)}")
        source, target = wanted[0] if wanted else ("", "")
        if not (source or options.source_lang):
            raise DocumentError(f"{self.name}: names no source language; give it with --source-lang")
        if self.generation == 2 and not (target or options.target_lang):
            raise DocumentError(f"{self.name}: names no target language; give it with --target-lang")
        return source or None, target or None


@dataclass(frozen=True, slots=True)
class Frame:
    """What an element outside units hands down to the units in it."""

    translate: bool = True
    wanted: bool = True
    target_lang: str = ""
    has_lines: bool = False
    profiles: tuple[str, str] = ("", "")  # XLIFF 2: how text, and how its storage is counted


@dataclass(frozen=True, slots=True)
class XliffDocument:
    xml: XmlText
    options: DocumentOptions
    generation: int

    def pieces(self) -> Iterator[Piece]:
        text, done = self.xml.text, 0
        for item in Walk(self).items():
            if isinstance(item, Node):
                yield text[done : item.start]
                yield item.tag
                done = item.opened
                continue
            slot = item.slot()
            if slot is not None:
                yield text[done : item.node.start]
                yield slot
                done = item.node.end
        yield text[done:]


class Walk:
    """One pass over the tokens: start tags that change, and units."""

    def __init__(self, document: XliffDocument) -> None:
        self.document = document
        self.options = document.options
        self.unit_name = UNIT_NAMES[document.generation]
        self.scopes = Namespaces()
        self.frames = [Frame()]
        self.open: list[Node] = []  # the unit and the elements that are open in it
        self.namespace: str | None = None  # of the root
        self.units = 0
        self.nodes = 0  # of the unit

    def items(self) -> Iterator[Node | Unit1 | Unit2]:
        for token in self.document.xml.tokens():
            kind, start, end = token.lastgroup or "", token.start(), token.end()
            if kind == "start":
                yield from self.begin(Node(kind, start, end, token.group(), end, end))
            elif kind == "end":
                yield from self.finish(start, end)
            elif self.open and kind != "text":
                self.open[-1].children.append(Node(kind, start, end, token.group(), end, end))

    def begin(self, node: Node) -> Iterator[Node | Unit1 | Unit2]:
        self.scopes.enter(node.tag)
        namespace = self.scopes.namespace_of(node.qualified)
        self.namespace = namespace if self.namespace is None else self.namespace
        node.own = namespace == self.namespace
        if self.open:
            self.nodes += 1
            if self.nodes > MOST_TAGS:
                raise DocumentError(f"{self.document.xml.path}: more than {MOST_TAGS:,} tags in one unit")
            self.open[-1].children.append(node)
            self.open.append(node)
        elif node.own and node.name == self.unit_name:
            self.open.append(node)
        else:
            yield from self.enter_frame(node)
        if node.is_empty:
            yield from self.finish(node.end, node.end)

    def enter_frame(self, node: Node) -> Iterator[Node]:
        frame = self.frames[-1]
        wanted, target_lang = frame.wanted, frame.target_lang
        if node.name == "profiles" and self.scopes.namespace_of(node.qualified) == RESTRICTIONS:
            profiles = node.get("generalProfile"), node.get("storageProfile")
            frame = self.frames[-1] = replace(frame, profiles=profiles)  # of the element that it stands in
        source_name, target_name = self.language_attributes(node)
        if target_name:
            languages = node.get(source_name), node.get(target_name)
            wanted = is_wanted(languages, self.options.source_lang, self.options.target_lang)
            target_lang = languages[1] or self.options.target_lang or ""
            if wanted and target_lang and not languages[1]:
                yield Node(node.kind, node.start, node.opened, with_attributes(node.tag, {target_name: target_lang}))
        self.frames.append(
            Frame(
                translates(node, frame.translate),
                wanted,
                target_lang,
                preserves(node, frame.has_lines),
                frame.profiles,
            )
        )

    def language_attributes(self, node: Node) -> tuple[str, str]:
        """The names of the attributes by which an element says its languages; empty where it does not."""
        if node.own and self.document.generation == 1 and node.name == "file":
            return "source-language", "target-language"
        if node.own and self.document.generation == 2 and node.name == "xliff":
            return "srcLang", "trgLang"
        return "", ""

    def finish(self, start: int, end: int) -> Iterator[Unit1 | Unit2]:
        if self.open:
            node = self.open.pop()
            node.closed, node.end = (start, end) if not node.is_empty else (node.opened, node.opened)
            if not self.open:
                yield from self.unit_of(node)
        else:
            self.frames.pop()
        self.scopes.leave()

    def unit_of(self, node: Node) -> Iterator[Unit1 | Unit2]:
        self.units += 1
        self.nodes = 0
        frame = self.frames[-1]
        if not frame.wanted or not translates(node, frame.translate):
            return
        setting = Setting(
            self.document.xml.text,
            self.options,
            frame.target_lang or None,
            f"{self.document.xml.path}: unit {node.get('id') or self.units}",
            self.scopes.prefix_of(ITS),
            self.scopes.prefix_of(MATCHES),
            self.namespace or "",
            frame.has_lines,
            limits_1(node) if self.document.generation == 1 else self.limits_2(node, frame),
        )
        yield (Unit1 if self.document.generation == 1 else Unit2).of(node, setting)

    def limits_2(self, node: Node, frame: Frame) -> tuple[Limit, ...]:
        prefix = self.scopes.prefix_of(RESTRICTIONS)
        if prefix is None:
            return ()
        given = {"size": node.get(f"{prefix}:sizeRestriction"), "storage": node.get(f"{prefix}:storageRestriction")}
        profiles = dict(zip(given, frame.profiles, strict=True))
        return tuple(
            Limit(int(most), COUNTED_2[kind][profiles[kind]])
            for kind, text in given.items()
            if (most := text.rpartition(",")[2].strip()).isdecimal() and profiles[kind] in COUNTED_2[kind]
        )


def limits_1(node: Node) -> tuple[Limit, ...]:
    """Of XLIFF 1.2, in characters or bytes; how many pixels a text takes is not known."""
    given = {"maxwidth": COUNTED_1.get(node.get("size-unit"), UNKNOWN), "maxbytes": "utf-8"}
    return tuple(
        Limit(int(most), encoding)
        for name, encoding in given.items()
        if encoding != UNKNOWN and (most := node.get(name)).isdecimal()
    )


def translates(node: Node, inherited: bool) -> bool:
    """Whether the text inside is to be translated: by its own word, else by the elements around it."""
    said = node.get("translate") or node.get("its:translate")
    return said != "no" if said else inherited
