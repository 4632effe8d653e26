"""Entries of a PO file as their lines, so that one statement can be replaced and all others stay unchanged."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from knnmt.errors import DocumentError
from knnmt.text.inputs import LONGEST
from knnmt.text.po import statement_of

KEYWORD = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr\[\d\]|msgstr)\s*"')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"\s*\Z')
ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{2}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
SPELLINGS = str.maketrans({value: f"\\{letter}" for letter, value in ESCAPES.items()})
WIDTH = 77  # of a wrapped string, as gettext's own tools wrap it


@dataclass(slots=True)
class Statement:
    """A keyword and the strings after it."""

    keyword: str
    first: int  # of its lines in the entry
    end: int
    raw: list[str]  # the strings as they stand there, without quotes

    @property
    def text(self) -> str:
        return unescaped("".join(self.raw))


@dataclass(slots=True)
class Entry:
    """The lines of an entry, with the blank lines and comments before it."""

    number: int  # the first line's, from 1
    lines: list[str] = field(default_factory=list)
    statements: dict[str, Statement] = field(default_factory=dict)
    obsolete: bool = False

    @property
    def flags(self) -> list[str]:
        return [flag for line in self.lines if line.startswith("#,") for flag in split_flags(line)]

    @property
    def is_header(self) -> bool:
        return not self.obsolete and "msgctxt" not in self.statements and self.text_of("msgid") == ""

    @property
    def line_end(self) -> str:
        return "\r\n" if any(line.endswith("\r\n") for line in self.lines) else "\n"

    @property
    def at(self) -> int:
        """The line of `msgid`."""
        return self.number + (self.statements["msgid"].first if "msgid" in self.statements else 0)

    def text_of(self, keyword: str) -> str | None:
        statement = self.statements.get(keyword)
        return None if statement is None else statement.text

    @property
    def forms(self) -> list[Statement]:
        return [statement for keyword, statement in self.statements.items() if keyword.startswith("msgstr")]

    def written(self, statements: Iterable[str], *, fuzzy: bool, previous: Iterable[str] = ()) -> str:
        """The entry with new lines for its `msgstr`, its mark, and comments that keep what was replaced."""
        end = self.line_end
        forms = self.forms
        before = with_flag([*self.lines[: forms[0].first]], fuzzy=fuzzy, previous=[*previous], line_end=end)
        new = end.join(statements) + (end if self.lines[forms[-1].end - 1].endswith("\n") else "")
        return "".join([*before, new, *self.lines[forms[-1].end :]])


def split_flags(line: str) -> list[str]:
    return [flag.strip() for flag in line[2:].split(",") if flag.strip()]


def with_flag(lines: list[str], *, fuzzy: bool, previous: list[str], line_end: str) -> list[str]:
    """The lines before `msgstr` with the flag set or removed; comments go before all others."""
    places = [at for at, line in enumerate(lines) if line.startswith("#,")]
    has = any("fuzzy" in split_flags(lines[at]) for at in places)
    if has and not fuzzy:
        for at in places:
            flags = [flag for flag in split_flags(lines[at]) if flag != "fuzzy"]
            lines[at] = f"#, {', '.join(flags)}{line_end}" if flags else ""
    elif fuzzy and not has and places:
        flags = ["fuzzy", *split_flags(lines[places[0]])]
        lines[places[0]] = f"#, {', '.join(flags)}{line_end}"
    elif fuzzy and not has:
        lines.insert(first_of(lines, "#|", "msg"), f"#, fuzzy{line_end}")
    at = first_of(lines, "#.", "#:", "#,", "#|", "msg")
    return lines[:at] + [f"# {line}".rstrip() + line_end for line in previous] + lines[at:]


def first_of(lines: list[str], *beginnings: str) -> int:
    return next(at for at, line in enumerate(lines) if line.strip().startswith(beginnings))


# Reading


def read_entries(lines: Iterable[str], name: str) -> Iterator[Entry]:
    """Split the file into entries, with or without blank lines between them."""
    entry, size, current = Entry(1), 0, ""
    for number, line in enumerate(lines, start=1):
        statement = statement_of(line.lstrip("\ufeff"))
        if current.startswith("msgstr") and not statement.startswith(('"', "msgstr")):
            yield checked(entry, name)
            entry, size, current = Entry(number), 0, ""
        size += len(line)
        if size > LONGEST:
            raise DocumentError(f"{name}: the entry at line {entry.number} is longer than {LONGEST >> 20} MB")
        entry.lines.append(line)
        if statement:
            entry.obsolete |= line.lstrip().startswith("#~")
            current = add_statement(entry, statement, current, f"{name}: line {number}")
    if entry.statements and not current.startswith("msgstr"):
        raise DocumentError(f"{name}: the entry at line {entry.at} has no msgstr; is the file cut off?")
    yield checked(entry, name)


def checked(entry: Entry, name: str) -> Entry:
    """An entry with a message and its translation, both singular or both plural."""
    keywords = entry.statements
    plural = "msgid_plural" in keywords
    if keywords and ("msgid" not in keywords or ("msgstr" in keywords) == plural):
        raise DocumentError(f"{name}: the entry at line {entry.at} has no msgid, or msgstr without its form")
    return entry


def add_statement(entry: Entry, statement: str, current: str, where: str) -> str:
    """Add the keyword to which the next strings belong."""
    keyword, string = KEYWORD.match(statement), STRING.search(statement)
    begins = string.start() if string else 0
    told = statement[:begins].strip() if string else "?"
    if string is None or (told and (keyword is None or told != keyword.group(1))) or not (told or current):
        raise DocumentError(f"{where} is not PO")
    if told and told in entry.statements:
        raise DocumentError(f"{where} has {told} a second time")
    at = len(entry.lines)
    if told:
        entry.statements[told] = Statement(told, at - 1, at, [string.group(1)])
        return told
    entry.statements[current].raw.append(string.group(1))
    entry.statements[current].end = at
    return current


def unescaped(raw: str) -> str:
    return ESCAPE.sub(lambda match: escape_of(match.group(1)), raw) if "\\" in raw else raw


def escape_of(name: str) -> str:
    if name in ESCAPES:
        return ESCAPES[name]
    if name[0] == "x":
        return chr(int(name[1:], 16))
    return chr(int(name, 8)) if name[0] in "01234567" else name


# Writing


def statement_lines(keyword: str, text: str, *, like: Statement) -> list[str]:
    """A statement; its text is broken into lines as the source's is."""
    if text == like.text:
        first, *others = like.raw
        return [f'{keyword} "{first}"', *(f'"{string}"' for string in others)]
    return [f'{keyword} "{string}"' if at == 0 else f'"{string}"' for at, string in enumerate(strings_of(text, like))]


def strings_of(text: str, like: Statement) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    lines = [line for line in lines if line] or [""]
    if len(like.raw) == 1:
        return ["".join(line.translate(SPELLINGS) for line in lines)]
    wrap = textwrap.TextWrapper(
        WIDTH, drop_whitespace=False, replace_whitespace=False, expand_tabs=False, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    wrapped = [part for line in lines for part in wrap.wrap(line.translate(SPELLINGS))]
    return ["", *wrapped]
