"""Retrieval during decoding: mixed proposals for beam search, and a hook for `generate`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from knnmt.engine.keys import catching_keys
from knnmt.engine.projection import AllLogits, NextTokens, Ranking
from knnmt.engine.stepping import Step
from knnmt.errors import ModelError
from knnmt.mixing.mixer import Mixer
from knnmt.mixing.mixture import Mixture
from knnmt.mixing.neighbours import Neighbours
from knnmt.models.architectures import KeySite
from knnmt.models.network import Network
from knnmt.retrieval.retriever import Retriever
from knnmt.switches import left_out
from knnmt.translate.beam import Proposal, Propose, propose_plainly, ranked_alone
from knnmt.translate.settings import check_enough


@dataclass(slots=True)
class RetrievalCounts:
    """How often neighbours were used, and how often the mixer did without."""

    retrieved: int = 0
    skipped: int = 0

    @property
    def share_skipped(self) -> float:
        return self.skipped / max(1, self.retrieved + self.skipped)


def proposing(
    retriever: Retriever | None, mixer: Mixer | None, signals: torch.Tensor, asked: RetrievalCounts
) -> Propose:
    """The function with which beam search finds the best continuations: with neighbours, or plainly.

    `signals` [sentences, signals] are the mixer's, of the sentences of the batch.
    """
    if retriever is None or mixer is None:
        return propose_plainly
    memory, together = Consulting(retriever, mixer, asked), left_out("asked")

    def propose(step: Step, most: int, sentences: torch.Tensor) -> Proposal:
        following = step.following
        ranking = following.rank(max(most, mixer.needs.ranked))
        seen = Asking(step.keys, following, ranking, signals[sentences])
        wanted = mixer.asks(ranking, seen.signals)
        rows = torch.nonzero(wanted)[:, 0]
        if not len(rows):
            asked.skipped += len(wanted)
            return ranked_alone(following, ranking)
        if len(rows) == len(wanted) or together:
            return memory.proposal(seen, wanted)
        asked.skipped += len(wanted) - len(rows)
        some = memory.proposal(seen.among(rows), wanted[rows])
        return spread_among(ranked_alone(following, ranking), some, rows)

    return propose


def spread_among(alone: Proposal, some: Proposal, rows: torch.Tensor) -> Proposal:
    """Proposals for some rows, and for the others those of the model alone."""
    return Proposal(
        alone.scores.index_copy(0, rows, some.scores),
        alone.tokens.index_copy(0, rows, some.tokens),
        lambda tokens: alone.score(tokens).index_copy(0, rows, some.score(tokens[rows])),
    )


class Asking(NamedTuple):
    """The rows of a step for which the memory may be searched."""

    keys: torch.Tensor  # [n, dimension]
    following: NextTokens
    ranking: Ranking
    signals: torch.Tensor  # [n, signals]

    def among(self, rows: torch.Tensor) -> "Asking":
        ranking = Ranking(*(part[rows] for part in self.ranking))
        return Asking(self.keys[rows], self.following.among(rows), ranking, self.signals[rows])


class Consulting:
    """A memory and its mixer; `asked` counts searches."""

    def __init__(self, retriever: Retriever, mixer: Mixer, asked: RetrievalCounts) -> None:
        check_enough(mixer.needs.neighbours, retriever.entries)
        self.retriever, self.mixer, self.asked = retriever, mixer, asked

    def proposal(self, seen: Asking, wanted: torch.Tensor) -> Proposal:
        """The best continuations of model and neighbours together; rows that are not wanted have no neighbours."""
        mixture, logits = self.mixture(seen, wanted)
        scores, best = mixture.best(seen.ranking, logits)
        following, total = seen.following, seen.ranking.total
        return Proposal(scores, best, lambda tokens: mixture.at(following.at(tokens) - total, tokens))

    def mixture(self, seen: Asking, wanted: torch.Tensor) -> tuple[Mixture, torch.Tensor]:
        """Search where it is wanted [n], and mix; and the logits of the neighbours' tokens [n, k]."""
        found = self.find(seen.keys, wanted)
        logits = seen.following.at(torch.from_numpy(found.tokens).to(seen.keys.device))
        return self.mixer.mixture(found, seen.ranking, logits, seen.signals), logits

    def find(self, keys: torch.Tensor, wanted: torch.Tensor) -> Neighbours:
        """The neighbours of the keys [n, dimension] that are wanted [n]; the others have none."""
        rows = np.flatnonzero(wanted.cpu().numpy())
        self.asked.retrieved += len(rows)
        self.asked.skipped += len(keys) - len(rows)
        queries, k = keys.float().cpu().numpy(), self.mixer.needs.neighbours
        if len(rows) == len(keys):
            return self.retriever.search(queries, k)
        return scattered(self.retriever.search(queries[rows], k), rows, len(keys))


def scattered(found: Neighbours, rows: Any, count: int) -> Neighbours:
    """Neighbours of some rows, spread over all rows; the others have none."""
    whole = Neighbours.none(count, found.tokens.shape[1])
    whole.distances[rows], whole.entries[rows], whole.tokens[rows] = found.distances, found.entries, found.tokens
    if found.trust is None:
        return whole
    trust = np.ones_like(whole.distances)
    trust[rows] = found.trust
    return Neighbours(whole.distances, whole.entries, whole.tokens, trust)


@contextmanager
def mixing_in(network: Network, site: KeySite, retriever: Retriever, mixer: Mixer) -> Iterator[None]:
    """Inside, the network's logits are those of model and neighbours together; afterwards it is as it was.

    The hook sits on the network's output, so that `generate` applies its own rules (forced first token, minimum
    length, suppressed tokens) to the mixed distribution and they keep their meaning. Another one on the encoder sees
    the sentences: `generate` gives each of them the same number of rows, one after another.
    """
    memory = Consulting(retriever, mixer, RetrievalCounts())
    with ExitStack() as stack:
        catch = stack.enter_context(catching_keys(network, site))
        encoded = stack.enter_context(seeing_sources(network, mixer))

        def mix_output(_: nn.Module, __: Any, output: Any) -> Any:
            output.logits = mixed_logits(output.logits, catch.keys, memory, encoded.signals)
            return output

        stack.callback(network.register_forward_hook(mix_output).remove)
        yield


@dataclass(slots=True)
class Encoded:
    """The signals of the sentences that were encoded last, [sentences, signals]; None before the first."""

    signals: torch.Tensor | None = None


@contextmanager
def seeing_sources(network: Network, mixer: Mixer) -> Iterator[Encoded]:
    """Inside, the tokens of each sentence that is encoded reach the mixer."""
    encoded, padding = Encoded(), network.config.pad_token_id

    def look(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = inputs[0] if inputs else named.get("input_ids")
        if ids is None:
            raise ModelError("sentences given as embeddings cannot be looked up in a datastore; give input_ids")
        rows = [[token for token in row if token != padding] for row in ids.tolist()]
        encoded.signals = mixer.signals(rows).to(ids.device)

    handle = network.get_encoder().register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield encoded
    finally:
        handle.remove()


def mixed_logits(
    logits: torch.Tensor, keys: torch.Tensor, memory: Consulting, signals: torch.Tensor | None
) -> torch.Tensor:
    """Logits [rows, time, vocabulary] after retrieval at every position; keys are [rows, time, dimension]."""
    flat = logits.reshape(-1, logits.shape[-1])
    following = AllLogits(flat)
    by_row = spread(signals, len(logits)).repeat_interleave(logits.shape[1], dim=0)
    ranking = following.rank(memory.mixer.needs.ranked)
    wanted = memory.mixer.asks(ranking, by_row)
    if not wanted.any():
        memory.asked.skipped += len(wanted)
        return logits
    mixture, _ = memory.mixture(Asking(keys.reshape(-1, keys.shape[-1]), following, ranking, by_row), wanted)
    return mixture.distribution(flat).reshape(logits.shape)


def spread(signals: torch.Tensor | None, rows: int) -> torch.Tensor:
    """The signals of each row's sentence, where each sentence has as many rows as any other."""
    if signals is None or not len(signals) or rows % len(signals):
        seen = 0 if signals is None else len(signals)
        raise ModelError(f"{rows} rows cannot belong to {seen} sentences; call the encoder inside the `with` block")
    return signals.repeat_interleave(rows // len(signals), dim=0)
