"""XLIFF 1.2 and 2.x, read unit by unit: translated segments, without tags."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from lxml import etree

from knnmt.errors import CorpusError
from knnmt.text.inputs import open_binary
from knnmt.text.languages import listed, same_language
from knnmt.text.units import Languages, Unit, joined_values
from knnmt.text.xml_units import (
    CLOSED,
    LANG,
    OPENED,
    Dialect,
    local_name,
    mark_of,
    read_root,
    read_units,
    text_inside,
    unresolved,
    without_tags,
)

DECLARES = ("version", "srcLang", "trgLang")
XLIFF_1 = Dialect("an XLIFF", root="xliff", unit="trans-unit", around=("group", "file"), declares=DECLARES)
XLIFF_2 = Dialect("an XLIFF", root="xliff", unit="unit", around=("group", "file"), declares=DECLARES)

# Elements whose text is no text of the sentence: code of the original format, or what must not be translated. A
# document's tags are left out in the same way when it is translated, so that its sentences are near to the memory's.
CODES = ("bpt", "ept", "it", "ph", "x", "bx", "ex", "sc", "ec")
PROTECTED = ("protected", "x-its-translate-no")

# The states of both specifications.
FINISHED = ("translated", "signed-off", "reviewed", "final")
UNFINISHED = (
    "initial", "new", "needs-adaptation", "needs-l10n", "needs-translation", "needs-review-adaptation",
    "needs-review-l10n", "needs-review-translation",
)  # fmt: skip


def read_xliff_file(path: Path, languages: Languages) -> Iterator[Unit]:
    """The segments of an XLIFF file."""
    with open_binary(path) as file:
        yield from read_xliff(file, str(path), *languages)


def read_xliff(file: BinaryIO, name: str, source_lang: str | None, target_lang: str | None) -> Iterator[Unit]:
    """All segments. Those in other languages have empty sides."""
    root = read_root(file, name, XLIFF_1)
    version = major_version(root, name)
    found: set[tuple[str, str]] = set()
    wrong = True
    for number, unit in enumerate(read_units(file, name, XLIFF_1 if version == 1 else XLIFF_2), start=1):
        languages = languages_1(unit) if version == 1 else (root.get("srcLang", ""), root.get("trgLang", ""))
        found.add(languages)
        if not is_wanted(languages, source_lang, target_lang):
            yield Unit("", "")
            continue
        wrong = False
        yield from units_1(unit, name, number) if version == 1 else units_2(unit, name, number)
    if found and wrong:
        pairs = {" to ".join(filter(None, pair)) for pair in found}
        wanted = " to ".join(language or "any language" for language in (source_lang, target_lang))
        raise CorpusError(f"{name}: has no text from {wanted}; it has {listed(pairs)}")


def major_version(root: dict[str, str], name: str) -> int:
    version = root.get("version", "")
    if version[:2] not in ("1.", "2."):
        raise CorpusError(f"{name}: XLIFF of version {version!r} cannot be read; 1.0 to 1.2 and 2.x can")
    return int(version[0])


def is_wanted(languages: tuple[str, str], *wanted: str | None) -> bool:
    """Whether languages match. A language that is not named matches all."""
    return all(not has or not wants or same_language(has, wants) for has, wants in zip(languages, wanted, strict=True))


# XLIFF 1.2


def languages_1(unit: Any) -> tuple[str, str]:
    """The languages of the texts, or else of their file element."""
    file = next(unit.iterancestors("{*}file"), unit)
    sides = [unit.find(f"{{*}}{side}") for side in ("source", "target")]
    codes = ["" if side is None else str(side.get(LANG, "")) for side in sides]
    return codes[0] or str(file.get("source-language", "")), codes[1] or str(file.get("target-language", ""))


def units_1(unit: Any, name: str, number: int) -> Iterator[Unit]:
    """The unit as one pair, or as the pairs of its `mrk` segments where both sides have them."""
    source, target = unit.find("{*}source"), unit.find("{*}target")
    unfinished = unfinished_1(unit, target)
    facts = facts_1(unit, target, name, number)
    segmented = unit.find("{*}seg-source")
    sources = {} if segmented is None else mrk_texts(segmented, name, number)
    targets = {} if target is None else mrk_texts(target, name, number)
    if not sources or not targets:
        yield Unit(side_text(source, name, number), side_text(target, name, number), "", facts, unfinished)
        return
    for mid in sources | targets:
        yield Unit(sources.get(mid, ""), targets.get(mid, ""), "", facts | {"segment": mid}, unfinished)


def mrk_texts(side: Any, name: str, number: int) -> dict[str, str]:
    """Texts by the ids of their `mrk` elements."""
    texts: dict[str, str] = {}
    for mark in side.iter("{*}mrk"):
        mid = str(mark.get("mid", ""))
        if mark.get("mtype") != "seg":
            continue
        if mid in texts:
            raise CorpusError(f"{name}: unit {number} has the segment {mid!r} twice")
        texts[mid] = side_text(mark, name, number)
    return texts


def unfinished_1(unit: Any, target: Any) -> str:
    """Why this translation is not finished; empty if it is.

    The state decides. A target without a state counts as finished, because many tools write none, unless the unit is
    not approved or the target is a suggestion of a machine or a memory.
    """
    state = "" if target is None else str(target.get("state", ""))
    if target is None or state:
        return "without a translation" if target is None else unfinished_state(state)
    approved = unit.get("approved", "")
    if approved == "no":
        return "not approved"
    return "that are suggestions" if target.get("state-qualifier") and approved != "yes" else ""


def unfinished_state(state: str) -> str:
    if state in FINISHED:
        return ""
    return f"in the state {state}" if state in UNFINISHED else "in a state that XLIFF does not know"


def facts_1(unit: Any, target: Any, name: str, number: int) -> dict[str, str]:
    file = next(unit.iterancestors("{*}file"), unit)
    facts = [("original", file.get("original")), ("id", unit.get("id")), ("resname", unit.get("resname"))]
    facts += [("state", None if target is None else target.get("state"))]
    notes = [("note", text_inside(note, name, number)) for note in unit.iterfind("{*}note")]
    return joined_values([(key, str(value)) for key, value in facts if value] + notes)


# XLIFF 2


def units_2(unit: Any, name: str, number: int) -> Iterator[Unit]:
    """The segments of a unit; its notes belong to each."""
    file = next(unit.iterancestors("{*}file"), unit)
    facts = [("original", file.get("original")), ("id", unit.get("id")), ("resname", unit.get("name"))]
    notes = [("note", text_inside(note, name, number)) for note in unit.iterfind("{*}notes/{*}note")]
    for segment in unit.iterfind("{*}segment"):
        state = str(segment.get("state", "initial"))  # the specification's default
        own = [("segment", segment.get("id")), ("state", state)]
        metadata = joined_values([(key, str(value)) for key, value in facts + own if value] + notes)
        source, target = (side_text(segment.find(f"{{*}}{side}"), name, number) for side in ("source", "target"))
        yield Unit(source, target, "", metadata, unfinished_state(state))


# Text


def side_text(side: Any, name: str, number: int) -> str:
    """The text of one side without its tags and codes."""
    if side is None:
        return ""
    for entity in side.iter(etree.Entity):
        raise unresolved(entity, name, number)
    return without_tags(pieces(side, f"{name}: unit {number}"))


def pieces(element: Any, where: str) -> Iterator[str]:
    """The text inside an element, in order."""
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str):  # not a comment or a processing instruction
            yield from inline(child, where)
        yield child.tail or ""


def inline(element: Any, where: str) -> Iterator[str]:
    kind = local_name(element)
    if kind == "cp":
        yield character(element, where)
    elif kind in CODES or is_protected(element):
        yield mark_of(kind)
    else:
        yield OPENED
        yield from pieces(element, where)
        yield CLOSED


def is_protected(element: Any) -> bool:
    """Whether the text inside must not be translated."""
    return element.get("translate") == "no" or element.get("mtype") in PROTECTED


def character(element: Any, where: str) -> str:
    """A character that XML cannot hold, by its number."""
    try:
        text = chr(int(element.get("hex", ""), 16))
        text.encode()
    except (ValueError, OverflowError) as error:
        raise CorpusError(f"{where} has no character {element.get('hex', '')!r}") from error
    return text
