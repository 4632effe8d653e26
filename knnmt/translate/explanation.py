"""Why this word: every token of a translation with the neighbours that spoke for it, gathered to words.

The neighbours of a token depend only on the source and on the tokens before it. So one teacher-forced pass over the
finished translation finds the same ones that beam search met on its way there, whatever beams it took.

A token's mixed probability is a sum, weight · kNN + (1 − weight) · model. The memory's share of the token is the first
term's part of it, and each neighbour with that token has its part of the share. A word's share is the mean over its
tokens, and a sentence's support for the word is what its neighbours hold of that: the supports add up to the share.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from knnmt.engine.keys import catching_keys
from knnmt.models.translation_model import TranslationModel
from knnmt.models.words import widened, word_spans, words_of, written
from knnmt.store.datastore import Store, StoredSegment
from knnmt.translate.decoding import SearchSettings, asking, weights_of
from knnmt.translate.mixing import mix
from knnmt.translate.retriever import Neighbours, Retriever

FAINT = 0.1  # a place in a sentence that gives less than this part of what its best place gives is not marked

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One entry of the datastore that spoke for a token."""

    token: str  # as the vocabulary writes it
    text: str  # as it stands in the target, right after `prefix`; empty for the end token
    weight: float  # its share of the neighbours' distribution
    distance: float  # squared
    source: str
    target: str
    prefix: str  # the part of the target before the token
    corpus: str
    segment: int
    store: str

    @property
    def span(self) -> Span:
        """Where the token is in the target."""
        return len(self.prefix), len(self.prefix) + len(self.text)


@dataclass(frozen=True, slots=True)
class ExplainedToken:
    """A token of the translation with its probability under the model, the neighbours, and both."""

    token: str
    text: str  # as it stands in the translation
    model_probability: float
    neighbour_probability: float
    probability: float
    memory_share: float  # the part of the probability that comes from the neighbours
    neighbours: list[Neighbour]

    def supports(self) -> Iterable[tuple[Neighbour, float]]:
        """The neighbours with this very token, each with its part of the memory's share."""
        for neighbour in self.neighbours:
            if neighbour.token == self.token and self.memory_share:
                yield neighbour, self.memory_share * neighbour.weight / self.neighbour_probability


@dataclass(frozen=True, slots=True)
class MemorySentence:
    """A sentence pair of the memory that helped to make a word."""

    support: float  # its part of the word: all supports add up to the memory's share
    source: str
    target: str
    marks: list[Span]  # the words of the target that gave it
    corpus: str
    segment: int
    store: str


@dataclass(frozen=True, slots=True)
class ExplainedWord:
    """A word of the translation, and the memory behind it."""

    text: str
    start: int  # its first character in the translation
    tokens: list[int]  # positions of its tokens
    memory_share: float
    sentences: list[MemorySentence]  # most support first


@dataclass(frozen=True, slots=True)
class Explanation:
    source: str
    translation: str
    source_lang: str | None
    target_lang: str | None
    settings: dict[str, Any]
    words: list[ExplainedWord]
    tokens: list[ExplainedToken]
    cut: bool = False  # the source was longer than the model can take, and its end was left out

    @property
    def setting(self) -> str:
        """In a reader's words, without what is as always."""
        usual = {"certain": 1, "exact": False}
        told = {name: value for name, value in self.settings.items() if usual.get(name) != value}
        return ", ".join(name if value is True else f"{name} {value:g}" for name, value in told.items())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def store_names(self) -> dict[str, str]:
        """What tells the stores apart, by path: nothing where there is one, the folder's name if that is enough."""
        paths = {neighbour.store for token in self.tokens for neighbour in token.neighbours}
        names = {path: f"{Path(path).name}/" for path in paths}
        if len(paths) == 1:
            return dict.fromkeys(paths, "")
        return names if len(set(names.values())) == len(paths) else {path: f"{path}/" for path in paths}


def explain_tokens(
    model: TranslationModel,
    retriever: Retriever,
    settings: SearchSettings,
    source: str,
    tokens: Sequence[int],
    translation: str,
) -> Explanation:
    """Trace each token and each word of a finished translation to the memory."""
    ends = written(model, tokens, translation)
    texts = [translation[ends[position] : ends[position + 1]] for position in range(len(tokens))]
    explained = trace(model, retriever, settings, source, tokens, texts) if tokens else []
    groups = words_of(translation, ends)
    words = [
        explain_word(translation, span, group, [explained[position] for position in group])
        for group, span in zip(groups, word_spans(translation, groups, ends), strict=True)
    ]
    return Explanation(
        source=source,
        translation=translation,
        source_lang=model.source_lang,
        target_lang=model.target_lang,
        settings=asdict(settings),
        words=words,
        tokens=explained,
        cut=len(model.encode_sources([source])[0]) > model.positions,
    )


@torch.inference_mode()
def trace(
    model: TranslationModel,
    retriever: Retriever,
    settings: SearchSettings,
    source: str,
    tokens: Sequence[int],
    texts: Sequence[str],
) -> list[ExplainedToken]:
    """Each token with its probabilities and its neighbours."""
    logits, keys = states(model, source, tokens)
    found = retriever.search(keys.numpy(), settings.k)
    weights, asked = weights_of(found, settings.temperature), asking(logits, settings)
    mixed = mix(logits, torch.from_numpy(found.tokens), weights * asked[:, None], settings.weight).exp()
    alone = torch.softmax(logits, dim=-1)
    memory = Memory(model, retriever)
    explained = []
    for step, token in enumerate(tokens):
        by_model = float(alone[step, token])
        by_neighbours = float(weights[step][torch.from_numpy(found.tokens[step] == token)].sum())
        explained.append(
            ExplainedToken(
                token=model.token_text(token),
                text=texts[step],
                model_probability=by_model,
                neighbour_probability=by_neighbours,
                probability=float(mixed[step, token]),
                memory_share=share_of_memory(by_model, by_neighbours, settings.weight * float(asked[step])),
                neighbours=memory.neighbours(found, weights[step], step),
            )
        )
    return explained


def states(model: TranslationModel, source: str, tokens: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [tokens, vocabulary] and keys [tokens, dimension] at the translation's positions."""
    first = len(model.decoder_prefix) - 1
    source_ids = model.fitting_sources([source])[0][0]
    with catching_keys(model.network, model.key_site) as catch:
        output = model.network(**model.teacher_forcing([source_ids], [tokens]), use_cache=False)
    return output.logits[0, first:].float().cpu(), catch.keys[0, first:].float().cpu()


def share_of_memory(by_model: float, by_neighbours: float, weight: float) -> float:
    """The neighbours' part of a mixed probability; of no probability, they have no part."""
    from_memory, from_model = weight * by_neighbours, (1 - weight) * by_model
    return from_memory / (from_memory + from_model) if from_memory else 0.0


class Memory:
    """Traces entries to their sentence pairs; what was read or decoded once is kept."""

    def __init__(self, model: TranslationModel, retriever: Retriever) -> None:
        self.model = model
        self.retriever = retriever
        self._pairs: dict[tuple[str, int], tuple[StoredSegment, list[int]]] = {}

    def neighbours(self, found: Neighbours, weights: torch.Tensor, step: int) -> list[Neighbour]:
        """The neighbours of one step, heaviest first."""
        return [
            self.neighbour(int(entry), float(weights[rank]), float(found.distances[step, rank]))
            for rank, entry in enumerate(found.entries[step])
            if entry >= 0
        ]

    def neighbour(self, entry: int, weight: float, distance: float) -> Neighbour:
        store, local = self.retriever.locate(entry)
        at = np.array([local])
        pair, ends = self.pair(store, int(store.segment_numbers(at)[0]))
        position = int(store.gather("positions", at)[0])
        return Neighbour(
            token=self.model.token_text(int(store.values[local])),
            text=pair.target[ends[position] : ends[position + 1]],
            weight=weight,
            distance=distance,
            source=pair.source,
            target=pair.target,
            prefix=pair.target[: ends[position]],
            corpus=pair.corpus,
            segment=pair.segment,
            store=self.retriever.name_of(store),
        )

    def pair(self, store: Store, segment: int) -> tuple[StoredSegment, list[int]]:
        """A sentence pair, and where in its target each token ends."""
        name = (str(store.path), segment)
        if name not in self._pairs:
            pair = store.segment(segment)
            tokens = self.model.encode_targets([pair.target])[0]
            self._pairs[name] = pair, written(self.model, tokens, pair.target)
        return self._pairs[name]


def explain_word(translation: str, span: Span, positions: list[int], tokens: Sequence[ExplainedToken]) -> ExplainedWord:
    """A word out of its tokens."""
    start, end = span
    share = sum(token.memory_share for token in tokens) / len(tokens)
    return ExplainedWord(translation[start:end], start, positions, share, sentences_behind(tokens))


def sentences_behind(tokens: Sequence[ExplainedToken]) -> list[MemorySentence]:
    """The sentences that gave a word's tokens, with their summed support, most first."""
    pairs: dict[tuple[str, int], list[tuple[Neighbour, float]]] = defaultdict(list)
    for token in tokens:
        for neighbour, part in token.supports():
            pairs[neighbour.store, neighbour.segment].append((neighbour, part / len(tokens)))
    return sorted((memory_sentence(parts) for parts in pairs.values()), key=lambda sentence: -sentence.support)


def memory_sentence(parts: Sequence[tuple[Neighbour, float]]) -> MemorySentence:
    """What several entries of one sentence pair gave together."""
    pair = parts[0][0]
    return MemorySentence(
        support=sum(part for _, part in parts),
        source=pair.source,
        target=pair.target,
        marks=marks_of(parts),
        corpus=pair.corpus,
        segment=pair.segment,
        store=pair.store,
    )


def marks_of(parts: Sequence[tuple[Neighbour, float]]) -> list[Span]:
    """The words of the target in which the places are that gave most, joined where they touch."""
    least = FAINT * max(part for _, part in parts)
    places = {widened(neighbour.target, *neighbour.span) for neighbour, part in parts if part >= least}
    joined: list[Span] = []
    for start, end in sorted(place for place in places if place[0] < place[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
