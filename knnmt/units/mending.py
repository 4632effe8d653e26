"""Repairs placeholders: inserts lost ones at their aligned places and removes repeated ones."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from knnmt.units import doubts
from knnmt.units.flat import Flat, Gap, white
from knnmt.units.links import Matrix, is_thing
from knnmt.units.placing import gap_for_word
from knnmt.units.protected import balance, lost_numbers, things


@dataclass(frozen=True, slots=True)
class Mended:
    """A translation with links to its source [target words, source words], and what was done to it."""

    target: Flat
    links: Matrix | None
    flags: tuple[str, ...] = ()


def mended(source: Flat, target: Flat, links: Matrix | None) -> Mended:
    """The translation with each placeholder and number of the source as often as the source has it."""
    judged = balance(source.text(), target.text())
    if judged.holds:
        return Mended(target, links)
    if links is None:
        links = np.full((len(target.words), len(source.words)), 1 / max(1, len(source.words)), np.float32)
    flags = []
    if judged.extra:
        flags.append(doubts.PLACEHOLDER_ADDED)
        target, links = without_extra(source, target, links)
    lost = missing_words(source, target)
    if lost:
        flags.append(doubts.PLACEHOLDER_RESTORED)
    for word in lost:
        target, links = with_word(source, target, links, word)
    if not balance(source.text(), target.text()).holds:  # `a.org` beside `.b` would be another address
        target = with_spaces(target)
    return Mended(target, links, tuple(flags))


def with_spaces(target: Flat) -> Flat:
    """The target with white space around every placeholder and number, so that none runs into what is beside it."""
    gaps = list(target.gaps)
    for at in range(1, len(target.words)):
        if not white(gaps[at]) and (is_thing(target.words[at - 1]) or is_thing(target.words[at])):
            gaps[at] = (" ",)
    return Flat(target.words, tuple(gaps))


def missing_words(source: Flat, target: Flat) -> list[int]:
    """The words of the source that must be in the target and are not, by position."""
    left = Counter(target.words)
    text = target.text()
    gone: list[int] = []
    for at, word in enumerate(source.words):
        if not is_thing(word):
            continue
        if things(word)[0].is_number:
            same = [things(one)[0] for one in source.words[: at + 1] if one == word]
            if len(lost_numbers(same, text)) > sum(source.words[one] == word for one in gone):
                gone.append(at)
        elif left[word]:
            left[word] -= 1
        else:
            gone.append(at)
    return gone


def without_extra(source: Flat, target: Flat, links: Matrix) -> tuple[Flat, Matrix]:
    """The target without placeholders that the source has not, or not as often."""
    allowed = Counter(source.words)
    drop = []
    for at, word in enumerate(target.words):
        if is_thing(word) and things(word)[0].is_placeholder:
            if allowed[word]:
                allowed[word] -= 1
            else:
                drop.append(at)
    words, gaps = list(target.words), list(target.gaps)
    for at in reversed(drop):
        del words[at]
        gaps[at : at + 2] = [gaps[at] if white(gaps[at]) and at else gaps[at + 1] if at else gaps[0]]
    return Flat(tuple(words), tuple(gaps)), np.delete(links, drop, axis=0)


def with_word(source: Flat, target: Flat, links: Matrix, word: int) -> tuple[Flat, Matrix]:
    """The target with a word of the source put where the words around it went."""
    at = gap_for_word(links, word)
    words, gaps = list(target.words), list(target.gaps)
    words.insert(at, source.words[word])
    gaps[at : at + 1] = gaps_around(source, word, target, at)
    row = np.zeros((1, links.shape[1]), np.float32)
    row[0, word] = 1
    return Flat(tuple(words), tuple(gaps)), np.insert(links, at, row, axis=0)


def gaps_around(source: Flat, word: int, target: Flat, at: int) -> tuple[Gap, Gap]:
    """The gaps before and after a word that is put into a gap: spaces where the source or the gap has them."""
    text, space = source.words[word], white(target.gaps[at])
    before = after = space
    if at and not space and (word == 0 or source.is_apart(word) or meet(target.words[at - 1], text)):
        before = " "
    if at < len(target.words) and not space:
        wanted = word + 1 == len(source.words) or source.is_apart(word + 1)
        letters = target.words[at][0].isalnum()
        after = " " if (wanted and letters) or meet(text, target.words[at]) else ""
    if space and at == 0:
        after = " "
    if space and at == len(target.words):
        before = " "
    return (before,), (after,)


def meet(left: str, right: str) -> bool:
    """Whether two words would become one without a space between them."""
    return (left[-1].isalnum() or is_thing(left)) and (right[0].isalnum() or is_thing(right))
