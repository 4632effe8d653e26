"""The reasons why a person should check a translation."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from knnmt.text.writing_systems import is_spaceless
from knnmt.units.protected import NUMBER, western

TAG_GUESSED = "tag guessed"
PLACEHOLDER_RESTORED = "placeholder restored"
PLACEHOLDER_ADDED = "placeholder added"
NUMBER_DIFFERS = "number differs"
MUCH_LONGER = "much longer"
MUCH_SHORTER = "much shorter"
REPEATED = "repeated phrase"
COPY = "untranslated copy"
LINES_DIFFER = "line breaks differ"
OVER_LIMIT = "longer than allowed"
TOO_LONG = "source too long"
NOT_FINISHED = "translation not finished"
NOT_TRANSLATED_INSIDE = "text inside a placeholder"

# How bad each is: the sum over a unit's flags, with its log-probability, orders a report.
WEIGHTS = {
    NOT_FINISHED: 5.0, PLACEHOLDER_RESTORED: 5.0, PLACEHOLDER_ADDED: 5.0, NUMBER_DIFFERS: 4.0, REPEATED: 4.0,
    OVER_LIMIT: 4.0,
    MUCH_SHORTER: 3.0, MUCH_LONGER: 3.0, COPY: 3.0, TAG_GUESSED: 2.0, LINES_DIFFER: 2.0, TOO_LONG: 2.0,
    NOT_TRANSLATED_INSIDE: 2.0,
}  # fmt: skip

LONGER, SHORTER = 2.5, 0.4  # as a factor of the source's length
FEW = 12  # characters: such short texts have no usual length
WORD = re.compile(r"[^\W\d_]+")
ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def doubts_of(source: str, target: str) -> list[str]:
    """What the two texts alone make doubtful."""
    found = []
    if numbers(source) != numbers(target):
        found.append(NUMBER_DIFFERS)
    if ICU.search(source):
        found.append(NOT_TRANSLATED_INSIDE)
    found += length_doubts(length(source), length(target))
    if is_repetitive(source, target):
        found.append(REPEATED)
    if is_copy(source, target):
        found.append(COPY)
    return found


def numbers(text: str) -> Counter[str]:
    """The numbers of a text by their digits, however they are grouped."""
    return Counter(re.sub(r"\D", "", western(found)) for found in NUMBER.findall(text))


def length(text: str) -> int:
    """In characters of an alphabet: one of a script without spaces says about as much as three."""
    return sum(3 if is_spaceless(sign) else 1 for sign in text) if not text.isascii() else len(text)


def length_doubts(source: int, target: int) -> list[str]:
    if max(source, target) < FEW:
        return [MUCH_SHORTER] if source and not target else []
    ratio = target / max(1, source)
    return [MUCH_LONGER] if ratio > LONGER else [MUCH_SHORTER] if ratio < SHORTER else []


def is_repetitive(source: str, target: str) -> bool:
    """Whether a phrase comes three times in a row, or four times in all, and not in the source."""
    words = WORD.findall(target.lower())
    if max(Counter(words).values(), default=0) < 3:
        return False
    return repeats(words) > max(2, repeats(WORD.findall(source.lower())))


def repeats(words: Sequence[str]) -> int:
    """How often the same one to four words follow themselves at most; a single word counts from two letters on."""
    most = 1
    for size in range(1, 5):
        for start in range(size):
            groups = [tuple(words[at : at + size]) for at in range(start, len(words) - size + 1, size)]
            run = 1
            for before, now in pairwise(groups):
                run = run + 1 if before == now and len("".join(now)) > 1 else 1
                most = max(most, run)
    return most


def is_copy(source: str, target: str) -> bool:
    """Whether a text of several words came back as it was."""
    return len(WORD.findall(source)) >= 3 and " ".join(source.split()) == " ".join(target.split())
