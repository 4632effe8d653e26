"""The order of the training: which pairs form which batch, as a pure function of the seed and the round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def sample_round(sizes: Sequence[int], weights: Sequence[float], generator: np.random.Generator) -> Indices:
    """Draw one round: of a corpus with weight 2.5, every pair twice and a random half a third time."""
    drawn, first = [], 0
    for size, weight in zip(sizes, weights, strict=True):
        whole, rest = divmod(weight, 1)
        corpus = np.arange(first, first + size)
        drawn += [corpus] * int(whole) + [generator.permutation(corpus)[: round(rest * size)]]
        first += size
    return generator.permutation(np.concatenate(drawn))


def cut_batches(source: Indices, target: Indices, *, tokens: int) -> list[slice]:
    """Cut pairs, already sorted by length, where their padded size would exceed the budget of tokens."""
    cuts, start, widest = [], 0, (0, 0)
    for position in range(len(source)):
        grown = (max(widest[0], int(source[position])), max(widest[1], int(target[position])))
        if position > start and sum(grown) * (position + 1 - start) > tokens:
            cuts.append(slice(start, position))
            start, grown = position, (int(source[position]), int(target[position]))
        widest = grown
    return [*cuts, slice(start, len(source))] if len(source) else []


def bucket(pairs: Indices, source: Indices, target: Indices, *, tokens: int) -> list[Indices]:
    """Group pairs of like length; `source` and `target` are the lengths of all pairs of the corpus.

    The sort is stable and the pairs come shuffled, so that pairs of one length meet others each round.
    """
    ordered = pairs[np.lexsort((source[pairs], target[pairs]))]
    return [ordered[cut] for cut in cut_batches(source[ordered], target[ordered], tokens=tokens)]


def plan_round(
    *,
    sizes: Sequence[int],
    weights: Sequence[float],
    source: Indices,
    target: Indices,
    tokens: int,
    seed: int,
    index: int,
) -> list[Indices]:
    """All batches of round `index`, shuffled."""
    generator = np.random.default_rng((seed, index))
    batches = bucket(sample_round(sizes, weights, generator), source, target, tokens=tokens)
    return [batches[position] for position in generator.permutation(len(batches))]
