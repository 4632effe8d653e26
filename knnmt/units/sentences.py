"""Sentences of a unit, and clauses of a sentence that is longer than a model can take."""

import re
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate, pairwise

from sentencex import segment

from knnmt.text.writing_systems import is_spaceless
from knnmt.units.flat import Flat, Span, white
from knnmt.units.lines import ends_of_lines

INITIAL = re.compile(r"(?:^|\s)[^\W\d_]\.\s+$")  # an initial or `M.`: no sentence ends there
CLAUSE_ENDS = ("。．.!?！？", ";；:：", ",，、–—-)）]】»”", "")  # the best places to split first; at last, any word
LETTERS = re.compile(r"[^\W\d_]")


def sentences(flat: Flat, language: str | None, *, has_lines: bool = False) -> list[Span]:
    """Runs of words that are a sentence each, or a line if lines matter; together they are all words."""
    if not flat.words:
        return []
    ends = word_ends(flat)
    found = (ends.get(end) for end in boundaries(flat.white_text(), language))
    cuts = {at for at in found if at is not None and parts(flat, at)}
    lines = {*ends_of_lines(flat)} if has_lines else set[int]()
    bounds = sorted((cuts | lines) - {0, len(flat.words)})
    return joined_to_text(flat, [*pairwise([0, *bounds, len(flat.words)])], lines)


def boundaries(text: str, language: str | None) -> Iterator[int]:
    """Where sentences end, the white space after them left out."""
    end, held = 0, ""
    for sentence in segment(language or "en", text):
        end, held = end + len(sentence), held + sentence
        if INITIAL.search(held):
            continue
        yield end - len(held) + len(held.rstrip())
        held = ""


def word_ends(flat: Flat) -> dict[int, int]:
    """From the end of a word in the text to how many words end there or before."""
    ends, at = {}, len(white(flat.gaps[0]))
    text = flat.white_text()
    for number, word in enumerate(flat.words, start=1):
        at = text.index(word, at) + len(word)
        ends[at] = number
    return ends


def parts(flat: Flat, at: int) -> bool:
    """Whether a sentence can end in a gap: not inside `Datentr.-Sektor`, where the splitter sees an end."""
    if at in (0, len(flat.words)) or flat.is_apart(at):
        return True
    return is_spaceless(flat.words[at - 1][-1]) or is_spaceless(flat.words[at][0])


def joined_to_text(flat: Flat, spans: list[Span], lines: Collection[int]) -> list[Span]:
    """Runs without a letter, such as `1.`, go with what follows, else with what is before: alone they say nothing."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and not has_letters(flat, merged[-1]) and not breaks(flat, first, lines):
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    if len(merged) > 1 and not has_letters(flat, merged[-1]) and not breaks(flat, merged[-1][0], lines):
        merged[-2:] = [(merged[-2][0], merged[-1][1])]
    return merged


def has_letters(flat: Flat, span: Span) -> bool:
    return any(LETTERS.search(word) for word in flat.words[slice(*span)])


def breaks(flat: Flat, at: int, lines: Collection[int]) -> bool:
    """Whether a line or a column ends in a gap."""
    return at in lines or "\n" in white(flat.gaps[at])


def clauses(flat: Flat, span: Span, fits: Callable[[str], bool]) -> list[Span]:
    """A run of words in pieces that fit, split at the ends of clauses where there are any."""
    first, last = span
    if last - first < 2 or fits(flat.text(first, last)):
        return [span]
    middle = best_split(flat, span)
    return [*clauses(flat, (first, middle), fits), *clauses(flat, (middle, last), fits)]


def best_split(flat: Flat, span: Span) -> int:
    """The end of a clause that is nearest to the middle of the text, but not at its edge."""
    first, last = span
    ends = list(accumulate(len(word) + 1 for word in flat.words[first:last]))
    for signs in CLAUSE_ENDS:
        places = [
            at
            for at in range(first + 1, last)
            if ends[-1] / 8 < ends[at - first - 1] < ends[-1] * 7 / 8
            and (flat.words[at - 1] in signs if signs else flat.is_apart(at))
        ]
        if places:
            return min(places, key=lambda at: abs(ends[at - first - 1] - ends[-1] / 2))
    return (first + last) // 2
