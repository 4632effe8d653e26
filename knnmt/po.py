"""Catalogues of gettext (PO), read entry by entry with polib."""

import codecs
import gettext
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polib

from knnmt.errors import CorpusError
from knnmt.inputs import LONGEST, open_binary, read_lines
from knnmt.languages import same_language
from knnmt.units import Languages, Unit, joined

# A line that is neither blank nor a comment. polib itself would cut the last character of an unclosed string.
STATEMENT = re.compile(r'((msgctxt|msgid|msgid_plural|msgstr|msgstr\[\d\])\s*)?"(?:[^"\\]|\\.)*"')
OBSOLETE = re.compile(r"#~\|?\s?")
CHARSET = re.compile(rb"Content-Type:[^\n]*?charset=([\w.:-]+)", re.IGNORECASE)
HEADER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """The lines of one entry."""

    line: int  # of the file, from 1
    text: str


def read_po(path: Path, languages: Languages) -> Iterator[Unit]:
    """The messages of a catalogue; its source language is taken to be the wanted one, which it does not name."""
    singular: Callable[[int], int] = first_form
    for entry in read_entries(path):
        catalogue = parse(entry, path)
        if catalogue.metadata:
            check_language(catalogue.metadata, languages[1], path)
            singular = singular_form(catalogue.metadata)
        for message in catalogue:
            yield from units_of(message, catalogue.header, singular)


def parse(entry: Entry, path: Path) -> Any:
    """One entry as a catalogue of its own, so that memory does not grow with the file."""
    try:
        return polib.pofile(entry.text, encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"{path}: the entry at line {entry.line} is not PO") from error


# Entries


def read_entries(path: Path) -> Iterator[Entry]:
    """Entries end where the next one begins, with or without a blank line between them."""
    lines: list[str] = []
    size = begun = 0
    ended = False  # the last keyword was msgstr, so only more of it can follow
    for number, line in enumerate(read_lines(path, encoding=charset_of(path)), start=1):
        statement = checked_statement(line, f"{path}: line {number}")
        if ended and not statement.startswith(('"', "msgstr")):
            yield Entry(begun, "\n".join(lines) + "\n")
            lines, size, ended = [], 0, False
        if line.strip():
            begun = begun if lines else number
            lines.append(" ".join(line.splitlines()))  # polib takes other separators for line ends
            size += len(line)
            ended = statement.startswith("msgstr") or (ended and statement.startswith('"'))
        check_size(size, path, begun)
    if ended:
        yield Entry(begun, "\n".join(lines) + "\n")
    elif any(statement_of(line) for line in lines):
        raise CorpusError(f"{path}: the entry at line {begun} has no msgstr; is the file cut off?")


def check_size(size: int, path: Path, begun: int) -> None:
    if size > LONGEST:
        raise CorpusError(f"{path}: the entry at line {begun} is longer than {LONGEST >> 20} MB")


def checked_statement(line: str, where: str) -> str:
    statement = statement_of(line)
    if statement and not STATEMENT.fullmatch(statement):
        raise CorpusError(f"{where} is not PO")
    return statement


def statement_of(line: str) -> str:
    """What a line says, obsolete or not; nothing where it is a comment."""
    text = line.strip()
    if text.startswith("#~|") or (text.startswith("#") and not text.startswith("#~")):
        return ""
    return OBSOLETE.sub("", text, count=1).strip() if text.startswith("#~") else text


def charset_of(path: Path) -> str:
    """The encoding that the header names."""
    with open_binary(path) as file:
        match = CHARSET.search(file.read(HEADER_BYTES))
    name = match.group(1).decode("ascii") if match else "utf-8"
    if name == "CHARSET":  # a template that nobody filled in
        return "utf-8"
    try:
        known = codecs.lookup(name).name
        if "msgid\n".encode(known) == b"msgid\n":
            return known
    except (LookupError, UnicodeError):
        pass
    raise CorpusError(f"{path}: its header names the encoding {name!r}, which cannot be read")


# Messages


def check_language(header: dict[str, str], wanted: str | None, path: Path) -> None:
    language = header.get("Language", "").partition("@")[0].strip()
    if language and wanted and not same_language(language, wanted):
        raise CorpusError(f"{path}: has no text in {wanted!r}; its header says {language!r}")


def first_form(number: int) -> int:  # noqa: ARG001
    return 0


def singular_form(header: dict[str, str]) -> Callable[[int], int]:
    """The rule by which the language chooses a form; the form of 1 is the singular."""
    match = re.search(r"plural\s*=\s*([^;]+)", header.get("Plural-Forms", ""))
    try:
        return gettext.c2py(match.group(1).strip()) if match else first_form
    except (ValueError, RecursionError):
        return first_form


def units_of(message: Any, header: str, singular: Callable[[int], int]) -> Iterator[Unit]:
    """One pair, or one for each plural form."""
    facts = facts_of(message, header)
    unfinished = "marked obsolete" if message.obsolete else "marked fuzzy" if "fuzzy" in message.flags else ""
    if not message.msgid_plural:
        yield Unit(message.msgid, message.msgstr, "", facts, unfinished or untranslated(message.msgstr))
        return
    for source, form in plural_pairs(message, singular):
        target = message.msgstr_plural[form]
        yield Unit(source, target, "", facts | {"plural": str(form)}, unfinished or untranslated(target))


def untranslated(target: str) -> str:
    return "" if target.strip() else "without a translation"


def plural_pairs(message: Any, singular: Callable[[int], int]) -> list[tuple[str, int]]:
    """The form of 1 belongs to the singular, the others to the plural; a single form belongs to both."""
    forms = sorted(message.msgstr_plural)
    if len(forms) == 1:
        return [(message.msgid, forms[0]), (message.msgid_plural, forms[0])]
    one = singular(1)
    return [(message.msgid if form == one else message.msgid_plural, form) for form in forms]


def facts_of(message: Any, header: str) -> dict[str, str]:
    """Context and comments. polib takes a comment before the first entry of a text for the catalogue's own."""
    references = " ".join(f"{file}:{line}" if line else file for file, line in message.occurrences)
    flags = ", ".join(flag for flag in message.flags if flag != "fuzzy")
    facts = {
        "msgctxt": message.msgctxt, "note": "\n".join(filter(None, [header, message.tcomment])),
        "extracted": message.comment, "reference": references, "flags": flags,
    }  # fmt: skip
    return joined((name, value) for name, value in facts.items() if value)
