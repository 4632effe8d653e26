"""Protected text: what a translation must contain as often as its source does.

Placeholders and symbols (`©`, `→`, emoji) letter for letter, numbers by their digits.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from knnmt.text.placeholders import PLACEHOLDER

REMEMBERED = 1 << 10  # characters of a text at most
SPACES = " \u00a0\u2009\u202f"
NUMBER = re.compile(rf"\d{{1,3}}(?:[{SPACES}'’]\d{{3}})+(?!\d)|\d+(?:[.,]\d+)*")
SEPARATOR = rf"[.,'’{SPACES}]"
# What many models have no token for. Units such as ° are left out: languages spell them in their own ways.
PICTURES = r"\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
FLAG = r"[\U0001f1e6-\U0001f1ff]{2}"
SYMBOL = re.compile(rf"{FLAG}|[©®℗℠™{PICTURES}](?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|\u200d[\u2640\u2642{PICTURES}])*")
THING = re.compile(
    rf"(?P<placeholder>{PLACEHOLDER.pattern})|(?-x:(?P<number>{NUMBER.pattern})|(?P<symbol>{SYMBOL.pattern}))",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Thing:
    """A placeholder, number or symbol, and its position."""

    text: str
    start: int
    kind: Literal["placeholder", "number", "symbol"] = "placeholder"

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def is_number(self) -> bool:
        return self.kind == "number"

    @property
    def is_placeholder(self) -> bool:
        """Whether a program reads it, so that a translation may neither lack it nor have one more."""
        return self.kind == "placeholder"


def things(text: str) -> tuple[Thing, ...]:
    """The placeholders, numbers and symbols of a text, in order."""
    return known_things(text) if len(text) <= REMEMBERED else found_things(text)


def found_things(text: str) -> tuple[Thing, ...]:
    return tuple(Thing(found[0], found.start(), kind_of(found)) for found in THING.finditer(text))


known_things = lru_cache(maxsize=1 << 11)(found_things)  # a unit's texts are asked about again and again


def kind_of(found: re.Match[str]) -> Literal["placeholder", "number", "symbol"]:
    return "number" if found["number"] else "symbol" if found["symbol"] else "placeholder"


@dataclass(frozen=True, slots=True)
class Balance:
    """What a translation lacks of its source, and what it has too much of."""

    lost: tuple[Thing, ...]  # of the source
    extra: tuple[Thing, ...]  # of the translation: placeholders alone

    @property
    def holds(self) -> bool:
        return not self.lost and not self.extra


def balance(source: str, translation: str) -> Balance:
    """Compare by count. A number may be written as the target language writes it: 1,000.5 as 1.000,5."""
    wanted = things(source)
    if not wanted:
        return Balance((), tuple(thing for thing in things(translation) if thing.is_placeholder))
    there = [thing for thing in things(translation) if not thing.is_number]
    letter_for_letter = [thing for thing in wanted if not thing.is_number]
    numbers = [thing for thing in wanted if thing.is_number]
    lost = [*beyond(letter_for_letter, Counter(thing.text for thing in there)), *lost_numbers(numbers, translation)]
    placeholders = [thing for thing in there if thing.is_placeholder]
    extra = beyond(placeholders, Counter(thing.text for thing in letter_for_letter))
    return Balance(tuple(sorted(lost, key=lambda thing: thing.start)), tuple(extra))


def beyond(given: Sequence[Thing], known: Counter[str]) -> list[Thing]:
    """Those that come more often than is known."""
    left, found = Counter(known), []
    for thing in given:
        if left[thing.text]:
            left[thing.text] -= 1
        else:
            found.append(thing)
    return found


def lost_numbers(numbers: Sequence[Thing], translation: str) -> list[Thing]:
    """Numbers that the translation has not, or has too few of."""
    if not numbers:
        return []
    digits = western(translation)
    known = {text: len(spelling(text).findall(digits)) for text in {western(thing.text) for thing in numbers}}
    left, lost = dict(known), []
    for thing in numbers:
        text = western(thing.text)
        if left[text]:
            left[text] -= 1
        else:
            lost.append(thing)
    return lost


def western(text: str) -> str:
    """Decimal digits of any script as 0 to 9."""
    if text.isascii():
        return text
    return "".join(str(int(sign)) if sign.isdecimal() else sign for sign in text)


def spelling(number: str) -> re.Pattern[str]:
    """However a language may write it: separators may change, and thousands may be grouped or not."""
    groups = re.findall(r"\d+", number)
    pattern = grouped(groups[0])
    for group in groups[1:]:
        pattern += f"{SEPARATOR}{'?' if len(group) == 3 else ''}{grouped(group) if len(group) > 3 else group}"
    return re.compile(rf"(?<!\d){pattern}(?!\d)")


def grouped(digits: str) -> str:
    """`1000` also matches 1,000."""
    if len(digits) < 4:
        return digits
    bounds = [*range(len(digits) % 3, len(digits), 3), len(digits)]
    bounds = bounds if bounds[0] == 0 else [0, *bounds]
    return f"{SEPARATOR}?".join(digits[start:end] for start, end in pairwise(bounds))


def repaired(source: str, translation: str) -> str:
    """The translation, with placeholders mended that only lost or gained spaces inside: `% 1 $ s`."""
    for thing in balance(source, translation).lost:
        signs = re.findall(r"\S", thing.text)
        if not thing.is_number and len(signs) > 1:
            spread = re.compile(r"\s*".join(map(re.escape, signs)), re.IGNORECASE)
            found = [match for match in spread.finditer(translation) if match[0] != thing.text]
            if len(found) == 1:
                translation = translation[: found[0].start()] + thing.text + translation[found[0].end() :]
    return translation


# Masks


Mask = Callable[[int], str]

BRACKETS = frozenset("[]{}")  # that a mask may have

# Ways to write a mask, tried in turn: what a model copies best differs from model to model.
MASKS: tuple[Mask, ...] = (
    lambda number: f"[{number}]",
    lambda number: f"{7101 + 202 * number}",
    lambda number: f"{{{number}}}",
    lambda number: f"X{number}X",
)


@dataclass(frozen=True, slots=True)
class Masked:
    """A text whose placeholders and numbers are masked."""

    text: str
    masks: tuple[str, ...]
    originals: tuple[str, ...]

    def revealed(self, translation: str) -> str | None:
        """The translation with its masks replaced; None unless it has each of them once, and nothing of others."""
        if not self.masks:
            return translation
        pattern = re.compile("|".join(map(standing_alone, self.masks)))
        if Counter(pattern.findall(translation)) != Counter(self.masks):
            return None
        if self.leaves_over(pattern.sub("", translation), pattern.sub("", self.text)):
            return None
        known = dict(zip(self.masks, self.originals, strict=True))
        return pattern.sub(lambda found: known[found[0]], translation)

    def leaves_over(self, rest: str, source: str) -> bool:
        """Whether a translation contains parts of masks besides the masks themselves."""
        brackets = BRACKETS.intersection("".join(self.masks))
        if any(rest.count(one) > source.count(one) for one in brackets):
            return True
        squeezed = re.sub(rf"(?<=\d){SEPARATOR}(?=\d)", "", rest.upper())
        return any(mask.isalnum() and mask in squeezed for mask in self.masks)


def standing_alone(mask: str) -> str:
    """A mask of letters or digits must not be a part of something longer."""
    return rf"(?<![\w.,]){re.escape(mask)}(?!\w|[.,]\d)" if mask[0].isalnum() else re.escape(mask)


def masked(text: str, mask: Mask, lost: Sequence[str] | None = None) -> Masked:
    """Mask the placeholders in a text: all, or only those that were lost."""
    chosen = [thing for thing in things(text) if lost is None or thing.text in lost]
    names = list(unused(mask, text, len(chosen)))
    pieces, at = [], 0
    for thing, name in zip(chosen, names, strict=True):
        pieces += [text[at : thing.start], name]
        at = thing.end
    return Masked("".join([*pieces, text[at:]]), tuple(names), tuple(thing.text for thing in chosen))


def unused(mask: Mask, text: str, count: int) -> Iterator[str]:
    """Masks that the text itself does not hold."""
    number = 0
    for _ in range(count):
        while mask(number) in text:
            number += 1
        yield mask(number)
        number += 1
