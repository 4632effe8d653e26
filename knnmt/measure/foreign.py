"""Measures how a mixing method changes translations of text from other domains."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from knnmt.measure.candidates import LEARNED, Candidate, CandidateScorer
from knnmt.measure.evaluation import metrics

MOST = 200  # sentences that are translated


@dataclass(frozen=True, slots=True)
class ForeignText:
    """Text of another kind than the memory."""

    name: str
    sources: list[str]
    references: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Harm:
    """How one setting changes foreign text."""

    mixing: str  # learned or fixed
    same: float  # share of the sentences that are translated as by the model alone
    agreement: float  # BLEU against the translations of the model alone
    bleu: float | None = None  # against references, where there are any
    base: float | None = None  # the same of the model alone

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def harm_of(scorer: CandidateScorer, candidates: Sequence[Candidate], text: ForeignText) -> list[Harm]:
    """Translate foreign text by the model alone and under each candidate."""
    sources = text.sources[:MOST]
    alone = scorer.translator.base().translate(sources)
    found = []
    for candidate in candidates:
        if not candidate.is_alone:
            mixed = scorer.with_settings(candidate.settings).translate(sources)
            found.append(harm(LEARNED if candidate.is_learned else "fixed", alone, mixed, scorer, text))
    return found


def harm(mixing: str, alone: list[str], mixed: list[str], scorer: CandidateScorer, text: ForeignText) -> Harm:
    same = sum(one == other for one, other in zip(alone, mixed, strict=True)) / len(alone)
    against = metrics(scorer.translator, alone)[0]
    if text.references is None:
        return Harm(mixing, same, scored(against, mixed))
    bleu = metrics(scorer.translator, text.references[: len(alone)])[0]
    return Harm(mixing, same, scored(against, mixed), scored(bleu, mixed), scored(bleu, alone))


def scored(bleu: BLEU, texts: list[str]) -> float:
    return round(float(bleu.corpus_score(texts, None).score), 2)
