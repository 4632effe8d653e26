"""Decoder states and neighbours of given translations, from one forward pass and one search, without decoding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine.network_decoder import NetworkDecoder, ProjectionReached
from knnmt.engine.packed_layers import is_hooked, packed_layers
from knnmt.engine.projection import AllLogits, NextTokens, Projection, Ranking
from knnmt.engine.runtime import lock_of, runtime_of
from knnmt.engine.stepping import checked_projection, objection_to_int8
from knnmt.mixing.evidence import NEIGHBOURS, Evidence
from knnmt.mixing.head_mixer import padded, padded_logits
from knnmt.mixing.neighbours import Neighbours
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.retriever import Retriever
from knnmt.switches import left_out

BATCH_TOKENS = 4096  # padded tokens of a forward pass, fewer where the vocabulary is large
LOGITS = 1 << 25  # of a forward pass
SEED = 0


@dataclass(frozen=True, slots=True)
class Forced:
    """What the model says at n positions of given targets; valid until the next batch."""

    keys: NDArray[np.float32]  # [n, dimension]
    following: NextTokens  # of the n positions
    tokens: torch.Tensor  # [n] the targets'
    pairs: NDArray[np.int64]  # [n] the number of each position's pair


def forced(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    positions: int | None = None,
) -> Iterator[Forced]:
    """Teacher-forced passes over pairs of tokens, batch by batch; rankings may be a little off, as in translation.

    Of long text, about so many `positions` are looked at, drawn from all pairs.
    """
    prefix, passes = len(model.decoder_prefix) - 1, ForcedPasses(model, quick=True)
    share = 1.0 if positions is None else positions / max(1, sum(map(len, targets)))
    random = np.random.default_rng(SEED)
    lengths = [max(len(source), prefix + len(target)) for source, target in zip(sources, targets, strict=True)]
    for batch in batches_by_tokens(lengths, min(BATCH_TOKENS, LOGITS // model.network.config.vocab_size)):
        said = [targets[row] for row in batch]
        kept = np.flatnonzero(random.random(sum(map(len, said))) < share)
        if len(kept):
            keys, following = passes.over([sources[row] for row in batch], said, kept)
            tokens = torch.tensor([token for target in said for token in target])[kept]
            yield Forced(keys, following, tokens, np.repeat(batch, [len(target) for target in said])[kept])


class ForcedPasses:
    """Teacher-forced passes of one model. Only the targets' own positions are projected on the vocabulary.

    The network's own projection, which computes padding, too, is the plain twin. With `quick`, a large vocabulary is
    projected in int8 first.
    """

    def __init__(self, model: TranslationModel, *, quick: bool = False) -> None:
        self.model, self.network = model, model.network
        self.decoder = NetworkDecoder(model, shares=False)
        self.quick = objection_to_int8(model.network, wanted=quick) is None
        self.projection: Projection | None = None
        self.tried = False

    @torch.inference_mode()
    def over(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        kept: NDArray[np.int64] | slice = slice(None),
    ) -> tuple[NDArray[np.float32], NextTokens]:
        """Keys [n, dimension] at each position of each target, and the next tokens there, valid until the next pass.

        Of all positions, one target after another, only those that are `kept`.
        """
        rows, columns = (each[kept] for each in positions_of(targets, len(self.model.decoder_prefix) - 1))
        objection = objection_to_projecting(self.model)
        with lock_of(self.network), packed_layers(self.network), self.decoder.attached():
            runtime_of(self.network).not_taken("forced", objection)
            if not (self.tried or objection):
                self.try_projection(sources[:1], targets[:1])
            projection = None if objection else self.projection
            self.decoder.stops = projection is not None
            logits = self.run(sources, targets)
        keys = self.decoder.catch.keys[rows, columns].float().cpu().numpy()
        if projection is None:
            assert logits is not None
            return keys, AllLogits(logits[rows, columns].cpu())
        states = self.decoder.states[rows, columns]
        return keys, projection.quickly(states) if self.quick else projection.exactly(states)

    def try_projection(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
        """Compare our projection with the network's own on one pair."""
        self.tried, logits = True, self.run(sources, targets)
        assert logits is not None
        states = self.decoder.states
        if states.numel():
            self.projection = checked_projection(self.network, states.flatten(0, 1), AllLogits(logits.flatten(0, 1)))

    def run(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> torch.Tensor | None:
        """The network's logits [pairs, time, vocabulary]; None where the pass ended before its projection."""
        inputs = self.model.teacher_forcing(sources, targets)
        try:
            with self.decoder.running():
                logits: torch.Tensor = self.network(**inputs, use_cache=False).logits
        except ProjectionReached:
            return None
        return logits


def objection_to_projecting(model: TranslationModel) -> str | None:
    """Why given targets are projected by the network itself."""
    if left_out("forced"):
        return "KNNMT_PLAIN"
    if is_hooked(model.network) or is_hooked(model.network.get_output_embeddings()):
        return "the network has hooks"
    return None if model.network.device.type == "cpu" else "the network is not on the CPU"


def positions_of(targets: Sequence[Sequence[int]], first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of every target token in a padded batch whose texts begin at column `first`."""
    rows = [row for row, target in enumerate(targets) for _ in target]
    columns = [first + position for target in targets for position in range(len(target))]
    return torch.tensor(rows), torch.tensor(columns)


def evidence_of(said: Forced, ranking: Ranking, found: Neighbours, signals: torch.Tensor, variance: float) -> Evidence:
    """The evidence that a head gets.

    `ranking` is that of RANKED tokens; `signals` [n, signals] are those of each position's sentence.
    """
    nearest = first_of(padded(found), NEIGHBOURS)
    logits = said.following.at(torch.from_numpy(nearest.tokens))
    return Evidence.of(nearest, ranking, padded_logits(logits), signals, variance)


def first_of(found: Neighbours, k: int) -> Neighbours:
    trust = None if found.trust is None else found.trust[:, :k]
    return Neighbours(found.distances[:, :k], found.entries[:, :k], found.tokens[:, :k], trust)


def search_for(said: Forced, retriever: Retriever, k: int = NEIGHBOURS) -> Neighbours:
    return retriever.search(said.keys, min(k, retriever.entries))
