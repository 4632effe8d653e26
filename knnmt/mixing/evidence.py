"""The evidence that a head uses for each row: its neighbours, the model's prediction, and the sentence's coverage."""

from dataclasses import dataclass, fields

import torch

from knnmt.engine.projection import Ranking
from knnmt.mixing.coverage import ORDERS
from knnmt.mixing.mixture import groups_of
from knnmt.mixing.neighbours import Neighbours

NEIGHBOURS = 64
RANKED = 8  # of the model's best tokens
SIGNALS = len(ORDERS)
FARTHEST = 20.0  # in variances of the keys; what was not found is as far as that
LEAST = -20.0  # logarithm of a probability


@dataclass(frozen=True, slots=True)
class Evidence:
    """n rows. Distances are divided by the variance of the memory's keys, so that every model's are alike."""

    distances: torch.Tensor  # [n, k]; infinite where there is no neighbour
    tokens: torch.Tensor  # [n, k]
    logarithms: torch.Tensor  # [n, k] of the model's probability of each neighbour's token
    best: torch.Tensor  # [n, RANKED] of the model's probabilities of its best tokens
    best_tokens: torch.Tensor  # [n, RANKED]
    signals: torch.Tensor  # [n, SIGNALS] shares of the sentence's n-grams that the memory has
    trust: torch.Tensor  # [n, k] logarithm of the factor on each neighbour
    groups: torch.Tensor  # [n, k] the place of the nearest neighbour with the same token

    @classmethod
    def of(
        cls, found: Neighbours, ranking: Ranking, logits: torch.Tensor, signals: torch.Tensor, variance: float
    ) -> "Evidence":
        """From what a search found and the model said; `logits` [n, k] are those of the neighbours' tokens."""
        distances = torch.from_numpy(found.distances).to(logits.device) / variance
        trust = torch.zeros_like(distances) if found.trust is None else torch.from_numpy(found.trust).log()
        tokens = torch.from_numpy(found.tokens).to(logits.device)
        return cls(
            distances=torch.where(distances.isnan(), torch.inf, distances),
            tokens=tokens,
            groups=groups_of(tokens),
            logarithms=(logits - ranking.total).clamp(LEAST, 0.0),
            best=(ranking.logits[:, :RANKED] - ranking.total).clamp(LEAST, 0.0),
            best_tokens=ranking.tokens[:, :RANKED],
            signals=signals,
            trust=trust.to(logits.device),
        )

    def rows(self, rows: torch.Tensor) -> "Evidence":
        """Some of the rows."""
        return Evidence(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})

    @property
    def near(self) -> torch.Tensor:
        """Distances that are all finite."""
        return self.distances.clamp(1e-4, FARTHEST)

    def scores(self, temperature: torch.Tensor | float) -> torch.Tensor:
        """Logarithms of the neighbours' weights, up to a constant, [n, k]; −∞ where there is none."""
        scores = -self.distances.clamp_max(FARTHEST) / temperature + self.trust
        return scores.masked_fill(~self.distances.isfinite(), -torch.inf)  # no infinity reaches a gradient

    def first_of_token(self) -> torch.Tensor:
        """Whether a neighbour is the nearest with its token, [n, k]."""
        return self.groups == torch.arange(self.groups.shape[1], device=self.groups.device)

    def masses(self, weights: torch.Tensor) -> torch.Tensor:
        """The summed weight of each token, [n, k], at the place of its nearest neighbour; 0 at all others."""
        return torch.zeros_like(weights).scatter_add(1, self.groups, weights)


def joined_evidence(parts: list[Evidence]) -> Evidence:
    return Evidence(**{one.name: torch.cat([getattr(part, one.name) for part in parts]) for one in fields(Evidence)})
