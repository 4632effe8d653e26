"""HTML: the text of blocks and some attributes is translated; code, scripts and `translate="no"` stay."""

import codecs
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from html import unescape
from pathlib import Path

from knnmt.documents.document import DocumentOptions, Piece, SplicedDocument
from knnmt.documents.passages import Passage, Tags, slot_of
from knnmt.errors import DocumentError
from knnmt.scanning.encodings import MARK, EncodedFile, known_by_mark
from knnmt.scanning.html_tokens import Token, TokenArrays, attributes_of
from knnmt.text.inputs import open_binary

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i",
    "img", "input", "ins", "kbd", "mark", "math", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike",
    "strong", "sub", "sup", "svg", "time", "tt", "u", "var", "wbr",
}  # fmt: skip
OPAQUE = {"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "textarea", "var"}
SPACE = " \t\n\r\f"
BLANKS = re.compile(r"[ \t\n\r\f]+")
REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);")
CHARSET = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
LANGUAGE = re.compile(r"<html\s[^>]*?(?<![\w:-])lang\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
BEGINNING = 4096


def open_html(path: Path, options: DocumentOptions) -> SplicedDocument:
    file = EncodedFile(path, encoding_of(path))
    with open_binary(path) as binary:
        beginning = binary.read(BEGINNING).decode(file.encoding, "replace")
    language = LANGUAGE.search(beginning)
    page = cache(lambda: Page.of(file.text()))  # read twice at the same time, held once
    pieces = partial(document_pieces, page, options, str(path))
    said = language.group(1) if language else None
    return SplicedDocument(path, "HTML", file.encoding, pieces, said, errors="xmlcharrefreplace")


def encoding_of(path: Path) -> str:
    """By the byte order mark or by what the document's head says; else UTF-8."""
    with open_binary(path) as file:
        marked = known_by_mark(file)
        file.seek(0)
        match = CHARSET.search(file.read(BEGINNING))
    name = match.group(1).decode("ascii") if match else "utf-8"
    try:
        return marked or codecs.lookup(name).name
    except LookupError as error:
        raise DocumentError(f"{path}: names the encoding {name!r}, which cannot be read") from error


@dataclass(frozen=True, slots=True)
class Page:
    """A document's text, and its tokens with the number of the end tag of each element."""

    mark: str  # of the byte order
    text: str
    tokens: TokenArrays
    ends: "array[int]"

    @classmethod
    def of(cls, text: str) -> "Page":
        mark = MARK if text.startswith(MARK) else ""
        text = text.removeprefix(MARK)
        tokens = TokenArrays(text)
        return cls(mark, text, tokens, tokens.matching_ends())


def document_pieces(read: Callable[[], Page], options: DocumentOptions, name: str) -> Iterator[Piece]:
    page = read()
    yield page.mark
    yield from Walk(page, options, name).pieces()


def html_pieces(text: str, options: DocumentOptions, name: str, line: int) -> Iterator[Piece]:
    """The pieces of a text in HTML; messages call its first line by a number."""
    return Walk(Page.of(text), options, name, line).pieces()


@dataclass(frozen=True, slots=True)
class HtmlSpelling:
    """How a stretch of HTML spells its characters."""

    references: dict[str, str]
    quote: str | None = None  # of an attribute; empty: it has none yet; None: not in an attribute

    @classmethod
    def of(cls, raw: str, quote: str | None = None) -> "HtmlSpelling":
        spelled = {unescape(reference): reference for reference in REFERENCE.findall(raw)}
        plain = REFERENCE.sub("", raw) if spelled else ""
        kept = {letter: reference for letter, reference in spelled.items() if len(letter) == 1 and letter not in plain}
        usual = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
        if quote is not None:
            usual |= {'"': "&quot;"} if quote != "'" else {"'": "&#39;"}
        return cls(usual | {letter: reference for letter, reference in kept.items() if letter not in SPACE}, quote)

    def __call__(self, text: str) -> str:
        written = "".join(self.references.get(letter, letter) for letter in text)
        return f'"{written}"' if self.quote == "" else written


class Walk:
    """One pass over the tokens: stretches of inline markup between blocks are units."""

    def __init__(self, page: Page, options: DocumentOptions, name: str, line: int = 1) -> None:
        self.text, self.tokens, self.ends = page.text, page.tokens, page.ends
        self.options, self.name = options, name
        self.silent: list[int] = []  # the ends of elements that are not to be translated, innermost last
        self.loud: dict[int, bool] = {}
        self.line, self.counted = line, 0

    def pieces(self) -> Iterator[Piece]:
        run: list[int] = []  # tokens of one stretch
        number = 0
        while number < len(self.tokens):
            token = self.tokens[number]
            inline = token.kind in ("text", "other") or token.name in INLINE
            if inline and not (token.kind == "start" and token.name in OPAQUE and token.name not in INLINE):
                last = self.whole(number)
                run.append(number)
                number = last + 1
                continue
            yield from self.stretch(run)
            run = []
            last = self.whole(number)
            if last > number or not self.translates(number):
                yield self.raw(number, last)
            else:
                yield from self.stretch([number])
            self.enter(number, last)
            number = last + 1
        yield from self.stretch(run)

    # What is not to be translated

    def translates(self, number: int) -> bool:
        while self.silent and self.silent[-1] < number:
            self.silent.pop()
        return not self.silent or self.loud.get(self.silent[-1], False)

    def enter(self, number: int, last: int) -> None:
        """A block that says whether it is translated says it for what is inside too."""
        said = self.said(number)
        if said is not None and last == number and self.ends[number] >= 0:
            self.silent.append(self.ends[number])
            self.loud[self.ends[number]] = said

    def said(self, number: int) -> bool | None:
        token = self.tokens[number]
        tag = self.text[token.start : token.end]
        if token.kind != "start" or ("translate" not in tag):
            return None
        values = {attribute.name: attribute.value for attribute in attributes_of(tag)}
        if "notranslate" in values.get("class", "").split():
            return False
        return {"no": False, "yes": True, "": True}.get(values.get("translate", "none").lower())

    def whole(self, number: int) -> int:
        """The last token of an element that is one piece: code, or inline text that is not to be translated."""
        token = self.tokens[number]
        silent = token.name in INLINE and self.said(number) is False
        if token.kind == "start" and (token.name in OPAQUE or silent):
            return max(number, self.ends[number])
        return number

    # Pieces

    def raw(self, first: int, last: int) -> str:
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def stretch(self, run: list[int]) -> Iterator[Piece]:
        if not run:
            return
        start, end = self.tokens[run[0]].start, self.tokens[self.whole(run[-1])].end
        if not self.translates(run[0]):
            yield self.text[start:end]
            return
        before, after = self.edges(start, end)
        yield self.text[start:before]
        passage = self.passage(run, before, after)
        yield slot_of(passage, f"{self.name}: line {self.line_at(before)}") or self.text[before:after]
        yield self.text[after:end]

    def edges(self, start: int, end: int) -> tuple[int, int]:
        """A stretch without the white space around it."""
        inner = self.text[start:end]
        before = start + len(inner) - len(inner.lstrip(SPACE))
        return before, max(before, end - (len(inner) - len(inner.rstrip(SPACE))))

    def line_at(self, place: int) -> int:
        """Counted on from the last question, so that all questions together cost one pass."""
        self.line += self.text.count("\n", self.counted, place)
        self.counted = max(self.counted, place)
        return self.line

    def passage(self, run: list[int], start: int, end: int) -> Passage:
        tags = Tags()
        raw = self.text[start:end]
        for number in run:
            token = self.tokens[number]
            last = self.whole(number)
            if token.kind == "text":
                tags.text(reader_text(self.text[max(start, token.start) : min(end, token.end)]))
            elif last > number or token.kind == "other":
                tags.empty(self.raw(number, last))
            else:
                self.add_tag(token, number, tags)
        return Passage(tags.content(), raw, HtmlSpelling.of(raw), tuple(tags.nested))

    def add_tag(self, token: Token, number: int, tags: Tags) -> None:
        markup = self.text[token.start : token.end]
        if token.kind == "end":
            tags.close(markup, token.name)
            return
        place = tags.open(markup, token.name) if self.ends[number] >= 0 else tags.empty(markup)
        for attribute in attributes_of(markup):
            if attribute.name in self.options.attributes and attribute.value.strip():
                value = Tags()
                value.text(reader_text(attribute.value))
                inside = 1 if attribute.quote else 0
                spelling = HtmlSpelling.of(attribute.value, attribute.quote)
                passage = Passage(value.content(), attribute.value, spelling)
                tags.nest(place, attribute.start + inside, attribute.end - inside, passage)


def reader_text(raw: str) -> str:
    """Text as a reader sees it: references resolved, line breaks as spaces."""
    return unescape(BLANKS.sub(lambda match: " " if "\n" in match.group() else match.group(), raw))
