"""Explains a translation: for every token the neighbours that contributed to it, summed up for each word.

The neighbours of a token depend only on the source and on the tokens before it. So one teacher-forced pass over the
finished translation finds the same neighbours as beam search did.

A token's mixed probability is a sum: weight · kNN + (1 − weight) · model. The memory's share of the token is the first
term divided by the sum. Each neighbour with that token has a part of the share. A word's share is the mean over its
tokens. The support of a sentence for the word is the part of its neighbours, and all supports add up to the share.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from knnmt.engine.keys import catching_keys
from knnmt.engine.projection import AllLogits
from knnmt.mixing.head_mixer import HeadMixer
from knnmt.mixing.mixer import Mixer
from knnmt.mixing.mixture import Mixture
from knnmt.mixing.neighbours import Neighbours
from knnmt.mixing.reasons import Reasons
from knnmt.models.translation_model import TranslationModel
from knnmt.models.words import characters_written, widened, word_spans, words_of
from knnmt.retrieval.retriever import Located, Retriever

GRAMS = ("tokens", "token pairs", "token triples")
USUAL = {"certain": 1, "exact": False}
FAINT = 0.1  # a place in a sentence that gives less than this part of what its best place gives is not marked

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One entry of the datastore that contributed to a token."""

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
    weight: float = 0.0  # of the neighbours at this step
    temperature: float = 0.0
    searched: bool = True  # whether the memory was asked at all
    reasons: dict[str, float] = field(default_factory=dict)  # what each kind of evidence added to the weight

    def supports(self) -> Iterable[tuple[Neighbour, float]]:
        """The neighbours with this token, each with its part of the memory's share."""
        for neighbour in self.neighbours:
            if neighbour.token == self.token and self.memory_share:
                yield neighbour, self.memory_share * neighbour.weight / self.neighbour_probability


@dataclass(frozen=True, slots=True)
class MemorySentence:
    """A sentence pair of the memory that contributed to a word."""

    support: float  # its part of the word: all supports add up to the memory's share
    source: str
    target: str
    marks: list[Span]  # the words of the target that gave it
    corpus: str
    segment: int
    store: str


@dataclass(frozen=True, slots=True)
class ExplainedWord:
    """A word of the translation, and what the memory contributed to it."""

    text: str
    start: int  # its first character in the translation
    tokens: list[int]  # positions of its tokens
    memory_share: float
    sentences: list[MemorySentence]  # most support first
    weight: float = 0.0  # of the neighbours, the mean over its tokens
    reasons: dict[str, float] = field(default_factory=dict)  # likewise


@dataclass(frozen=True, slots=True)
class Explanation:
    """A translation with the neighbours of its tokens and the sentences behind its words."""

    source: str
    translation: str
    source_lang: str | None
    target_lang: str | None
    settings: dict[str, Any]
    words: list[ExplainedWord]
    tokens: list[ExplainedToken]
    cut: bool = False  # the source was longer than the model can take, and its end was left out
    coverage: list[float] = field(default_factory=list)  # shares of the source's 1-, 2- and 3-grams in the memory

    @property
    def known(self) -> str:
        """A sentence that says how much of the source the memory covers; empty if the mixing does not use this."""
        if not self.coverage:
            return ""
        shares = [f"{share:.0%} of the {name}" for share, name in zip(self.coverage, GRAMS, strict=False)]
        return f"The memory contains {', '.join(shares[:-1])} and {shares[-1]} of the source."

    @property
    def setting(self) -> str:
        """The settings as text, without defaults."""
        told = {name: value for name, value in self.settings.items() if USUAL.get(name) != value}
        return ", ".join(name if value is True else f"{name} {short(value)}" for name, value in told.items())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def store_names(self) -> dict[str, str]:
        """A name for each store, by path: empty for a single store, the folder's name if that is unique."""
        paths = {neighbour.store for token in self.tokens for neighbour in token.neighbours}
        names = {path: f"{Path(path).name}/" for path in paths}
        if len(paths) == 1:
            return dict.fromkeys(paths, "")
        return names if len(set(names.values())) == len(paths) else {path: f"{path}/" for path in paths}


def short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


class Tracing:
    """Traces each token and each word of a finished translation to the memory."""

    def __init__(self, model: TranslationModel, retriever: Retriever, mixer: Mixer, told: dict[str, Any]) -> None:
        self.model, self.retriever, self.mixer, self.told = model, retriever, mixer, told

    def explain(self, source: str, tokens: Sequence[int], translation: str) -> Explanation:
        model = self.model
        ends = characters_written(model, tokens, translation)
        texts = [translation[ends[position] : ends[position + 1]] for position in range(len(tokens))]
        explained = self.trace(source, tokens, texts) if tokens else []
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
            settings=self.told,
            words=words,
            tokens=explained,
            cut=len(model.encode_sources([source])[0]) > model.positions,
            coverage=self.coverage(source),
        )

    def coverage(self, source: str) -> list[float]:
        """The coverage of the sentence, which the mixer computes before decoding."""
        if not isinstance(self.mixer, HeadMixer):
            return []
        shares: list[float] = self.mixer.shares(self.model.fitting_sources([source])[0])[0].tolist()
        return shares

    @torch.inference_mode()
    def trace(self, source: str, tokens: Sequence[int], texts: Sequence[str]) -> list[ExplainedToken]:
        """Each token with its probabilities and its neighbours."""
        steps = self.steps(source, tokens)
        origins = Origins(self.model, self.retriever)
        return [self.token(steps, step, texts[step], origins) for step in range(len(tokens))]

    def steps(self, source: str, tokens: Sequence[int]) -> "Steps":
        """What the search found on its way to these tokens."""
        source_ids = self.model.fitting_sources([source])[0][0]
        logits, keys = states(self.model, source_ids, tokens)
        following = AllLogits(logits)
        ranking = following.rank(self.mixer.needs.ranked)
        signals = self.mixer.signals([source_ids]).expand(len(tokens), -1)
        found = self.retriever.search(keys.numpy(), self.mixer.needs.neighbours)
        mixture = self.mixer.mixture(found, ranking, following.at(torch.from_numpy(found.tokens)), signals)
        asked = self.mixer.asks(ranking, signals)
        mixture = replace(mixture, weight=mixture.weight * asked[:, None])
        return Steps(torch.tensor(tokens), logits, found, mixture, asked)

    @torch.inference_mode()
    def shares(self, source: str, tokens: Sequence[int]) -> list[float]:
        """The memory's share of each token."""
        steps = self.steps(source, tokens)
        weights = steps.mixture.weight[:, 0].tolist()
        by_model, by_neighbours, _ = (each.tolist() for each in steps.probabilities)
        return [share_of_memory(*one) for one in zip(by_model, by_neighbours, weights, strict=True)]

    def token(self, steps: "Steps", step: int, text: str, origins: "Origins") -> ExplainedToken:
        """One explained token."""
        by_model, by_neighbours, both = (float(each[step]) for each in steps.probabilities)
        weight = float(steps.mixture.weight[step])
        return ExplainedToken(
            token=self.model.token_text(int(steps.tokens[step])),
            text=text,
            model_probability=by_model,
            neighbour_probability=by_neighbours,
            probability=both,
            memory_share=share_of_memory(by_model, by_neighbours, weight),
            weight=weight,
            temperature=float(steps.mixture.temperature[step]),
            neighbours=origins.neighbours(steps.found, steps.mixture.weights[step], step),
            searched=bool(steps.asked[step]),
            reasons={kind: float(effect[step]) for kind, effect in steps.reasons.items()} if steps.asked[step] else {},
        )


@dataclass(frozen=True)
class Steps:
    """The steps of a finished translation: logits, neighbours, and how both were mixed."""

    tokens: torch.Tensor  # [steps]
    logits: torch.Tensor  # [steps, vocabulary]
    found: Neighbours
    mixture: Mixture  # its weight is 0 where no neighbours were asked for
    asked: torch.Tensor  # [steps] where they were

    @cached_property
    def reasons(self) -> Reasons:
        return self.mixture.why() if self.mixture.why else {}

    @cached_property
    def probabilities(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of each step's token: by the model, by the neighbours, by both, each [steps]."""
        wanted = self.tokens[:, None]
        logarithms = torch.log_softmax(self.logits, dim=-1).gather(1, wanted)
        both = self.mixture.at(logarithms, wanted).exp()
        return logarithms.exp()[:, 0], self.mixture.mass_of(wanted)[:, 0], both[:, 0]


def states(
    model: TranslationModel, source_ids: Sequence[int], tokens: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [tokens, vocabulary] and keys [tokens, dimension] at the translation's positions."""
    first = len(model.decoder_prefix) - 1
    with catching_keys(model.network, model.key_site) as catch:
        output = model.network(**model.teacher_forcing([source_ids], [tokens]), use_cache=False)
    return output.logits[0, first:].float().cpu(), catch.keys[0, first:].float().cpu()


def share_of_memory(by_model: float, by_neighbours: float, weight: float) -> float:
    """The neighbours' part of a mixed probability; 0 if the probability is 0."""
    from_memory, from_model = weight * by_neighbours, (1 - weight) * by_model
    return from_memory / (from_memory + from_model) if from_memory else 0.0


class Origins:
    """The sentence pairs of neighbours, cached."""

    def __init__(self, model: TranslationModel, retriever: Retriever) -> None:
        self.model = model
        self.retriever = retriever
        self._ends: dict[tuple[str, int], list[int]] = {}

    def neighbours(self, found: Neighbours, weights: torch.Tensor, step: int) -> list[Neighbour]:
        """The neighbours of one step, nearest first."""
        ranks = np.flatnonzero(found.entries[step] >= 0)
        located = self.retriever.locate(found.entries[step][ranks].tolist())
        return [
            self.neighbour(one, float(weights[rank]), float(found.distances[step, rank]))
            for rank, one in zip(ranks, located, strict=True)
        ]

    def neighbour(self, located: Located, weight: float, distance: float) -> Neighbour:
        pair, position, ends = located.pair, located.position, self.ends(located)
        return Neighbour(
            token=self.model.token_text(located.token),
            text=pair.target[ends[position] : ends[position + 1]],
            weight=weight,
            distance=distance,
            source=pair.source,
            target=pair.target,
            prefix=pair.target[: ends[position]],
            corpus=pair.corpus,
            segment=pair.segment,
            store=located.store,
        )

    def ends(self, located: Located) -> list[int]:
        """Where in the pair's target each token ends."""
        name = (located.store, located.pair.segment)
        if name not in self._ends:
            target = located.pair.target
            self._ends[name] = characters_written(self.model, self.model.encode_targets([target])[0], target)
        return self._ends[name]


def explain_word(translation: str, span: Span, positions: list[int], tokens: Sequence[ExplainedToken]) -> ExplainedWord:
    """A word out of its tokens."""
    start, end = span
    share = sum(token.memory_share for token in tokens) / len(tokens)
    return ExplainedWord(
        translation[start:end],
        start,
        positions,
        share,
        sentences_behind(tokens),
        weight=sum(token.weight for token in tokens) / len(tokens),
        reasons=mean_reasons(tokens),
    )


def mean_reasons(tokens: Sequence[ExplainedToken]) -> dict[str, float]:
    """The mean reasons over the tokens for which the memory was searched."""
    told = [token.reasons for token in tokens if token.reasons]
    return {kind: sum(one[kind] for one in told) / len(told) for kind in told[0]} if told else {}


def sentences_behind(tokens: Sequence[ExplainedToken]) -> list[MemorySentence]:
    """The sentences that contributed to a word's tokens, with their summed support, largest first."""
    pairs: dict[tuple[str, int], list[tuple[Neighbour, float]]] = defaultdict(list)
    for token in tokens:
        for neighbour, part in token.supports():
            pairs[neighbour.store, neighbour.segment].append((neighbour, part / len(tokens)))
    return sorted((memory_sentence(parts) for parts in pairs.values()), key=lambda sentence: -sentence.support)


def memory_sentence(parts: Sequence[tuple[Neighbour, float]]) -> MemorySentence:
    """The joint contribution of several entries of one sentence pair."""
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
    """The target words that contributed most; adjacent ones are joined."""
    least = FAINT * max(part for _, part in parts)
    places = {widened(neighbour.target, *neighbour.span) for neighbour, part in parts if part >= least}
    joined: list[Span] = []
    for start, end in sorted(place for place in places if place[0] < place[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
