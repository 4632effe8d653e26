"""Beam search with retrieval: the model's own `generate`, with its distribution mixed at every step."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from knnmt.engine.keys import Catch, catching_keys
from knnmt.engine.projection import Ranking
from knnmt.engine.stepping import Step
from knnmt.errors import SettingsError
from knnmt.models.architectures import KeySite
from knnmt.translate.beam import Proposal, Propose, propose_plainly
from knnmt.translate.mixing import mix, mix_at, mix_best, neighbour_weights
from knnmt.translate.retriever import Neighbours, Retriever

PAPER_K = 64

Found = tuple[torch.Tensor, torch.Tensor]  # neighbours' tokens and weights, both [n, k]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How much to retrieve and how much to trust it; the defaults are the paper's."""

    k: int = PAPER_K
    temperature: float = 10.0
    weight: float = 0.5  # of the neighbours' distribution: 0 is the model alone, 1 the neighbours alone
    beam: int = 5
    certain: float = 1.0  # where the model gives its best token more than this, nothing is retrieved; 1: always ask
    exact: bool = False  # the paper's plain method: no quick projection, and retrieval at every step

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"--k {self.k}: must be at least 1")
        if not 0 < self.temperature < math.inf:
            raise SettingsError(f"--temperature {self.temperature:g}: must be above 0")
        if not 0 <= self.weight <= 1:
            raise SettingsError(f"--weight {self.weight:g}: must be between 0 and 1")
        if self.beam < 1:
            raise SettingsError(f"--beam {self.beam}: must be at least 1")
        if not 0 < self.certain <= 1:
            raise SettingsError(f"--certain {self.certain:g}: must be above 0 and at most 1")

    @property
    def asks_always(self) -> bool:
        """Whether neighbours are wanted whatever the model says."""
        return self.exact or self.certain == 1

    def check_against(self, entries: int) -> None:
        if self.k > entries:
            raise SettingsError(f"--k {self.k}: larger than the datastore, which has {entries:,} entries")


@contextmanager
def mixing_in(network: Any, site: KeySite, retriever: Retriever, settings: SearchSettings) -> Iterator[None]:
    """Inside, the network's logits are those of model and neighbours together; afterwards it is as it was.

    The hook sits on the network's output, so that `generate` applies its own rules (forced first token, minimum
    length, suppressed tokens) to the mixed distribution and they keep their meaning.
    """
    settings.check_against(retriever.entries)
    with catching_keys(network, site) as catch:

        def mix_output(_: nn.Module, __: Any, output: Any) -> Any:
            output.logits = mixed_logits(output.logits, catch, retriever, settings)
            return output

        handle = network.register_forward_hook(mix_output)
        try:
            yield
        finally:
            handle.remove()


def mixed_logits(logits: torch.Tensor, catch: Catch, retriever: Retriever, settings: SearchSettings) -> torch.Tensor:
    """Logits [batch, time, vocabulary] after retrieval at every position."""
    if settings.weight == 0:
        return logits
    tokens, weights = retrieve(catch.keys, retriever, settings)
    flat = logits.reshape(-1, logits.shape[-1])
    weights = weights * asking(flat, settings)[:, None]
    return mix(flat, tokens, weights, settings.weight).reshape(logits.shape)


def asking(logits: torch.Tensor, settings: SearchSettings) -> torch.Tensor:
    """Whether neighbours have a say in each row of logits, or the model is certain enough without, [n]."""
    if settings.asks_always:
        return torch.ones(len(logits), dtype=torch.bool, device=logits.device)
    return (logits.amax(dim=-1) - logits.logsumexp(dim=-1)).exp() <= settings.certain


def retrieve(keys: torch.Tensor, retriever: Retriever, settings: SearchSettings) -> Found:
    """Neighbours' tokens and weights, both [n, k], for keys [batch, time, dimension] taken row by row."""
    queries = keys.reshape(-1, keys.shape[-1]).float().cpu().numpy()
    found = retriever.search(queries, settings.k)
    return torch.from_numpy(found.tokens).to(keys.device), weights_of(found, settings.temperature).to(keys.device)


def weights_of(found: Neighbours, temperature: float) -> torch.Tensor:
    """The weight of each neighbour, [n, k]."""
    trust = None if found.trust is None else torch.from_numpy(found.trust)
    return neighbour_weights(torch.from_numpy(found.distances), temperature, trust)


@dataclass(slots=True)
class Asked:
    """How often neighbours were used, and how often the model was certain enough without."""

    retrieved: int = 0
    skipped: int = 0

    @property
    def share_skipped(self) -> float:
        return self.skipped / max(1, self.retrieved + self.skipped)


def proposing(retriever: Retriever | None, settings: SearchSettings, asked: Asked | None = None) -> Propose:
    """How beam search finds the best continuations: with neighbours, or plainly; `asked` counts."""
    counts = asked or Asked()
    if retriever is None or settings.weight == 0:
        return propose_plainly

    def propose(step: Step, most: int) -> Proposal:
        following, ranking = step.following, step.following.rank(most)
        tokens, weights = find_where_unsure(step.keys, ranking, retriever, settings, counts)
        scores, best = mix_best(ranking, following.at(tokens), tokens, weights, settings.weight)

        def score(wanted: torch.Tensor) -> torch.Tensor:
            return mix_at(following.at(wanted) - ranking.total, wanted, tokens, weights, settings.weight)

        return Proposal(scores, best, score)

    return propose


def find_where_unsure(
    keys: torch.Tensor, ranking: Ranking, retriever: Retriever, settings: SearchSettings, asked: Asked
) -> Found:
    """Neighbours for each of the keys [n, dimension]; where the model is certain, none has any weight."""
    if settings.asks_always:
        asked.retrieved += len(keys)
        return retrieve(keys, retriever, settings)
    unsure = torch.nonzero(ranking.certainty() <= settings.certain)[:, 0]
    asked.retrieved += len(unsure)
    asked.skipped += len(keys) - len(unsure)
    tokens = keys.new_zeros(len(keys), settings.k, dtype=torch.long)
    weights = keys.new_zeros(len(keys), settings.k, dtype=torch.float)
    if len(unsure):
        tokens[unsure], weights[unsure] = retrieve(keys[unsure], retriever, settings)
    return tokens, weights
