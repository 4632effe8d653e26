"""Decoder states and neighbours of given translations, from one forward pass and one search, without decoding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine.keys import catching_keys
from knnmt.engine.packed_layers import packed_layers
from knnmt.engine.projection import AllLogits, Ranking
from knnmt.engine.runtime import lock_of
from knnmt.mixing.evidence import NEIGHBOURS, RANKED, Evidence
from knnmt.mixing.head_mixer import padded, padded_logits
from knnmt.mixing.neighbours import Neighbours
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.retriever import Retriever

BATCH_TOKENS = 4096  # padded tokens of a forward pass, fewer where the vocabulary is large
LOGITS = 1 << 25  # of a forward pass


@dataclass(frozen=True, slots=True)
class Forced:
    """The model's logits for given targets: n positions of some pairs."""

    keys: NDArray[np.float32]  # [n, dimension]
    logits: torch.Tensor  # [n, vocabulary]
    tokens: torch.Tensor  # [n] the targets'
    pairs: NDArray[np.int64]  # [n] the number of each position's pair


def forced(
    model: TranslationModel, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[Forced]:
    """Teacher-forced passes over pairs of tokens, batch by batch."""
    prefix = len(model.decoder_prefix) - 1
    lengths = [max(len(source), prefix + len(target)) for source, target in zip(sources, targets, strict=True)]
    for batch in batches_by_tokens(lengths, min(BATCH_TOKENS, LOGITS // model.network.config.vocab_size)):
        yield forced_batch(model, [sources[row] for row in batch], [targets[row] for row in batch], batch)


@torch.inference_mode()
def forced_batch(
    model: TranslationModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    numbers: Sequence[int],
) -> Forced:
    with lock_of(model.network), packed_layers(model.network), catching_keys(model.network, model.key_site) as catch:
        logits = model.network(**model.teacher_forcing(sources, targets), use_cache=False).logits
    first = len(model.decoder_prefix) - 1
    rows = torch.tensor([row for row, target in enumerate(targets) for _ in target])
    columns = torch.tensor([first + position for target in targets for position in range(len(target))])
    return Forced(
        keys=catch.keys[rows, columns].float().cpu().numpy(),
        logits=logits[rows, columns].float().cpu(),
        tokens=torch.tensor([token for target in targets for token in target]),
        pairs=np.asarray(numbers)[rows.numpy()],
    )


def evidence_of(said: Forced, found: Neighbours, signals: torch.Tensor, variance: float) -> Evidence:
    """The evidence that a head gets; `signals` [n, signals] are those of each position's sentence."""
    nearest = first_of(padded(found), NEIGHBOURS)
    following = AllLogits(said.logits)
    ranking: Ranking = following.rank(RANKED)
    logits = following.at(torch.from_numpy(nearest.tokens))
    return Evidence.of(nearest, ranking, padded_logits(logits), signals, variance)


def first_of(found: Neighbours, k: int) -> Neighbours:
    trust = None if found.trust is None else found.trust[:, :k]
    return Neighbours(found.distances[:, :k], found.entries[:, :k], found.tokens[:, :k], trust)


def search_for(said: Forced, retriever: Retriever, k: int = NEIGHBOURS) -> Neighbours:
    return retriever.search(said.keys, min(k, retriever.entries))
