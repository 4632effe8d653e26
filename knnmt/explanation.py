"""Why this word: every token of a translation with the neighbours that spoke for it.

The neighbours of a token depend only on the source and on the tokens before it. So one teacher-forced pass over the
finished translation finds the same ones that beam search met on its way there, whatever beams it took.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from knnmt.decoding import SearchSettings
from knnmt.keys import catching_keys
from knnmt.mixing import mix, neighbour_weights
from knnmt.model import TranslationModel
from knnmt.retrieval import Neighbours, Retriever


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One entry of the datastore that spoke for a token."""

    token: str
    weight: float  # its share of the neighbours' distribution
    distance: float  # squared
    source: str
    target: str
    prefix: str  # the part of the target before the token
    corpus: str
    segment: int
    store: str


@dataclass(frozen=True, slots=True)
class ExplainedToken:
    """A token of the translation with its probability under the model, the neighbours, and both."""

    token: str
    model_probability: float
    neighbour_probability: float
    probability: float
    neighbours: list[Neighbour]


@dataclass(frozen=True, slots=True)
class Explanation:
    source: str
    translation: str
    settings: dict[str, Any]
    tokens: list[ExplainedToken]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@torch.inference_mode()
def explain_tokens(
    model: TranslationModel,
    retriever: Retriever,
    settings: SearchSettings,
    source: str,
    tokens: Sequence[int],
    translation: str,
) -> Explanation:
    """Trace each token of a finished translation to its neighbours."""
    if not tokens:
        return Explanation(source, translation, asdict(settings), [])
    logits, keys = states(model, source, tokens)
    found = retriever.search(keys.numpy(), settings.k)
    weights = neighbour_weights(torch.from_numpy(found.distances), settings.temperature)
    mixed = mix(logits, torch.from_numpy(found.tokens), weights, settings.weight).exp()
    alone = torch.softmax(logits, dim=-1)
    explained = []
    for step, token in enumerate(tokens):
        neighbours = describe(model, retriever, found, weights[step], step)
        share = float(weights[step][torch.from_numpy(found.tokens[step] == token)].sum())
        explained.append(
            ExplainedToken(
                model.token_text(token), float(alone[step, token]), share, float(mixed[step, token]), neighbours
            )
        )
    return Explanation(source, translation, asdict(settings), explained)


def states(model: TranslationModel, source: str, tokens: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [tokens, vocabulary] and keys [tokens, dimension] at the translation's positions."""
    first = len(model.decoder_prefix) - 1
    source_ids = model.encode_sources([source])[0][: model.positions]
    with catching_keys(model.network, model.key_site) as catch:
        output = model.network(**model.teacher_forcing([source_ids], [tokens]), use_cache=False)
    return output.logits[0, first:].float().cpu(), catch.keys[0, first:].float().cpu()


def describe(
    model: TranslationModel, retriever: Retriever, found: Neighbours, weights: torch.Tensor, step: int
) -> list[Neighbour]:
    """The neighbours of one step, heaviest first, each traced to its sentence pair."""
    return [
        describe_entry(model, retriever, int(entry), float(weights[rank]), float(found.distances[step, rank]))
        for rank, entry in enumerate(found.entries[step])
        if entry >= 0
    ]


def describe_entry(
    model: TranslationModel, retriever: Retriever, entry: int, weight: float, distance: float
) -> Neighbour:
    store, local = retriever.locate(entry)
    at = np.array([local])
    segment = store.segment(int(store.gather("segments", at)[0]))
    position = int(store.gather("positions", at)[0])
    return Neighbour(
        token=model.token_text(int(store.values[local])),
        weight=weight,
        distance=distance,
        source=segment.source,
        target=segment.target,
        prefix=model.decode(store.values[local - position : local].tolist()),
        corpus=segment.corpus,
        segment=segment.segment,
        store=str(store.path),
    )
