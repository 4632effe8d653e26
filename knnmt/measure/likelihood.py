"""Likelihood of the references under every setting, from one forward pass and one search per token.

The k nearest are the first k of any longer list of neighbours. So one search for the largest k, together with the
model's probability of the reference token, gives the likelihood under every k, temperature and weight.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.errors import CorpusError
from knnmt.mixing.fixed import mixed_likelihoods, neighbour_shares
from knnmt.mixing.fixed_values import PAPER_K
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel
from knnmt.progress import Advance
from knnmt.retrieval.retriever import Retriever
from knnmt.translate.observing import ForcedPasses
from knnmt.translate.settings import TranslateSettings

KS = (1, 2, 4, 8, 12, 16, 24, 32, 48, PAPER_K)
TEMPERATURES = tuple(map(float, (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)))
WEIGHTS = tuple(step / 20 for step in range(20))
BATCH_TOKENS = 4096  # padded tokens of a forward pass, fewer where the vocabulary is large
LOGITS = 1 << 25  # of a forward pass
POSITIONS = 1024  # scored at a time, so that memory does not grow with the text

Floats = NDArray[np.float64]
Place = tuple[int, int, int]  # of k, temperature and weight on their axes


@dataclass(frozen=True, slots=True)
class Grid:
    """The settings that are compared."""

    ks: tuple[int, ...] = KS
    temperatures: tuple[float, ...] = TEMPERATURES
    weights: tuple[float, ...] = WEIGHTS

    @classmethod
    def within(cls, entries: int) -> "Grid":
        """The grid up to the largest k that the store can give."""
        most = min(PAPER_K, entries)
        return cls(ks=(*(k for k in KS if k < most), most))

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.ks), len(self.temperatures), len(self.weights)

    def settings_at(self, place: Place, beam: int) -> TranslateSettings:
        k, temperature, weight = place
        return TranslateSettings(
            k=self.ks[k], temperature=self.temperatures[temperature], weight=self.weights[weight], beam=beam
        )


@dataclass(frozen=True, slots=True)
class Surface:
    """The mean log-likelihood of a reference token at every point of a grid."""

    grid: Grid
    likelihoods: Floats  # [ks, temperatures, weights]
    tokens: int
    left_out: int  # pairs with an empty side, or longer than the model can take

    def best(self, *, k: int | None = None, temperature: int | None = None, weight: int | None = None) -> Place:
        """The likeliest point, of all or of those at given places of the axes."""
        here = tuple(slice(None) if at is None else slice(at, at + 1) for at in (k, temperature, weight))
        allowed = np.full_like(self.likelihoods, -np.inf)
        allowed[here] = self.likelihoods[here]
        place = np.unravel_index(np.argmax(allowed), allowed.shape)
        return int(place[0]), int(place[1]), int(place[2])

    def at(self, settings: TranslateSettings) -> float | None:
        """The likelihood of a setting, where it is a point of the grid."""
        grid = self.grid
        try:
            mixer = settings.fixed
            k, temperature = grid.ks.index(mixer.k), grid.temperatures.index(mixer.temperature)
            return float(self.likelihoods[k, temperature, grid.weights.index(mixer.weight)])
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations for one batch of reference tokens: n positions."""

    model: NDArray[np.float32]  # [n] log-probability of the reference token under the model alone
    distances: NDArray[np.float32]  # [n, k] of the neighbours, nearest first; infinite where there is none
    hits: NDArray[np.bool_]  # [n, k] whether the neighbour's token is the reference's
    trust: NDArray[np.float32] | None = None  # [n, k] the weight of the neighbour's store; None: all alike


@dataclass(frozen=True, slots=True)
class EncodedPair:
    source: list[int]
    target: list[int]  # the end token included


def survey_likelihood(
    model: TranslationModel,
    retriever: Retriever,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    advance: Advance,
) -> Surface:
    """Score every point of the grid on the references."""
    grid = Grid.within(retriever.entries)
    pairs = encoded_pairs(model, sources, references)
    passes, sums, tokens = ForcedPasses(model), np.zeros(grid.shape), 0
    for batch in batches_of(model, pairs):
        observed = observe(passes, retriever, batch, grid.ks[-1])
        sums += summed_likelihoods(observed, grid)
        tokens += len(observed.model)
        advance(len(batch), len(observed.model))
    return Surface(grid, sums / tokens, tokens, len(sources) - len(pairs))


def encoded_pairs(model: TranslationModel, sources: Sequence[str], references: Sequence[str]) -> list[EncodedPair]:
    """The pairs that can be scored: text on both sides, and not longer than the model can take."""
    texts = [pair for pair in zip(sources, references, strict=True) if all(side.strip() for side in pair)]
    if not texts:
        raise CorpusError("--source and --target: no line has text on both sides")
    encoded = map(
        EncodedPair,
        model.encode_sources([pair[0] for pair in texts]),
        model.encode_targets([pair[1] for pair in texts]),
    )
    pairs = [pair for pair in encoded if length_of(pair, model) <= model.positions]
    if not pairs:
        raise CorpusError(f"--source and --target: every pair is longer than the model's {model.positions} tokens")
    return pairs


def length_of(pair: EncodedPair, model: TranslationModel) -> int:
    return max(len(pair.source), len(model.decoder_prefix) - 1 + len(pair.target))


def batches_of(model: TranslationModel, pairs: Sequence[EncodedPair]) -> Iterator[list[EncodedPair]]:
    budget = min(BATCH_TOKENS, LOGITS // model.network.config.vocab_size)
    for batch in batches_by_tokens([length_of(pair, model) for pair in pairs], budget):
        yield [pairs[position] for position in batch]


@torch.inference_mode()
def observe(passes: ForcedPasses, retriever: Retriever, pairs: Sequence[EncodedPair], k: int) -> Observed:
    """One forward pass and one search for all reference tokens of a batch."""
    keys, following = passes.over([pair.source for pair in pairs], [pair.target for pair in pairs])
    tokens = torch.tensor([token for pair in pairs for token in pair.target])
    alone = (following.at(tokens[:, None]) - following.rank(1).total)[:, 0]
    found = retriever.search(keys, k)
    return Observed(alone.numpy(), found.distances, found.tokens == tokens.numpy()[:, None], found.trust)


def summed_likelihoods(observed: Observed, grid: Grid) -> Floats:
    """The summed log-likelihood of the tokens at every point, [ks, temperatures, weights]."""
    sums = np.zeros(grid.shape)
    for first in range(0, len(observed.model), POSITIONS):
        block = slice(first, first + POSITIONS)
        model, distances = np.exp(observed.model[block], dtype=np.float64), observed.distances[block]
        for number, temperature in enumerate(grid.temperatures):
            trust = None if observed.trust is None else observed.trust[block]
            shares = neighbour_shares(distances, observed.hits[block], temperature, grid.ks, trust)
            sums[:, number] += mixed_likelihoods(model, shares, np.isfinite(distances[:, 0]), grid.weights)
    return sums
