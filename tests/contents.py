"""Contents with tags, written as people read them and made at random."""

import re
from typing import Any

from hypothesis import strategies as st

from knnmt.documents.content import Content, Tag

MARKUP = re.compile(r"<(/?)(\w+)(/?)>")
WORDS = st.sampled_from(
    ["one", "Two", "drei", "%s", "{0}", "42", "你", "好", ",", ".", "l'", "über", "-", "https://a.b/c"]
)
SPACES = st.sampled_from(["", " ", " ", "  ", "\n", "\u00a0"])


def marked(text: str) -> Content:
    """`a <b>c</b> <x/>` as content; tags of one name are paired by nesting."""
    content: list[str | Tag] = []
    opened: list[int] = []
    at = pair = 0
    for found in MARKUP.finditer(text):
        content += [text[at : found.start()]] if found.start() > at else []
        at = found.end()
        if found[3]:
            content.append(Tag(found[0]))
        elif found[1]:
            content.append(Tag(found[0], "close", opened.pop()))
        else:
            pair += 1
            opened.append(pair)
            content.append(Tag(found[0], "open", pair))
    return (*content, *([text[at:]] if at < len(text) else []))


def shown(content: Content) -> str:
    """Content with its markup, as one text."""
    return "".join(piece if isinstance(piece, str) else piece.markup for piece in content)


def texts() -> st.SearchStrategy[str]:
    return st.lists(st.tuples(WORDS, SPACES), max_size=4).map(lambda pairs: "".join(a + b for a, b in pairs))


@st.composite
def contents(draw: Any, most: int = 6) -> Content:
    """Text with pairs, some of them overlapping or broken, and single tags."""
    tags: list[Tag] = []
    for number in range(draw(st.integers(0, most))):
        kind = draw(st.sampled_from(["pair", "pair", "empty", "lone"]))
        if kind == "pair":
            tags += [Tag(f"<g{number}>", "open", number), Tag(f"</g{number}>", "close", number)]
        else:
            tags.append(Tag(f"<x{number}/>", "empty") if kind == "empty" else Tag(f"<l{number}>", "open"))
    order = draw(st.permutations(tags)) if draw(st.booleans()) else tags
    order = sorted(order, key=lambda tag: (tag.kind == "close" and tag.pair is not None, 0)) if tags else []
    content: list[str | Tag] = [draw(texts())]
    for tag in order:
        content += [tag, draw(texts())]
    return tuple(piece for piece in content if piece != "")
