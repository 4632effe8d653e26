"""Translates pieces of units (sentences or clauses) so that their placeholders are kept.

The model first sees placeholders as they are. If its translation has lost one or has one too many, the piece is decoded
again with masks in their place, with one kind of mask after another.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from knnmt.models.translation_model import TranslationModel
from knnmt.translate.aligning import Pair
from knnmt.translate.translator import Translation, Translator
from knnmt.units import doubts
from knnmt.units.flat import Flat, Span, flattened
from knnmt.units.protected import MASKS, Masked, balance, masked, repaired

FRAME = 8  # tokens that a model may put around a text
BYTES = 4  # of a character at most, and a token is a byte at least


@dataclass
class UnitPiece:
    """A run of words of a unit, and its translation (its own text if there is nothing to translate)."""

    flat: Flat
    span: Span
    target: str
    is_done: bool = False
    is_unfinished: bool = False
    log_probability: float = 0.0
    tokens: int = 0
    translation: Translation | None = None  # as it was decoded, masks and all
    flags: list[str] = field(default_factory=list)

    @cached_property
    def source(self) -> str:
        return self.flat.text(*self.span)

    @cached_property
    def pair(self) -> Pair:
        """Source and translation without tags, once there is a translation."""
        return Pair(self.flat.part(*self.span), flattened((self.target,)))

    def take(self, translation: Translation, text: str) -> None:
        """Accept a translation, with placeholders in place of masks."""
        self.translation = translation
        self.target = re.sub(" {2,}", " ", text)
        self.is_done, self.is_unfinished = True, translation.unfinished
        self.log_probability, self.tokens = translation.log_probability, len(translation.tokens)
        if translation.cut:
            self.flags.append(doubts.TOO_LONG)
        if translation.unfinished:
            self.flags.append(doubts.NOT_FINISHED)


def translate_pieces(translator: Translator, pieces: Sequence[UnitPiece]) -> None:
    """Translate unfinished pieces: plainly first, then again with masks if a placeholder was lost."""
    waiting = [piece for piece in pieces if not piece.is_done]
    for piece, translation in zip(waiting, translator.translations([one.source for one in waiting]), strict=True):
        piece.take(translation, repaired(piece.source, translation.text))
    wrong = [piece for piece in waiting if not balance(piece.source, piece.target).holds]
    for mask in MASKS:
        if wrong:
            wrong = [*still_wrong(translator, [(piece, masked(piece.source, mask)) for piece in wrong])]


def still_wrong(translator: Translator, tried: Sequence[tuple[UnitPiece, Masked]]) -> list[UnitPiece]:
    """Decode masked pieces, accept the complete ones, and return the others."""
    wrong = []
    given = [text for _, text in tried if text.masks]
    done = dict(zip([text.text for text in given], translator.translations([text.text for text in given]), strict=True))
    for piece, text in tried:
        translation = done.get(text.text)
        revealed = text.revealed(translation.text) if translation else None
        if translation and revealed is not None and balance(piece.source, revealed).holds:
            piece.take(translation, revealed)
        else:
            wrong.append(piece)
    return wrong


def fits_model(model: TranslationModel) -> Callable[[str], bool]:
    """A function that says whether a text is short enough for a model."""

    def fits(text: str) -> bool:
        if len(model.source_prefix) + BYTES * len(text) + FRAME <= model.positions:
            return True
        return len(model.encode_sources([text])[0]) <= model.positions

    return fits
