"""The mathematics of kNN-MT as pure functions.

p(y) = weight · p_knn(y) + (1 − weight) · p_model(y),   p_knn(y) ∝ Σ exp(−distance / temperature) over neighbours of y.

Nothing here is larger than the vocabulary or than k × k: neighbours' probability is added at their tokens only.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine.projection import Ranking
from knnmt.mixing.reasons import Why


@dataclass(frozen=True, slots=True)
class Mixture:
    """Model and neighbours together, in each of n rows."""

    tokens: torch.Tensor  # [n, k] the neighbours'
    weights: torch.Tensor  # [n, k] of each neighbour among the row's neighbours: a row sums to 1, or 0 without any
    weight: torch.Tensor  # [n, 1] of all neighbours together against the model
    temperature: torch.Tensor  # [n, 1]
    why: Why | None = None  # where the mixer can tell
    groups: torch.Tensor | None = None  # [n, k] of `groups_of` the tokens, where they are known

    def best(self, ranking: Ranking, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The best continuations, scores and tokens [n, most]; `logits` [n, k] are those of the neighbours' tokens."""
        return mix_best(ranking, logits, self.tokens, self.weights, self.weight, self.groups)

    def distribution(self, logits: torch.Tensor) -> torch.Tensor:
        """Logarithms of all probabilities [n, vocabulary], from the model's logits."""
        return mix(logits, self.tokens, self.weights, self.weight)

    def at(self, logarithms: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Logarithms of the probabilities of given tokens [n, m], from the model's for the same tokens."""
        return mix_at(logarithms, wanted, self.tokens, self.weights, self.weight)

    def mass_of(self, wanted: torch.Tensor) -> torch.Tensor:
        """The neighbours' own probability of given tokens [n, m]."""
        return token_masses(wanted[:, :, None] == self.tokens[:, None, :], self.weights)


Temperature = float | torch.Tensor  # one for all rows, or [n, 1]
Weight = float | torch.Tensor  # likewise


def neighbour_weights(
    distances: torch.Tensor, temperature: Temperature, trust: torch.Tensor | None = None
) -> torch.Tensor:
    """Weights [n, k] that sum to 1 a row, from squared distances [n, k]; a distance that is infinite or NaN: no weight.

    `trust` [n, k] is a factor on the mass of each neighbour. A row without any neighbour is all zeros.
    """
    distances = torch.where(distances.isnan(), torch.inf, distances)  # else one NaN would silence the whole row
    nearest = distances.amin(dim=-1, keepdim=True)
    scores = (nearest - distances) / temperature  # subtracted first: large distances keep their digits
    if trust is not None:
        scores = scores + trust.log()
    return torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)


def alike(tokens: torch.Tensor) -> torch.Tensor:
    """Which of a row's tokens [n, k] are the same, [n, k, k]."""
    return tokens[:, :, None] == tokens[:, None, :]


def token_masses(same: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """p_knn of each neighbour's token, [n, k]: the summed weight of all neighbours in its row with that token."""
    return torch.where(same, weights[:, None, :], 0.0).sum(dim=-1)


def shares(same: torch.Tensor, weights: torch.Tensor, weight: Weight) -> tuple[torch.Tensor, torch.Tensor]:
    """Logarithms of what the model keeps, [n, 1], and of what each neighbour's token gets, [n, k]."""
    return of_masses(token_masses(same, weights), weights, weight)


def of_masses(masses: torch.Tensor, weights: torch.Tensor, weight: Weight) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of masses [n, k] that are known."""
    found = weights.sum(dim=-1, keepdim=True) > 0.5  # a row's weights sum to 1, or to 0 where it has no neighbour
    share = torch.where(found, weight, 0.0)  # [n, 1]
    smallest = torch.finfo(torch.float32).tiny  # keeps the logarithm finite, so that beams can be compared
    added = share * masses
    return torch.log((1.0 - share).clamp_min(smallest)), torch.log(added.clamp_min(smallest))


def mix(logits: torch.Tensor, tokens: torch.Tensor, weights: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Logarithms of the mixed distribution, [n, vocabulary].

    `logits` [n, vocabulary] are the model's; `tokens` and `weights` [n, k] are the neighbours'. Where a row has no
    neighbour, the model stands alone.
    """
    kept, added = shares(alike(tokens), weights, weight)
    mixed = torch.log_softmax(logits.float(), dim=-1) + kept
    return mixed.scatter(-1, tokens, torch.logaddexp(mixed.gather(-1, tokens), added))


def mix_at(
    logarithms: torch.Tensor, wanted: torch.Tensor, tokens: torch.Tensor, weights: torch.Tensor, weight: Weight
) -> torch.Tensor:
    """`mix` at given tokens alone, [n, m]: `wanted` [n, m] and the model's logarithms of their probabilities."""
    same = wanted[:, :, None] == tokens[:, None, :]  # [n, m, k]
    kept, added = shares(same, weights, weight)
    return torch.where(same.any(dim=-1), torch.logaddexp(logarithms + kept, added), logarithms + kept)


def mix_best(
    ranking: Ranking,
    logits: torch.Tensor,
    tokens: torch.Tensor,
    weights: torch.Tensor,
    weight: Weight,
    groups: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best of `mix`, scores and tokens [n, most], without computing the rest.

    `ranking` are the model's own best; `logits` are those of the neighbours' tokens, all [n, k]; `groups` are those of
    `groups_of`, where they are known.

    A token that is nobody's neighbour keeps its rank among its like. So the best of the mixture are among the model's
    best and the neighbours' tokens.
    """
    groups = groups_of(tokens) if groups is None else groups
    first = groups == torch.arange(tokens.shape[1], device=tokens.device)
    kept, added = of_masses(torch.zeros_like(weights).scatter_add(1, groups, weights), weights, weight)
    discount = kept - ranking.total  # [n, 1]
    mixed = torch.logaddexp(logits + discount, added).masked_fill(~first, -torch.inf)  # [n, k], each token once
    among_neighbours = (ranking.tokens[:, :, None] == tokens[:, None, :]).any(dim=-1)  # [n, most]
    plain = (ranking.logits + discount).masked_fill(among_neighbours, -torch.inf)
    scores, at = torch.cat([mixed, plain], dim=-1).topk(ranking.tokens.shape[1], dim=-1)
    return scores, torch.cat([tokens, ranking.tokens], dim=-1).gather(-1, at)


def groups_of(tokens: torch.Tensor) -> torch.Tensor:
    """Of each of a row's tokens [n, k], the first place with the same token, [n, k]."""
    if tokens.device.type == "cpu":
        return torch.from_numpy(grouped_together(tokens.numpy()))
    return grouped(tokens)


def grouped(tokens: torch.Tensor) -> torch.Tensor:
    ordered, places = tokens.sort(dim=-1, stable=True)
    ranks = torch.arange(tokens.shape[1], device=tokens.device)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = torch.where(begins, ranks, 0).cummax(dim=-1).values
    return torch.empty_like(places).scatter_(1, places, places.gather(1, starts))


def grouped_together(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same in a third of the time: token and place are one number, which numpy sorts by vectors."""
    rows, k = tokens.shape
    bits = k.bit_length()
    together = tokens << bits | np.arange(k)
    together.sort(axis=1)
    ordered, places = together >> bits, together & (1 << bits) - 1
    begins = np.ones(tokens.shape, np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    runs = np.cumsum(begins.ravel()) - 1  # the number of each place's run of one token, through all rows
    groups = np.empty(tokens.size, np.int64)
    groups[(places + np.arange(rows)[:, None] * k).ravel()] = places[begins][runs]
    return groups.reshape(tokens.shape)
