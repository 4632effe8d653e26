"""Translation memories in TMX 1.4, read unit by unit."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from lxml import etree

from knnmt.errors import CorpusError

LANG = "{http://www.w3.org/XML/1998/namespace}lang"

# Elements whose content is formatting code of the tool that wrote the memory, not text.
CODE = frozenset({"bpt", "ept", "ph", "it", "ut"})


def read_tmx(file: BinaryIO, name: str, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    """The pair of each unit that has both languages; a side that is missing is empty text.

    Entities and the network stay off: a memory comes from strangers.
    """
    units = 0
    try:
        for _, unit in etree.iterparse(file, tag="{*}tu", resolve_entities=False, no_network=True, load_dtd=False):
            units += 1
            variants = [(language_of(variant), variant) for variant in unit.iterfind("{*}tuv")]
            yield text_in(variants, source_lang, name, units), text_in(variants, target_lang, name, units)
            forget(unit)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{name}: broken TMX after unit {units}: {error}") from error
    except (OSError, EOFError) as error:
        raise CorpusError(f"{name}: broken after unit {units}: {error}") from error


def forget(unit: Any) -> None:
    """Free a unit that has been read, and the empty shells of those before it."""
    unit.clear()
    while unit.getprevious() is not None:
        del unit.getparent()[0]


def language_of(variant: Any) -> str:
    return str(variant.get(LANG) or variant.get("lang") or "")


def text_in(variants: list[tuple[str, Any]], wanted: str, name: str, unit: int) -> str:
    """The text of the variant that matches the language best: the same code first, then the same language."""
    matching = [variant for code, variant in variants if same_language(code, wanted)]
    exact = [variant for code, variant in variants if normal_code(code) == normal_code(wanted)]
    for variant in exact + matching:
        segment = variant.find("{*}seg")
        return "" if segment is None else "".join(pieces(segment, name, unit))
    return ""


def normal_code(code: str) -> str:
    return code.replace("_", "-").lower()


def same_language(code: str, wanted: str) -> bool:
    """`de` matches `de-AT`, and `de-AT` matches `de`; `de-AT` does not match `de-CH`."""
    code, wanted = normal_code(code), normal_code(wanted)
    return code == wanted or code.startswith(f"{wanted}-") or wanted.startswith(f"{code}-")


def pieces(element: Any, name: str, unit: int) -> Iterator[str]:
    """The text of a segment without its formatting codes; text inside `hi` stays."""
    yield element.text or ""
    for child in element:
        if child.tag is etree.Entity:
            raise CorpusError(f"{name}: unit {unit} uses the entity {child.text}; entities are not resolved")
        if isinstance(child.tag, str) and etree.QName(child).localname not in CODE:
            yield from pieces(child, name, unit)
        yield child.tail or ""
