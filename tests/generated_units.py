"""XLIFF files of sentences with tags and placeholders at random places, and what their translations must hold."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from lxml import etree

from knnmt.units.protected import balance

PLACEHOLDERS = (
    "%s", "%1$s", "%d", "{0}", "{name}", "${x}", "{count, number}", "&amp;", "https://example.org/a?b=1",
    "me@example.org", "[X10X]", "[X11X]", "42", "1,000", "3.5", "%(name)s", "2024",
)  # fmt: skip
XLIFF = "urn:oasis:names:tc:xliff:document:1.2"


def marked_up(sentence: str, chance: random.Random) -> str:
    """A sentence as the content of a `source` with one to six tags, and placeholders among its words."""
    words = sentence.split()
    for _ in range(chance.randint(1, 3)):
        words.insert(chance.randint(0, len(words)), chance.choice(PLACEHOLDERS))
    words = [escape(word) for word in words]
    left, number = chance.randint(1, 6), 0
    while left > 0:
        number += 1
        if left >= 2 and chance.random() < 0.6:
            first = chance.randrange(len(words))
            last = min(len(words) - 1, first + chance.randint(0, 3))
            words = wrapped(words, first, last, number)
            left -= 2
        else:
            at = chance.randrange(len(words))
            words[at] = f'<x id="{number}"/>{words[at]}' if chance.random() < 0.5 else f'{words[at]}<x id="{number}"/>'
            left -= 1
    return " ".join(words)


def wrapped(words: Sequence[str], first: int, last: int, number: int) -> list[str]:
    """A pair around some words, unless it would overlap another."""
    inside = " ".join(words[first : last + 1])
    if inside.count("<g ") != inside.count("</g>"):
        return [*words[:-1], f'{words[-1]}<x id="{number}"/><x id="{number}b"/>']
    return [*words[:first], f'<g id="{number}">{inside}</g>', *words[last + 1 :]]


def write_xliff(file: Path, sources: Sequence[str], languages: tuple[str, str]) -> None:
    units = "".join(
        f'<trans-unit id="{number}"><source>{source}</source></trans-unit>\n'
        for number, source in enumerate(sources, start=1)
    )
    head = f'<file original="a" datatype="html" source-language="{languages[0]}" target-language="{languages[1]}">'
    body = f'<xliff version="1.2" xmlns="{XLIFF}">{head}<body>\n{units}</body></file></xliff>\n'
    file.write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{body}', encoding="utf-8")


def faults(file: Path) -> list[str]:
    """Every unit of a translated file that lacks a tag or a placeholder, or has one too many."""
    found = []
    for unit in etree.parse(file).iter(f"{{{XLIFF}}}trans-unit"):
        source, target = unit.find(f"{{{XLIFF}}}source"), unit.find(f"{{{XLIFF}}}target")
        if target is None:
            found.append(f"{unit.get('id')}: no target")
            continue
        if tags(source) != tags(target):
            found.append(f"{unit.get('id')}: tags {tags(source)} became {tags(target)}")
        texts = [" ".join("".join(side.itertext()).split()) for side in (source, target)]
        if not balance(*texts).holds:
            found.append(f"{unit.get('id')}: {texts[0]!r} became {texts[1]!r}: {balance(*texts)}")
    return found


def tags(side: etree._Element) -> Counter[tuple[str, str]]:
    return Counter((etree.QName(one).localname, str(one.get("id"))) for one in side.iterdescendants())
