"""Translates units of a document: known ones from the memory, others by the model; tags are put back.

`UnitTranslator.translate` gives one result for each unit, in order. Every tag and every placeholder of a source is in
its result exactly once. The result's flags say where something was guessed or repaired.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from knnmt.documents.content import Content, DocumentUnit, Match, Tag, UnitResult, plain_text
from knnmt.engine.runtime import keeping_encodings
from knnmt.retrieval.lookup import LEAST, Lookup
from knnmt.store.datastore import StoredSegment
from knnmt.text.languages import base_language
from knnmt.text.writing_systems import is_spaceless
from knnmt.translate.aligning import Aligner, Pair
from knnmt.translate.document_settings import UnitOptions as UnitOptions
from knnmt.translate.pieces import UnitPiece, fits_model, translate_pieces
from knnmt.translate.translator import Translator
from knnmt.units import doubts
from knnmt.units.accelerators import Accelerator, with_accelerator, without_accelerator
from knnmt.units.flat import Flat, Span, flattened, joined_content, white
from knnmt.units.lines import hard_breaks, is_wrapped, line_ends, wrapped_again, wrapping_of
from knnmt.units.links import Matrix, is_thing
from knnmt.units.mending import Mended, mended
from knnmt.units.outcomes import UnitOutcome
from knnmt.units.placing import SURE, placed
from knnmt.units.protected import balance
from knnmt.units.sentences import LETTERS, best_split, clauses, sentences

SPLIT_AGAIN = 2  # times at most that a piece whose translation did not end is split
MEASURED_ON = 400  # sentence pairs of a memory at most that are looked through for known links


@dataclass(slots=True)
class UnitWork:
    """A unit that is being translated."""

    unit: DocumentUnit
    flat: Flat
    accelerator: Accelerator | None = None  # that was taken out of it
    known: StoredSegment | None = None
    pieces: list[UnitPiece] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    near: list[Match] = field(default_factory=list)

    @classmethod
    def of(cls, unit: DocumentUnit) -> "UnitWork":
        source, accelerator = without_accelerator(unit.source, unit.accelerators)
        return cls(unit, flattened(source), accelerator)

    @property
    def needs_links(self) -> bool:
        """Whether tags or lost placeholders must be placed among the words."""
        inner = self.flat.gaps[1:-1]
        tagged = any(isinstance(piece, Tag) for gap in inner for piece in gap)
        return tagged or any(balance(piece.source, piece.target).lost for piece in self.pieces)


class UnitTranslator:
    """Translates units with a translator and the memory of its stores."""

    def __init__(self, translator: Translator, options: UnitOptions | None = None) -> None:
        self.translator = translator
        self.options = options or UnitOptions()
        self.lookup = Lookup(translator.stores, where=self.options.where or translator.settings.where)
        self.aligner = Aligner(translator.translation_model)
        self.fits = fits_model(translator.translation_model)

    def translate(self, units: Sequence[DocumentUnit]) -> list[UnitResult]:
        """One result for each unit, in order."""
        return [outcome.result for outcome in self.outcomes(units)]

    def outcomes(self, units: Sequence[DocumentUnit]) -> list[UnitOutcome]:
        """The same with what a report needs."""
        works = [UnitWork.of(unit) for unit in units]
        for work in works:
            work.known = self.known(work)
            work.pieces = [*self.pieces_of(work)]
        with keeping_encodings(self.translator.translation_model.network):
            translate_pieces(self.translator, [piece for work in works for piece in work.pieces])
            for _ in range(SPLIT_AGAIN):
                self.split_unfinished(works)
            links = self.links([work for work in works if work.needs_links])
        return [self.outcome(work, links.get(id(work))) for work in works]

    def known(self, work: UnitWork) -> StoredSegment | None:
        """The pair of the memory with the same source; with its accelerator, if there is one."""
        if self.options.exact_matches == "ignore" or not work.flat.words:
            return None
        texts = [flattened(work.unit.source).text()] if work.accelerator else []
        found = (self.lookup.exact(text, context=work.unit.context) for text in [*texts, work.flat.text()])
        return next(filter(None, found), None)

    def is_taken(self, work: UnitWork) -> bool:
        """Whether the translation is the memory's own."""
        return work.known is not None and self.options.exact_matches == "use"

    def pieces_of(self, work: UnitWork) -> Iterator[UnitPiece]:
        """The pieces to translate; none for a unit that is known or has no letters."""
        whole = (0, len(work.flat.words))
        if work.known is not None and self.is_taken(work):
            yield UnitPiece(work.flat, whole, work.known.target, is_done=True)
            return
        language = base_language(self.translator.translation_model.source_lang)
        for first, last in sentences(work.flat, language, has_lines=work.unit.has_lines):
            spans = clauses(work.flat, (first, last), self.fits)
            for span in spans:
                yield self.piece_of(work.flat, span, [doubts.TOO_LONG] if len(spans) > 1 else [])

    def piece_of(self, flat: Flat, span: Span, flags: list[str]) -> UnitPiece:
        """A run of words to translate, or to keep if it has no letters or is one endless word."""
        text = flat.text(*span)
        if not self.fits(text):
            return UnitPiece(flat, span, text, is_done=True, flags=[doubts.TOO_LONG])
        return UnitPiece(flat, span, text, is_done=not needs_translation(flat.words[slice(*span)]), flags=flags)

    def split_unfinished(self, works: Sequence[UnitWork]) -> None:
        """Split the source of an unfinished translation at a clause and translate both parts."""
        for work in works:
            for at in reversed(range(len(work.pieces))):
                piece = work.pieces[at]
                if piece.is_unfinished and piece.span[1] - piece.span[0] > 1:
                    middle = best_split(work.flat, piece.span)
                    halves = [(piece.span[0], middle), (middle, piece.span[1])]
                    work.pieces[at : at + 1] = [self.piece_of(work.flat, half, [doubts.TOO_LONG]) for half in halves]
        translate_pieces(self.translator, [piece for work in works for piece in work.pieces])

    # Links

    def links(self, works: Sequence[UnitWork]) -> dict[int, list[Matrix]]:
        """For each piece of some units, links between its words; by the identity of the unit's work."""
        pairs = [piece.pair for work in works for piece in work.pieces]
        wanted = [pair for pair in pairs if pair.source.words and pair.target.words]
        if wanted and self.aligner.heads is None and self.translator.stores:
            self.aligner.measure(self.pairs_of_memory())
        found = {id(pair): matrix for pair, matrix in zip(wanted, self.aligner.links(wanted), strict=True)}
        return {id(work): [found.get(id(piece.pair), no_links(piece.pair)) for piece in work.pieces] for work in works}

    def pairs_of_memory(self) -> list[Pair]:
        """Sentence pairs from all over the first memory, by which heads are chosen."""
        store = self.translator.stores[0]
        total = store.manifest.segments
        numbers = np.unique(np.linspace(0, total - 1, min(total, MEASURED_ON)).astype(np.int64))
        pairs = [Pair(flattened((p.source,)), flattened((p.target,))) for p in store.segments_at(numbers)]
        return [pair for pair in pairs if len(pair.source.words) < 60]

    # Results

    def outcome(self, work: UnitWork, links: list[Matrix] | None) -> UnitOutcome:
        pieces = [self.mended(work, piece, links[at] if links else None) for at, piece in enumerate(work.pieces)]
        target = self.target_of(work, [piece.target for piece in pieces])
        content = self.content_of(work, target, [piece.links for piece in pieces])
        if work.accelerator and target.words:
            content = with_accelerator(content, work.accelerator)
        tokens = sum(piece.tokens for piece in work.pieces)
        total = sum(piece.log_probability for piece in work.pieces)
        is_known = self.is_taken(work)
        if not is_known:
            work.flags += [flag for piece in work.pieces for flag in piece.flags]
        work.flags += doubts.doubts_of(work.flat.text(), target.text())
        if work.unit.has_lines and len(hard_breaks(work.flat)) > line_ends(target):
            work.flags.append(doubts.LINES_DIFFER)
        if any(limit.size(plain_text(content)) > limit.most for limit in work.unit.limits):
            work.flags.append(doubts.OVER_LIMIT)
        result = UnitResult(
            content,
            "exact" if is_known else "machine",
            None if is_known or not tokens else round(math.exp(total / tokens), 4),
            self.matches(work),
            tuple(dict.fromkeys(work.flags)),
        )
        nearest = max((match.percent for match in work.near), default=None)
        sentences = [(piece.source, done.target.text()) for piece, done in zip(work.pieces, pieces, strict=True)]
        return UnitOutcome(
            work.unit,
            result,
            total,
            tokens,
            () if is_known else tuple(sentences),
            self.share(work),
            100.0 if is_known else nearest,
        )

    def share(self, work: UnitWork) -> float | None:
        """The memory's share of a unit's tokens."""
        if not self.options.details or not self.translator.stores:
            return None
        pieces = [piece for piece in work.pieces if piece.translation is not None]
        if not pieces:
            return 1.0 if self.is_taken(work) else None
        total = sum(self.share_of_piece(piece) for piece in pieces)
        return round(total / max(1, sum(piece.tokens for piece in pieces)), 4)

    def share_of_piece(self, piece: UnitPiece) -> float:
        translation = piece.translation
        assert translation is not None
        return sum(self.translator.memory_shares(translation))

    def mended(self, work: UnitWork, piece: UnitPiece, links: Matrix | None) -> Mended:
        """A piece's translation with every placeholder as often as the source has it.

        A person's own "three" for 3 and "Copyright" for © stay.
        """
        if (
            work.known is not None
            and self.options.exact_matches == "use"
            and not any(one.is_placeholder for one in balance(piece.source, piece.target).lost)
        ):
            return Mended(piece.pair.target, links)
        mend = mended(piece.pair.source, piece.pair.target, links)
        work.flags += mend.flags
        return mend

    def target_of(self, work: UnitWork, targets: Sequence[Flat]) -> Flat:
        """The translations of a unit's pieces as one, with the source's white space around and between them."""
        words: list[str] = []
        gaps: list[tuple[str | Tag, ...]] = [(white(work.flat.gaps[0]),)]
        how = wrapping_of(work.flat) if work.unit.has_lines else None
        runs: list[Span] = []
        meeting: list[int] = []  # gaps between pieces that have no space
        for piece, target in zip(work.pieces, targets, strict=True):
            if words and target.words:
                gaps[-1] = (between(work.flat, piece.span[0], words[-1], target.words[0]),)
                meeting += [] if white(gaps[-1]) else [len(words)]
            if is_wrapped(work.flat, piece.span):
                runs.append((len(words), len(words) + len(target.words)))
            words += target.words
            gaps += target.gaps[1:]
        gaps[-1] = (white(work.flat.gaps[-1]),) if words else ("",)
        whole = Flat(tuple(words), tuple(gaps))
        if meeting and not balance(work.flat.text(), whole.text()).holds:  # two pieces became another address
            whole = Flat(whole.words, tuple((" ",) if at in meeting else gap for at, gap in enumerate(gaps)))
        return wrapped_again(whole, runs, how) if how else whole

    def content_of(self, work: UnitWork, target: Flat, links: Sequence[Matrix | None]) -> Content:
        """The translation with the tags of the source."""
        if not target.words:
            return work.unit.source if not work.flat.words else joined_content([*work.flat.gaps[0], *work.flat.tags])
        if not work.flat.tags:
            return joined_content([*interleaved(target)])
        matrix = links_of_unit(work, links, len(target.words))
        done = placed(work.flat, target, matrix)
        if done.sure < SURE:
            work.flags.append(doubts.TAG_GUESSED)
        return done.content

    def matches(self, work: UnitWork) -> tuple[Match, ...]:
        """Similar pairs in the memory."""
        most = max(self.options.matches, int(self.options.details and not self.is_taken(work)))
        if most and work.flat.words:
            hits = self.lookup.near(work.flat.text(), least=LEAST, most=most)
            work.near = [Match(hit.segment.source, hit.segment.target, hit.percent, hit.segment.corpus) for hit in hits]
        found = work.near[: self.options.matches]
        if work.known is not None and self.options.exact_matches == "suggest":
            found = [Match(work.known.source, work.known.target, 100.0, work.known.corpus), *found]
        return tuple(dict.fromkeys(found))[: max(1, self.options.matches)]


def needs_translation(words: Sequence[str]) -> bool:
    """Whether the words need translation; placeholders and numbers alone do not."""
    return any(LETTERS.search(word) and not is_thing(word) for word in words)


def no_links(pair: Pair) -> Matrix:
    return np.full((len(pair.target.words), len(pair.source.words)), 1 / max(1, len(pair.source.words)), np.float32)


def between(flat: Flat, at: int, before: str, after: str) -> str:
    """The white space between two translated sentences: the source's own, as far as the target's script has spaces."""
    own = white(flat.gaps[at])
    spaceless = is_spaceless(before[-1]) or is_spaceless(after[0])
    if own == " " and spaceless:
        return ""
    return own or ("" if spaceless or (not is_spaceless(flat.words[at - 1][-1]) and not flat.is_glued(at)) else " ")


def interleaved(flat: Flat) -> Iterator[str | Tag]:
    for at, word in enumerate(flat.words):
        yield from flat.gaps[at]
        yield word
    yield from flat.gaps[-1]


def links_of_unit(work: UnitWork, links: Sequence[Matrix | None], rows: int) -> Matrix:
    """The links of a unit: those of its pieces, each in its own rows and columns."""
    matrix = np.zeros((rows, len(work.flat.words)), np.float32)
    row = 0
    for piece, part in zip(work.pieces, links, strict=True):
        if part is not None:
            matrix[row : row + len(part), piece.span[0] : piece.span[1]] = part
            row += len(part)
    return matrix
