"""Translation memories in TMX 1.4, read unit by unit."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar

from lxml import etree

from knnmt.errors import CorpusError
from knnmt.languages import base_language

Item = TypeVar("Item")

LANG = "{http://www.w3.org/XML/1998/namespace}lang"

# Elements whose content is formatting code of the tool that wrote the memory, not text.
CODES = ("{*}bpt", "{*}ept", "{*}ph", "{*}it", "{*}ut")

# Entities and the network stay off: a memory comes from strangers.
SAFELY = {"resolve_entities": False, "no_network": True, "load_dtd": False}


def read_tmx(file: BinaryIO, name: str, source_lang: str | None, target_lang: str | None) -> Iterator[tuple[str, str]]:
    """The pair of each unit; a side that is missing is empty text. A language of None is the one that it declares."""
    found: set[str] = set()
    for number, unit in enumerate(read_units(file, name), start=1):
        variants = [(language_of(variant), variant) for variant in unit.iterfind("{*}tuv")]
        found.update(code for code, _ in variants)
        if source_lang is None or target_lang is None:
            source_lang, target_lang = declared_languages(unit, found, source_lang, target_lang, name)
        source = text_of(best_first(variants, source_lang, target_lang), name, number)
        yield source, text_of(best_first(variants, target_lang, source_lang), name, number)
    for wanted in (source_lang, target_lang):
        if found and wanted and not any(same_language(code, wanted) for code in found):
            raise CorpusError(f"{name}: has no text in {wanted!r}; it has {listed(found)}")


def read_units(file: BinaryIO, name: str) -> Iterator[Any]:
    """One element a unit, emptied when the next is asked for."""
    check_root(file, name)
    file.seek(0)
    events = etree.iterparse(file, tag="{*}tu", **SAFELY)
    done = 0
    try:
        for _, unit in events:
            yield unit
            forget(unit)
            done += 1
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{name}: broken TMX after unit {done}: {reason_of(error, events)}") from error


def check_root(file: BinaryIO, name: str) -> None:
    """Know another kind of file by its first element, before all of it is in memory."""
    events = etree.iterparse(file, events=("start",), **SAFELY)
    try:
        _, root = next(events)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{name}: not a TMX file: {reason_of(error, events)}") from error
    kind = etree.QName(root).localname
    if kind != "tmx":
        raise CorpusError(f"{name}: not a TMX file: its first element is <{kind}>, not <tmx>")


def reason_of(error: Any, events: Any) -> str:
    """What the parser says, in one line; its log knows of undefined entities, the exception does not."""
    last = events.error_log.last_error
    return " ".join((f"{last.message} (line {last.line})" if last else str(error.msg)).split())


def forget(unit: Any) -> None:
    """Free a unit that has been read, and the empty shells of those before it."""
    unit.clear()
    while unit.getprevious() is not None:
        del unit.getparent()[0]


def language_of(variant: Any) -> str:
    return str(variant.get(LANG) or variant.get("lang") or "")


def declared_languages(
    unit: Any, codes: set[str], source: str | None, target: str | None, name: str
) -> tuple[str, str]:
    """The source language that the unit or the header names, and the only other one beside it."""
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
    """The language beside the known one, where there is just one."""
    others = [code for code in codes if known and code and not same_language(code, known)]
    return others[0] if len(others) == 1 else None


def listed(codes: set[str]) -> str:
    return ", ".join(sorted(filter(None, codes))) or "no language codes"


def best_first(items: Iterable[tuple[str, Item]], wanted: str, other: str) -> list[Item]:
    """What is in the wanted language: under its own code first, then under a regional one that is not the other's."""
    coded = [(normal_code(code), item) for code, item in items]
    exact = [item for code, item in coded if code == normal_code(wanted)]
    apart = (normal_code(wanted), normal_code(other))
    return exact + [item for code, item in coded if code not in apart and same_language(code, wanted)]


@lru_cache(maxsize=1024)
def normal_code(code: str) -> str:
    """`DE`, `de` and `deu` are `de`; `de_AT` is `de-at`."""
    language, *region = code.replace("_", "-").lower().split("-")
    return "-".join([base_language(language), *region])


def same_language(code: str, wanted: str) -> bool:
    """`de` matches `de-AT`, and `de-AT` matches `de`; `de-AT` does not match `de-CH`."""
    code, wanted = normal_code(code), normal_code(wanted)
    return code == wanted or code.startswith(f"{wanted}-") or wanted.startswith(f"{code}-")


def text_of(variants: list[Any], name: str, number: int) -> str:
    """The first text among the variants."""
    segments = (variant.find("{*}seg") for variant in variants)
    texts = (plain_text(segment, name, number) for segment in segments if segment is not None)
    return next((text for text in texts if text.strip()), "")


def plain_text(segment: Any, name: str, number: int) -> str:
    """The text of a segment without its formatting codes; text inside `hi` stays."""
    if len(segment) == 0:
        return str(segment.text or "")
    etree.strip_elements(segment, *CODES, with_tail=False)
    for entity in segment.iter(etree.Entity):
        raise CorpusError(f"{name}: unit {number} uses the entity {entity.text}; entities are not resolved")
    return "".join(segment.itertext())
