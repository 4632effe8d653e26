"""The paper's mixing: the same k, temperature and weight at every step (Khandelwal et al., ICLR 2021)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine.projection import Ranking
from knnmt.mixing.fixed_values import ALWAYS, FixedValues
from knnmt.mixing.mixer import Needs
from knnmt.mixing.mixture import Mixture, neighbour_weights
from knnmt.mixing.neighbours import Neighbours

Floats = NDArray[np.float64]


class FixedMixer(FixedValues):
    """One weight for all neighbours together, one temperature for their softmax."""

    @property
    def needs(self) -> Needs:
        return Needs(self.k)

    @property
    def signature(self) -> str:
        return f"k:{self.k}|T:{self.temperature:g}|weight:{self.weight:g}"

    def signals(self, sources: Sequence[Sequence[int]]) -> torch.Tensor:
        """None: every sentence is treated alike."""
        return torch.empty(len(sources), 0)

    def asks(self, ranking: Ranking, signals: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - the seam's shape
        if self.weight == 0 or self.certain == ALWAYS:
            return torch.full((len(ranking.logits),), self.weight > 0)
        return ranking.certainty() <= self.certain

    def mixture(
        self,
        found: Neighbours,
        ranking: Ranking,
        logits: torch.Tensor,
        signals: torch.Tensor,  # noqa: ARG002 - the seam's shape
    ) -> Mixture:
        device, rows = logits.device, len(ranking.logits)
        trust = None if found.trust is None else torch.from_numpy(found.trust)
        weights = neighbour_weights(torch.from_numpy(found.distances), self.temperature, trust)
        everywhere = torch.ones(rows, 1, device=device)
        return Mixture(
            torch.from_numpy(found.tokens).to(device),
            weights.to(device),
            everywhere * self.weight,
            everywhere * self.temperature,
        )


def neighbour_shares(
    distances: NDArray[np.float32],
    hits: NDArray[np.bool_],
    temperature: float,
    ks: Sequence[int],
    trust: NDArray[np.float32] | None = None,
) -> Floats:
    """p_knn of one token in each row for the first k neighbours, [n, ks]; zero where there is no neighbour.

    `hits` [n, k] are the neighbours with that token. The first k of a list of more neighbours are the k nearest, so
    that one list serves every k.
    """
    nearest = np.where(np.isfinite(distances[:, :1]), distances[:, :1], 0.0)
    masses = np.exp((nearest - distances.astype(np.float64)) / temperature)  # [n, k]
    masses = masses if trust is None else masses * trust
    last = np.array(ks) - 1
    of_all, of_hits = np.cumsum(masses, axis=1)[:, last], np.cumsum(masses * hits, axis=1)[:, last]
    return np.asarray(np.divide(of_hits, of_all, out=np.zeros_like(of_all), where=of_all > 0))


def mixed_likelihoods(model: Floats, shares: Floats, found: NDArray[np.bool_], weights: Sequence[float]) -> Floats:
    """Summed log-likelihoods [ks, weights] from the model's probabilities [n] and the neighbours' [n, ks].

    Where nothing was found, the model stands alone.
    """
    share = np.where(found[:, None], np.array(weights), 0.0)[:, None, :]  # [n, 1, weights]
    mixed = share * shares[:, :, None] + (1.0 - share) * model[:, None, None]  # [n, ks, weights]
    return np.asarray(np.log(np.maximum(mixed, np.finfo(np.float64).tiny)).sum(axis=0))
