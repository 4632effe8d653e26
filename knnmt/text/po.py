"""Catalogues of gettext (PO), read entry by entry with polib."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import polib

from knnmt.errors import CorpusError
from knnmt.text.inputs import LONGEST, codec_like_ascii, open_binary, read_lines
from knnmt.text.languages import same_language
from knnmt.text.plurals import parsed_rule
from knnmt.text.units import Languages, Unit

# A line that is neither blank nor a comment. polib itself would cut the last character of an unclosed string.
STATEMENT = re.compile(r'((msgctxt|msgid|msgid_plural|msgstr|msgstr\[\d\])\s*)?"(?:[^"\\]|\\.)*"')
OBSOLETE = re.compile(r"#~\|?\s?")
CHARSET = re.compile(rb"Content-Type:[^\n]*?charset=([\w.:-]+)", re.IGNORECASE)
HEADER = re.compile(r'^msgid ""$', re.MULTILINE)
HEADER_BYTES = 1 << 16
BLOCK = 1 << 16  # characters that are parsed at once

LINE_END = "\0"  # between lines that were joined; no file that is read has this character

# polib takes comments before the first entry of a text for comments on the whole, so the first entry is this one.
GUARD = 'msgid "guard"\nmsgstr "guard"\n'


@dataclass(frozen=True, slots=True)
class EntryText:
    """The lines of one entry."""

    line: int  # of the file, from 1
    text: str


def read_po(path: Path, languages: Languages) -> Iterator[Unit]:
    """The messages of a catalogue. The source language is assumed to match: PO files do not name it."""
    singular = 0
    for block in blocks_of(entry_texts(path)):
        catalogue = parse(block, path)
        if catalogue.metadata:
            check_language(catalogue.metadata, languages[1], path)
            singular = singular_form(catalogue.metadata)
        for message in catalogue[1:]:
            yield from message_units(message, singular)


def blocks_of(entries: Iterator[EntryText]) -> Iterator[list[EntryText]]:
    """Group entries: one at a time polib is slow, and all at once needs memory."""
    block: list[EntryText] = []
    size = 0
    for entry in entries:
        block.append(entry)
        size += len(entry.text)
        if size > BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def parse(block: list[EntryText], path: Path) -> Any:
    """Parse entries as a catalogue, after a guard entry."""
    try:
        return polib.pofile(GUARD + "".join(entry.text for entry in block), encoding="utf-8")
    except OSError as error:
        if len(block) > 1:
            for entry in block:
                parse([entry], path)  # names the one that is wrong
        raise CorpusError(f"{path}: the entry at line {block[0].line} is not PO") from error


# Entries


def entry_texts(path: Path) -> Iterator[EntryText]:
    """Split the file into entries, with or without blank lines between them."""
    lines: list[str] = []
    size = begun = 0
    ended = False  # the last keyword was msgstr, so only more of it can follow
    for number, line in enumerate(read_lines(path, encoding=charset_of(path)), start=1):
        statement = checked_statement(line, f"{path}: line {number}")
        if ended and not statement.startswith(('"', "msgstr")):
            yield entry_of(lines, path, begun)
            lines, size, ended = [], 0, False
        if not lines and statement.startswith('"'):
            raise CorpusError(f"{path}: line {number} is not PO")
        if line.strip():
            begun = begun if lines else number
            lines.append(" ".join(line.splitlines()))  # polib takes other separators for line ends
            size += len(line)
            ended = statement.startswith("msgstr") or (ended and statement.startswith('"'))
        check_size(size, path, begun)
    if ended:
        yield entry_of(lines, path, begun)
    elif any(statement_of(line) for line in lines):
        raise CorpusError(f"{path}: the entry at line {begun} has no msgstr; is the file cut off?")


def entry_of(lines: list[str], path: Path, begun: int) -> EntryText:
    text = join_runs(lines)
    header = HEADER.search(text)
    if header and len(text) - header.start() > HEADER_BYTES:
        raise CorpusError(f"{path}: the header at line {begun} is longer than {HEADER_BYTES >> 10} KB")
    return EntryText(begun, text)


def join_runs(lines: list[str]) -> str:
    """Join comments of one kind into one line, and the parts of a string.

    polib appends line by line, which takes quadratic time.
    """
    shorter: list[str] = []
    for commented, run in groupby(lines, key=lambda line: not statement_of(line)):
        join = joined_comments if commented else joined_strings
        shorter += join(run)
    return "\n".join(shorter) + "\n"


def joined_comments(lines: Iterable[str]) -> list[str]:
    """Join comments by kind. Previous texts (`#|`) are not used and left out."""
    texts: dict[str, list[str]] = {"#": [], "#.": []}
    others = []
    for line in lines:
        kind, _, text = line.strip().partition(" ")
        if kind in texts:
            texts[kind].append(text)
        elif kind.startswith("##"):
            texts["#"].append(line.strip().lstrip("#").removeprefix(" "))
        elif kind not in ("#|", "#~|"):
            others.append(line)
    return [f"{kind} {LINE_END.join(parts)}" for kind, parts in texts.items() if parts] + others


def joined_strings(lines: Iterable[str]) -> list[str]:
    statements: list[list[str]] = []
    for line in lines:
        text = statement_of(line)
        if text.startswith('"') and statements:
            statements[-1].append(text[1:-1])
        else:
            statements.append([line.strip()[:-1]])
    return ["".join(parts) + '"' for parts in statements]


def check_size(size: int, path: Path, begun: int) -> None:
    if size > LONGEST:
        raise CorpusError(f"{path}: the entry at line {begun} is longer than {LONGEST >> 20} MB")


def checked_statement(line: str, where: str) -> str:
    statement = statement_of(line)
    if statement and not STATEMENT.fullmatch(statement):
        raise CorpusError(f"{where} is not PO")
    return statement


def statement_of(line: str) -> str:
    """The statement on a line, without the mark of obsolete entries; empty for a comment."""
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
    known = codec_like_ascii(name, "msgid\n")
    if known is None:
        raise CorpusError(f"{path}: its header names the encoding {name!r}, which cannot be read")
    return known


# Messages


def check_language(header: dict[str, str], wanted: str | None, path: Path) -> None:
    language = header.get("Language", "").partition("\n")[0].partition("@")[0].strip()
    if language and wanted and not same_language(language, wanted):
        raise CorpusError(f"{path}: has no text in {wanted!r}; its header says {language!r}")


def singular_form(header: dict[str, str]) -> int:
    """The plural form for 1 by the header's rule, or form 0 without a valid rule."""
    rule = parsed_rule(header.get("Plural-Forms", ""))
    return 0 if rule is None else rule.singular


def message_units(message: Any, singular: int) -> Iterator[Unit]:
    """One pair, or one for each plural form."""
    facts = facts_of(message)
    unfinished = "marked obsolete" if message.obsolete else "marked fuzzy" if "fuzzy" in message.flags else ""
    if not message.msgid_plural:
        yield Unit(message.msgid, message.msgstr, "", facts, unfinished or untranslated(message.msgstr))
        return
    for source, form in plural_pairs(message, singular):
        target = message.msgstr_plural[form]
        yield Unit(source, target, "", facts | {"plural": str(form)}, unfinished or untranslated(target))


def untranslated(target: str) -> str:
    return "" if target.strip() else "without a translation"


def plural_pairs(message: Any, singular: int) -> list[tuple[str, int]]:
    """Pair the form for 1 with the singular and the others with the plural. A single form is paired with both."""
    forms = sorted(message.msgstr_plural)
    if len(forms) == 1:
        return [(message.msgid, forms[0]), (message.msgid_plural, forms[0])]
    return [(message.msgid if form == singular else message.msgid_plural, form) for form in forms]


def facts_of(message: Any) -> dict[str, str]:
    """Context and comments."""
    references = " ".join(f"{file}:{line}" if line else file for file, line in message.occurrences)
    flags = ", ".join(flag for flag in message.flags if flag != "fuzzy")
    facts = {
        "msgctxt": message.msgctxt,
        "note": message.tcomment,
        "extracted": message.comment,
        "reference": references,
        "flags": flags,
    }
    return {name: value.replace(LINE_END, "\n").lstrip("\n") for name, value in facts.items() if value}
