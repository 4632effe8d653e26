"""TMX 1.4, read unit by unit with metadata."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from lxml import etree

from knnmt.errors import CorpusError
from knnmt.text.inputs import open_binary
from knnmt.text.languages import best_first, listed, same_language
from knnmt.text.units import Languages, Unit, joined_values, utc_time
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

TMX = Dialect("a TMX", root="tmx", unit="tu")

# Elements whose content is formatting code of the tool that wrote the memory, not text.
CODES = ("bpt", "ept", "ph", "it", "ut")

# Attributes of units and variants that are kept as metadata under their own names; `creationdate` is the unit's time.
ATTRIBUTES = (
    "tuid", "creationid", "creationtool", "creationtoolversion", "changeid", "changedate", "usagecount",
    "lastusagedate", "datatype", "segtype", "o-tmf", "o-encoding",
)  # fmt: skip


def read_tmx_file(path: Path, languages: Languages) -> Iterator[Unit]:
    """The units of a translation memory."""
    with open_binary(path) as file:
        yield from read_tmx(file, str(path), *languages)


def read_tmx(file: BinaryIO, name: str, source_lang: str | None, target_lang: str | None) -> Iterator[Unit]:
    """The pair of each unit. A missing side is empty. If a language is None, the file's declaration is used."""
    read_root(file, name, TMX)
    found: set[str] = set()
    for number, unit in enumerate(read_units(file, name, TMX), start=1):
        variants = [(language_of(variant), variant) for variant in unit.iterfind("{*}tuv")]
        found.update(code for code, _ in variants)
        if source_lang is None or target_lang is None:
            source_lang, target_lang = declared_languages(unit, found, source_lang, target_lang, name)
        source = first_with_text(best_first(variants, source_lang, target_lang), name, number)
        target = first_with_text(best_first(variants, target_lang, source_lang), name, number)
        yield pair_of(unit, source, target, name, number)
    for wanted in (source_lang, target_lang):
        if found and wanted and not any(same_language(code, wanted) for code in found):
            raise CorpusError(f"{name}: has no text in {wanted!r}; it has {listed(found)}")


def language_of(variant: Any) -> str:
    return str(variant.get(LANG) or variant.get("lang") or "")


def declared_languages(
    unit: Any, codes: set[str], source: str | None, target: str | None, name: str
) -> tuple[str, str]:
    """The source language of the unit or the header, and the only other language."""
    source = source or declared_source(unit, target) or only_other(codes, target)
    target = target or only_other(codes, source)
    if source is None or target is None:
        hint = "name its languages with --source-lang and --target-lang"
        raise CorpusError(f"{name}: {hint}; its first unit has {listed(codes)}")
    return source, target


def declared_source(unit: Any, target: str | None) -> str | None:
    header = unit.getroottree().find("{*}header")
    code = str(unit.get("srclang") or (header is not None and header.get("srclang")) or "*all*")
    return None if code.lower() == "*all*" or (target and same_language(code, target)) else code


def only_other(codes: set[str], known: str | None) -> str | None:
    """The language other than the known one, if there is exactly one."""
    others = [code for code in codes if known and code and not same_language(code, known)]
    return others[0] if len(others) == 1 else None


def first_with_text(variants: list[Any], name: str, number: int) -> tuple[str, list[Any]]:
    """The first text among the variants, and the variant that has it."""
    for variant in variants:
        segment = variant.find("{*}seg")
        text = "" if segment is None else segment_text(segment, name, number)
        if text.strip():
            return text, [variant]
    return "", []


def segment_text(segment: Any, name: str, number: int) -> str:
    """The text of a segment without its formatting codes; text inside `hi` stays."""
    return without_tags(pieces(segment, name, number))


def pieces(element: Any, name: str, number: int) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag is etree.Entity:
            raise unresolved(child, name, number)
        if isinstance(child.tag, str) and local_name(child) in CODES:
            yield mark_of(local_name(child))
        elif isinstance(child.tag, str):
            yield OPENED
            yield from pieces(child, name, number)
            yield CLOSED
        yield child.tail or ""


def pair_of(unit: Any, source: tuple[str, list[Any]], target: tuple[str, list[Any]], name: str, number: int) -> Unit:
    """The pair with metadata of the unit and both variants. `changedate` replaces a missing `creationdate`."""
    elements = [unit, *target[1], *source[1]]
    metadata = merged([facts_of(element, name, number) for element in elements])
    made, changed = (first_attribute(elements, key) for key in ("creationdate", "changedate"))
    if made and not utc_time(made):
        metadata.setdefault("creationdate", made)
    return Unit(source[0], target[0], utc_time(made) or utc_time(changed), metadata)


def first_attribute(elements: list[Any], name: str) -> str:
    return next((str(element.get(name)) for element in elements if element.get(name)), "")


def facts_of(element: Any, name: str, number: int) -> dict[str, str]:
    """Attributes, notes and properties. `corpus` is left out: an export wrote it."""
    facts = [(key, str(element.get(key))) for key in element.keys() if key in ATTRIBUTES]  # noqa: SIM118
    facts += [("note", text_inside(note, name, number)) for note in element.iterchildren("{*}note")]
    for prop in element.iterchildren("{*}prop"):
        if prop.get("type") != "corpus":
            facts.append((str(prop.get("type", "prop")), text_inside(prop, name, number)))
    return joined_values(facts)


def merged(several: list[dict[str, str]]) -> dict[str, str]:
    """Merge facts, the unit's first. An attribute keeps its first value; notes and properties become lines."""
    result: dict[str, str] = {}
    for facts in several:
        for key, value in facts.items():
            if key not in result:
                result[key] = value
            elif key not in ATTRIBUTES and value != result[key]:
                result[key] += f"\n{value}"
    return result
