"""HTML as tokens with their offsets, read in one pass. It need not be well-formed."""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern

RAW = ("script", "style")  # elements whose content is no markup
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")

NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
TAG_END = re.compile(r"""(?>[^>"']|"[^"]*"|'[^']*')*>""")
ATTRIBUTE = re.compile(r"""([^\s=>/"']+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"']+))?""")


@dataclass(frozen=True, slots=True)
class Token:
    """A tag, a text, or something else that is left alone."""

    kind: str  # "text", "start", "end", "other"
    start: int
    end: int
    name: str = ""


class TokenArrays:
    """Tokens by their numbers, in arrays: as objects they would take many times the text's memory."""

    def __init__(self, text: str) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.kinds: list[str] = []
        self.names: list[str] = []
        for token in scanned(text):
            self.starts.append(token.start)
            self.ends.append(token.end)
            self.kinds.append(token.kind)
            self.names.append(intern(token.name))

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, number: int) -> Token:
        return Token(self.kinds[number], self.starts[number], self.ends[number], self.names[number])

    def matching_ends(self) -> "array[int]":
        """The number of the end tag of each element; -1 where nothing closes it."""
        ends = array("q", [-1]) * len(self)
        open_elements: list[tuple[int, str]] = []
        waiting: dict[str, int] = defaultdict(int)
        for number, (kind, name) in enumerate(zip(self.kinds, self.names, strict=True)):
            if kind == "start" and name not in VOID:
                open_elements.append((number, name))
                waiting[name] += 1
            elif kind == "end" and waiting[name]:
                while open_elements[-1][1] != name:
                    waiting[open_elements.pop()[1]] -= 1
                ends[open_elements.pop()[0]] = number
                waiting[name] -= 1
        return ends


def scanned(text: str) -> Iterator[Token]:
    at, last = 0, text.rfind(">")
    while at < len(text):
        token = markup_at(text, at, last) if text[at] == "<" else None
        if token is None:  # a text; a lonely < belongs to it
            stop = text.find("<", at + 1)
            token = Token("text", at, stop if stop >= 0 else len(text))
        yield token
        at = token.end
        if token.kind == "start" and token.name in RAW:
            end = raw_end(text, at, token.name)
            if end > at:
                yield Token("other", at, end)
            at = end


def markup_at(text: str, at: int, last: int) -> Token | None:
    if text.startswith("<!--", at):
        return Token("other", at, after(text, "-->", at + 4))
    if text.startswith("<![CDATA[", at):
        return Token("other", at, after(text, "]]>", at))
    if text.startswith("<%", at):  # of ERB, ASP and JSP
        return Token("other", at, after(text, "%>", at))
    if text.startswith(("<!", "<?"), at):
        return Token("other", at, after(text, ">", at))
    name = NAME.match(text, at)
    if name is None or at > last:
        return None
    quoted = TAG_END.match(text, name.end())
    end = quoted.end() if quoted else after(text, ">", at)  # a quote is not closed: the next > ends the tag
    return Token("end" if text.startswith("</", at) else "start", at, end, name.group(1).lower())


def after(text: str, mark: str, at: int) -> int:
    """The place behind a mark; the text's end where there is none."""
    place = text.find(mark, at)
    return place + len(mark) if place >= 0 else len(text)


def raw_end(text: str, at: int, name: str) -> int:
    match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, at)
    return match.start() if match else len(text)


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    value: str  # as it stands there, without quotes
    start: int  # of the value in the tag, with its quotes
    end: int
    quote: str  # empty where it has none


def attributes_of(tag: str) -> list[Attribute]:
    found = []
    begin = NAME.match(tag)
    for match in ATTRIBUTE.finditer(tag, begin.end() if begin else 0):
        raw = match.group(2)
        if raw is None:
            continue
        quote = raw[0] if raw[0] in "\"'" else ""
        value = raw[1:-1] if quote else raw
        found.append(Attribute(match.group(1).lower(), value, match.start(2), match.end(2), quote))
    return found
