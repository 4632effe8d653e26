"""The inline markup of Markdown as tags: CommonMark's parser, extended to report the offsets of its tokens."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from knnmt.documents.passages import Passage, Tags
from knnmt.scanning.html_tokens import VOID

Rule = Callable[[StateInline, bool], bool]
BlockRule = Callable[[StateBlock, int, int, bool], bool]

REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);")
ESCAPED = re.compile(rf"\\([!-/:-@\[-`{{-~])|{REFERENCE.pattern}")
# Marks of dialects that CommonMark does not know: footnotes, Hugo's shortcodes, and the boxes of task lists.
DIALECT = re.compile(r"\[\^[^\]\s]+\]:?|\{\{[<%][^{}]*[%>]\}\}|\A\[[ xX]\](?=\s)")
HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
LINE_START = re.compile(r"(?:#{1,6}(?=\s|\Z)|[-+](?=[-\s]|\Z)|>|=|:(?=\s|-)|\|)|(\d{1,9})(?=[.)](?:\s|\Z))")
TITLE = re.compile(r"""\s("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\))\s*\)\Z""", re.DOTALL)


def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; texts stay apart where a rule has divided them."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    markdown.disable(["text_join", "fragments_join"])
    blocks = markdown.block.ruler
    at = [rule.name for rule in blocks.__rules__].index("reference")
    blocks.at("reference", but_for_footnotes(blocks.__rules__[at].fn), {"alt": []})
    ruler = markdown.inline.ruler
    names = ruler.get_active_rules()
    for name, rule in zip(names, ruler.getRules(""), strict=True):
        ruler.at(name, with_places(rule))
    return markdown


def but_for_footnotes(rule: BlockRule) -> BlockRule:
    """`[^1]: Word` would be the address of a link."""

    def checked(state: StateBlock, first: int, end: int, silent: bool) -> bool:
        begin = state.bMarks[first] + state.tShift[first]
        return not state.src.startswith("[^", begin) and rule(state, first, end, silent)

    return checked


def with_places(rule: Rule) -> Rule:
    """A rule whose tokens carry the source that they were made of."""

    def placed(state: StateInline, silent: bool) -> bool:
        first, start = len(state.tokens), state.pos
        bracket = state.src.startswith("[", start) and not silent
        label_end = state.md.helpers.parseLinkLabel(state, start, True) if bracket else -1
        done = rule(state, silent)
        if done and not silent:
            for token in state.tokens[first:]:
                token.meta.setdefault("source", state.src[start : state.pos])
            if label_end >= 0 and state.tokens and state.tokens[-1].type == "link_close":
                state.tokens[-1].meta["source"] = state.src[label_end : state.pos]
                state.tokens[-1].meta["label"] = state.src[start + 1 : label_end]
        return done

    return placed


@dataclass(frozen=True, slots=True)
class MarkdownSpelling:
    """How plain text is written so that Markdown takes it for nothing else."""

    in_table: bool
    line_break: str  # with what stands before each line of the block
    brackets: bool  # whether the source has brackets that are text

    def __call__(self, text: str) -> str:
        out = []
        for at, letter in enumerate(text.replace("\n", " ")):
            out.append(f"\\{letter}" if self.is_special(letter, text, at) else letter)
        return "".join(out)

    def is_special(self, letter: str, text: str, at: int) -> bool:
        if letter in "\\`*~":
            return True
        if letter in "[]":
            return not self.brackets
        if letter == "|":
            return self.in_table
        if letter == "_":
            return not (text[at - 1 : at].isalnum() and text[at + 1 : at + 2].isalnum())
        if letter == "<":
            return True
        return letter == "&" and REFERENCE.match(text, at) is not None

    def markup(self, text: str) -> str:
        """Markup that the parser saw without what stands before each line, and without the escapes of a table."""
        text = text.replace("\n", self.line_break)
        return re.sub(r"(?<!\\)\|", r"\\|", text) if self.in_table else text


def passage_of(children: list[Token], raw: str, spelling: MarkdownSpelling) -> Passage:
    """The tokens of a block as a passage; `raw` is the block's text in the file."""
    tags, automatic = Tags(), False
    for token in children:
        automatic = automatic or (token.type == "link_open" and token.info == "auto")  # <https://…>: no text
        if not automatic:
            add(token, tags, spelling)
        elif token.type == "link_close":
            automatic = False
            tags.empty(spelling.markup(token.meta["source"]))
    return Passage(tags.content(), raw, spelling, tuple(tags.nested))


def add(token: Token, tags: Tags, spelling: MarkdownSpelling) -> None:
    if token.type == "text":
        add_text(token.content, tags)
    elif token.type in ("text_special", "softbreak"):
        tags.text(token.content or " ")
    elif token.type == "hardbreak":
        backslash = token.meta.get("source", "").startswith("\\")
        tags.empty(spelling.markup("\\\n" if backslash else "  \n"))
    elif token.type == "html_inline":
        add_html(token.content, tags, spelling)
    elif token.type == "image":
        add_image(token, tags, spelling)
    elif token.type.endswith("_open"):
        tags.open("[" if token.type == "link_open" else token.markup, token.type.removesuffix("_open"))
    elif token.type.endswith("_close"):
        add_close(token, tags, spelling)
    else:
        tags.empty(spelling.markup(token.meta["source"]))


def add_text(text: str, tags: Tags) -> None:
    done = 0
    for match in DIALECT.finditer(text):
        if match.group().startswith(("[^", "{{")) or not tags.pieces:
            tags.text(text[done : match.start()])
            tags.empty(match.group())
            done = match.end()
    tags.text(text[done:])


def add_close(token: Token, tags: Tags, spelling: MarkdownSpelling) -> None:
    """The end of a link: `](address "title")`, or `][label]`, since a translated text no longer is the label."""
    key = token.type.removesuffix("_close")
    if key != "link":
        tags.close(token.markup, key)
        return
    source = token.meta["source"]
    place = tags.close(spelling.markup(with_label(source, token.meta["label"])), key)
    nest_title(tags, place, spelling)


def with_label(source: str, label: str) -> str:
    return f"][{label}]" if source in ("]", "][]") else source


def add_image(token: Token, tags: Tags, spelling: MarkdownSpelling) -> None:
    """`![text](address "title")`: text and title are nested, if the text has no markup of its own."""
    source = token.meta["source"]
    label = token.content
    markup = f"![{label}{with_label(source[2 + len(label) :], label)}"
    place = tags.empty(spelling.markup(markup))
    if label.strip() and all(child.type.startswith("text") for child in token.children or []):
        nest(tags, place, 2, 2 + len(spelling.markup(label)), label, spelling)
    nest_title(tags, place, spelling)


def nest_title(tags: Tags, place: int, spelling: MarkdownSpelling) -> None:
    markup = tags.markup_at(place)
    title = TITLE.search(markup)
    if title is not None and title.group(1)[1:-1].strip():
        nest(tags, place, title.start(1) + 1, title.end(1) - 1, title.group(1)[1:-1], spelling, title.group(1)[-1])


def nest(tags: Tags, place: int, start: int, end: int, raw: str, spelling: MarkdownSpelling, quote: str = "") -> None:
    text = spelled_out(raw.replace(spelling.line_break, "\n"))
    passage = Passage((" ".join(text.split()),), tags.markup_at(place)[start:end], Quoted(spelling, quote))
    tags.nest(place, start, end, passage)


def spelled_out(raw: str) -> str:
    """Text without its escapes and references; an escaped character does not begin a reference."""
    return ESCAPED.sub(lambda match: match.group(1) or unescape(match.group()), raw)


@dataclass(frozen=True, slots=True)
class Quoted:
    """The spelling of a title or of an image's text."""

    spelling: MarkdownSpelling
    quote: str

    def __call__(self, text: str) -> str:
        written = self.spelling(text)
        for mark in {"": "", ")": "()"}.get(self.quote, self.quote):
            written = written.replace(mark, f"\\{mark}")
        return written


def add_html(markup: str, tags: Tags, spelling: MarkdownSpelling) -> None:
    match = HTML_TAG.match(markup)
    written = spelling.markup(markup)
    if match is None or match.group(2).lower() in VOID or markup.endswith("/>"):
        tags.empty(written)
    elif match.group(1):
        tags.close(written, f"html {match.group(2).lower()}")
    else:
        tags.open(written, f"html {match.group(2).lower()}")


def guarded_start(text: str) -> str:
    """The text of a block so that its first line is no heading, list, quote, rule or code."""
    text = text.lstrip(" \t")
    match = LINE_START.match(text)
    if match is None:
        return text
    at = match.end(1) if match.group(1) else 0
    return f"{text[:at]}\\{text[at:]}"
