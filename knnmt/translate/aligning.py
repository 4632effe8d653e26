"""Links between the words of a source and of its translation, from the network's cross-attention.

Models differ in which heads align, and in whether they do so at the step that predicts a token or at the next one. Both
are measured on text: a word that occurs once on both sides, such as a number or a name, is a known link.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt.engine.attention import AligningHeads, Head, Weights, cross_attention, mean_attention
from knnmt.engine.runtime import runtime_of
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel
from knnmt.models.words import characters_written
from knnmt.units.flat import Flat
from knnmt.units.links import Matrix, anchors, balanced, near_diagonal, with_certain, word_links

log = logging.getLogger(__name__)

BATCH_TOKENS = 1024  # padded tokens a pass, of long texts: attention of all heads is kept
SHORT = 64  # tokens, below which a text's attention is so small that up to four times as many fit
HEADS = 4  # that are averaged
ENOUGH = 24  # known links: a choice that rests on so many is kept
LEAST = 6  # known links, below which a measure says nothing
JUDGED_BY = 96  # pairs at most
# How much a word's place in its sentence says beside attention, if heads find no known link, and at most. Measured with
# `python -m bench placement`: two models, 200 units each.
DOUBT, MOST_DOUBT = 20.0, 6.0

Side = tuple[list[int], list[tuple[int, int]]]  # where tokens end in a text, and where its words stand


class Pair(NamedTuple):
    """A text and its translation, both without tags."""

    source: Flat
    target: Flat


class Aligner:
    """Links words by the attention of one model."""

    def __init__(self, model: TranslationModel) -> None:
        self.model = model

    @property
    def heads(self) -> AligningHeads | None:
        """The heads that were chosen for this network; None before a measurement."""
        return runtime_of(self.model.network).heads

    @heads.setter
    def heads(self, heads: AligningHeads) -> None:
        runtime_of(self.model.network).heads = heads

    def measure(self, pairs: Sequence[Pair]) -> AligningHeads:
        """Choose heads by the number of known links that each of them finds in some pairs."""
        hits: NDArray[np.float64] | None = None
        total = 0
        judged = [pair for pair in pairs if anchors(pair.source.words, pair.target.words)][:JUDGED_BY]
        for pair, weights, sides in self.attended(judged or pairs[:1]):
            known = anchors(pair.source.words, pair.target.words)
            hits = hits_of(weights, sides, known) + (0 if hits is None else hits)
            total += len(known)
        chosen = chosen_heads(np.zeros((1, 1, 1)) if hits is None else hits, total)
        if total >= ENOUGH:
            self.heads = chosen
        log.debug("alignment: heads %s find %.0f %% of %d known links", chosen.heads, 100 * chosen.found, total)
        return chosen

    def links(self, pairs: Sequence[Pair]) -> list[Matrix]:
        """For each pair, how strongly each target word is linked to each source word, [target words, source words]."""
        if not pairs:
            return []
        heads = self.heads or self.measure(pairs)
        found: dict[int, Matrix] = {}
        rows = {id(pair): row for row, pair in enumerate(pairs)}
        for pair, mean, (source, target) in self.attended(pairs, heads.heads):
            links = near_diagonal(balanced(word_links(mean, source, target)), doubt_about(heads))
            found[rows[id(pair)]] = with_certain(links, pair.source.words, pair.target.words)
        return [found[row] for row in range(len(pairs))]

    def attended(
        self, pairs: Sequence[Pair], heads: Sequence[Head] | None = None
    ) -> Iterator[tuple[Pair, Weights, tuple[Side, Side]]]:
        """Each pair with all attention, or the mean of some heads, and with its tokens and words, batch by batch."""
        texts = [(pair.source.text(), pair.target.text()) for pair in pairs]
        sources = self.source_tokens([source for source, _ in texts])
        targets = self.model.encode_targets([target for _, target in texts])
        targets = [tokens[: self.model.positions] for tokens in targets]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for batch in batches_by_tokens([weight_of(length) for length in lengths], BATCH_TOKENS):
            tokens = [sources[row] for row in batch], [targets[row] for row in batch]
            given = (
                cross_attention(self.model, *tokens) if heads is None else mean_attention(self.model, *tokens, heads)
            )
            for row, weights in zip(batch, given, strict=True):
                pair, (source, target), prefix = pairs[row], texts[row], self.model.source_prefix
                sides = (
                    self.side(pair.source, source, sources[row], prefix),
                    self.side(pair.target, target, targets[row]),
                )
                yield pair, weights, sides

    def source_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Source tokens within the model's limit; those of texts that were just translated are known."""
        encodings = runtime_of(self.model.network).encodings
        known = {} if encodings is None else encodings.tokens
        new = [text for text in dict.fromkeys(texts) if text not in known]
        made = dict(zip(new, self.model.fitting_sources(new)[0], strict=True))
        return [made[text] if text in made else known[text] for text in texts]

    def side(self, flat: Flat, text: str, tokens: Sequence[int], prefix: str = "") -> Side:
        """The ends of a text's tokens and the spans of its words."""
        ends = characters_written(self.model, tokens, prefix + text)
        return [max(0, end - len(prefix)) for end in ends], flat.spans(0, len(flat.words))


def weight_of(length: int) -> int:
    """How much a text of some tokens fills a batch."""
    return math.ceil(length * max(0.25, min(1, length / SHORT)))


def doubt_about(heads: AligningHeads) -> float:
    """How much the position of words counts: the more, the fewer known links the heads find."""
    return min(MOST_DOUBT, DOUBT * (1 - heads.found))


def hits_of(weights: Weights, sides: tuple[Side, Side], known: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """How many known links each head finds, [shifts, layers, heads]."""
    hits = np.zeros(weights.shape[:3])
    for head in np.ndindex(*weights.shape[:3]):
        best = word_links(weights[head], *sides).argmax(axis=1)
        hits[head] = sum(best[target] == source for source, target in known)
    return hits


def chosen_heads(hits: NDArray[np.float64], total: int) -> AligningHeads:
    """The best few heads; if too little is known, the heads of all layers at the step that predicts a token."""
    if total < LEAST:
        log.debug("alignment: only %d known links; all heads are averaged", total)
        _, layers, heads = hits.shape
        everywhere = tuple((0, layer, head) for layer in range(layers) for head in range(heads))
        return AligningHeads(everywhere, 0.0, total)
    order = np.argsort(-hits.ravel(), kind="stable")[:HEADS]
    best = tuple((int(a), int(b), int(c)) for a, b, c in zip(*np.unravel_index(order, hits.shape), strict=True))
    return AligningHeads(best, float(hits.ravel()[order[0]] / total), total)
