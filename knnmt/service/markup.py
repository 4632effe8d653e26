"""Converts texts with markup from clients into text and tags, and back.

In HTML, entities are characters and blocks are translated apart. In plain text only what looks like a tag is one;
everything else is text, entities too. Weblate's marks for placeholders (`[X10X]`) are placeholders like any others.
"""

import html
import re
from collections.abc import Iterator
from itertools import count

from knnmt.documents.content import Content, Tag, plain_text

TOKEN = re.compile(
    r"""
      <!--.*?-->
    | <(?P<raw>script|style|code|pre)\b[^<>]*>.*?</(?P=raw)\s*>    # its inside is no text
    | <!?/?[A-Za-z][^<>]*>
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
NAME = re.compile(r"</?\s*([A-Za-z][\w:.-]*)")
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "dialog", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr",
    "html", "legend", "li", "main", "nav", "ol", "option", "p", "section", "select", "summary", "table", "tbody", "td",
    "tfoot", "th", "thead", "title", "tr", "ul",
}  # fmt: skip


def contents(text: str, *, is_html: bool) -> list[str | Content]:
    """The parts to translate, each as text and tags, and the markup of blocks between them, unchanged."""
    if not is_html:
        return [paired(tokens(text))]
    found: list[str | Content] = []
    inline: list[str] = []
    for token in [*tokens(text), None]:
        if token is not None and not is_block(token):
            inline.append(token)
            continue
        if inline:
            found.append(unescaped(paired(inline)))
            inline = []
        if token is not None:
            found.append(token)
    return found


def written_markup(content: Content, *, is_html: bool) -> str:
    """The text again; what was an entity is one again."""
    return "".join(escaped(one, is_html) if isinstance(one, str) else one.markup for one in content)


def escaped(text: str, is_html: bool) -> str:
    return html.escape(text, quote=False) if is_html else text


def tokens(text: str) -> Iterator[str]:
    """Tags and the text between them, in order."""
    at = 0
    for found in TOKEN.finditer(text):
        if found.start() > at:
            yield text[at : found.start()]
        yield found.group()
        at = found.end()
    if at < len(text):
        yield text[at:]


def is_tag(token: str) -> bool:
    return TOKEN.fullmatch(token) is not None


def tag_name(token: str) -> str:
    found = NAME.match(token)
    return found[1].lower() if found else ""


def is_block(token: str) -> bool:
    return token.startswith("<") and is_tag(token) and tag_name(token) in BLOCKS


def paired(given: "Iterator[str] | list[str]") -> Content:
    """Number the tags that open and close one another; a tag without a partner is a single tag."""
    pieces: list[str | Tag] = []
    opened: list[tuple[str, int]] = []  # name and place
    numbers = count(1)
    for token in given:
        if not is_tag(token):
            pieces.append(token)
        elif token.startswith("</"):
            pieces.append(closed(token, pieces, opened, numbers))
        else:
            if can_open(token):
                opened.append((tag_name(token), len(pieces)))
            pieces.append(Tag(token))
    return tuple(pieces)


def can_open(token: str) -> bool:
    name = tag_name(token)
    whole = name in ("script", "style", "code", "pre") and token.rstrip().endswith(f"</{name}>")
    return bool(name) and not token.endswith("/>") and name not in VOID and not whole and token[1] != "!"


def closed(token: str, pieces: list[str | Tag], opened: list[tuple[str, int]], numbers: "Iterator[int]") -> Tag:
    """Match a closing tag with its opening tag; tags opened in between and never closed are single tags."""
    for at in reversed(range(len(opened))):
        name, place = opened[at]
        if name == tag_name(token):
            number, opening = next(numbers), pieces[place]
            assert isinstance(opening, Tag)
            pieces[place] = Tag(opening.markup, "open", number)
            del opened[at:]
            return Tag(token, "close", number)
    return Tag(token)


def unescaped(content: Content) -> Content:
    return tuple(html.unescape(one) if isinstance(one, str) else one for one in content)


def spoken(text: str, *, is_html: bool) -> str:
    """The text without its markup, as it is stored in the memory."""
    return "".join(plain_text(one) for one in contents(text, is_html=is_html) if not isinstance(one, str))
