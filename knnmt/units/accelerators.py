"""Accelerator marks of labels, such as `&Datei` or `_Datei`: removed before translation, put back once afterwards.

The header of a catalogue may name the sign. Else a mark is known by its shape: the only one of a short text, before a
letter, and not where it could be part of a name (`R&D`, `file_name`). Where no letter is on a keyboard, the mark stands
in brackets behind the text: `文件(&F)`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from knnmt.documents.content import Content, plain_text
from knnmt.text.writing_systems import is_spaceless
from knnmt.units.protected import things

LABEL = 60  # characters: what is longer is no label, unless the file says how it marks accelerators
STOP = re.compile(r"(?<!\.)\.\s*\Z")  # at the end of a sentence, which is no label either
WORD = re.compile(r"[^\W_]+")
ENDS = re.compile(r"[\s.…:：]*\Z")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A sign, and the letter after it."""

    sign: str
    letter: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An accelerator in a text, and what is left out with it."""

    accelerator: Accelerator
    start: int
    end: int


def without_accelerator(content: Content, signs: str) -> tuple[Content, Accelerator | None]:
    """A text without its mark; None where it has none, or more than one.

    A single sign is the one that the file names. Of several, a mark must have the shape of one.
    """
    is_named = len(signs) == 1
    if not is_named and not is_label(plain_text(content)):
        return content, None
    found = [
        (place, piece, mark)
        for place, piece in enumerate(content)
        if isinstance(piece, str)
        for sign in signs
        for mark in marks_in(piece, sign, is_named=is_named)
    ]
    if len(found) != 1:
        return content, None
    place, piece, mark = found[0]
    rest = piece[: mark.start] + piece[mark.end :]
    return (*content[:place], *([rest] if rest else []), *content[place + 1 :]), mark.accelerator


def is_label(text: str) -> bool:
    return len(text) <= LABEL and not STOP.search(text)


def marks_in(text: str, sign: str, *, is_named: bool) -> Iterator[Mark]:
    """Possible marks: before a letter, outside placeholders, and not `&&`, which is an escaped sign."""
    quoted = re.escape(sign)
    taken = [range(thing.start, thing.end) for thing in things(text)] if sign in text else []
    others = [found.start() for found in re.finditer(rf"{quoted}(?=\S)|(?<=\S){quoted}", text)]
    if not is_named and sum(is_free(at, taken) for at in others) != 1:
        return
    for found in re.finditer(rf"\s?\({quoted}(\w)\)|(?<!{quoted}){quoted}(?=([^\W\d_]))", text):
        bracketed, letter = found[1], found[1] or found[2]
        at = found.end() - 3 if bracketed else found.start()
        has_shape = is_named or bracketed or begins_word(text, at) or is_inside_word(text, at, sign)
        if has_shape and is_free(at, taken):
            yield Mark(Accelerator(sign, letter), found.start(), found.end())


def is_free(at: int, taken: Sequence[range]) -> bool:
    return not any(at in span for span in taken)


def begins_word(text: str, at: int) -> bool:
    return at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_")


def is_inside_word(text: str, at: int, sign: str) -> bool:
    """`D&atei`, but not `R&D`; `E_xit`, but not `file_name`."""
    if sign == "&":
        return text[at + 1].islower()
    start = max((found.end() for found in re.finditer(r"\s", text[:at])), default=0)
    word = text[start:].split()[0].replace(sign, "", 1)
    return word.rstrip("….:").isalpha() and word[0].isupper() and word[1:].islower()


def with_accelerator(content: Content, accelerator: Accelerator) -> Content:
    """A translation with the mark before a letter: one like the source's that begins a word, else the first.

    A text of the memory that has a mark keeps it.
    """
    if without_accelerator(content, accelerator.sign)[1] is not None:
        return content
    sign, letter = accelerator.sign, accelerator.letter.casefold()
    places = [
        (place, at, piece[at].casefold() == letter)
        for place, piece in enumerate(content)
        if isinstance(piece, str)
        for at in word_starts(piece, sign)
    ]
    if not places:
        return (*content[:-1], *bracketed(content[-1:], accelerator))
    place, at, _ = max(places, key=lambda found: found[2])
    piece = content[place]
    assert isinstance(piece, str)
    return (*content[:place], piece[:at] + sign + piece[at:], *content[place + 1 :])


def word_starts(text: str, sign: str) -> Iterator[int]:
    """Possible places of a mark: before words, outside placeholders, and where it does not form an entity."""
    taken = [range(thing.start, thing.end) for thing in things(text)]
    for word in WORD.finditer(text):
        at = word.start()
        has_letter = text[at].isalpha() and not is_spaceless(text[at]) and is_free(at, taken)
        if has_letter and len(things(text[:at] + sign + text[at:])) == len(taken):
            yield at


def bracketed(last: Sequence[object], accelerator: Accelerator) -> Content:
    """The end of a text in a script without keyboard letters, followed by the mark."""
    mark = f"({accelerator.sign}{accelerator.letter.upper()})"
    if not last or not isinstance(last[0], str):
        return (*last, mark)  # type: ignore[arg-type]
    end = ENDS.search(last[0])
    assert end is not None
    return (last[0][: end.start()] + mark + last[0][end.start() :],)
