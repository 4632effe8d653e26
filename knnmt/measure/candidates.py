"""The candidates of tuning: each is decoded on some sentences, in the same random order for all, and scored by BLEU."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from knnmt.measure.evaluation import Scores, metrics, paired_bootstrap, signature_of
from knnmt.mixing.mixer import Mixer
from knnmt.progress import Advance
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translator

SEED = 0
TUNED = ("k", "temperature", "weight", "certain", "precision")
LEARNED = "learned"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that tuning decodes, and its result."""

    settings: TranslateSettings
    origin: str
    likelihood: float | None = None  # mean logarithm of the probability of a reference token
    bleu: float | None = None
    sentences: int = 0  # that BLEU was computed on
    skipped: float = 0.0  # share of the steps without retrieval

    @property
    def is_learned(self) -> bool:
        return self.settings.mixing == LEARNED

    @property
    def is_alone(self) -> bool:
        """Whether it is the model without the memory."""
        return not self.is_learned and self.settings.fixed.weight == 0

    def to_json(self) -> dict[str, Any]:
        settings = tuned_values(self.settings)
        return settings | {name: value for name, value in asdict(self).items() if name != "settings"}


def tuned_values(settings: TranslateSettings) -> dict[str, Any]:
    """What a tuning writes to the manifest."""
    if settings.mixing == LEARNED:
        return {"mixing": LEARNED, **settings.given("precision")}
    values = {**asdict(settings.fixed), **settings.given("precision")}
    return {name: value for name, value in values.items() if name in TUNED}


class CandidateScorer:
    """Decodes settings on sentences in a fixed random order, and caches translations."""

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        learned: Mixer | None = None,
    ) -> None:
        """`learned` is the mixer for settings that ask for the head."""
        order = np.random.default_rng(SEED).permutation(len(sources))
        self.translator, self.learned = translator, learned
        self.sources = [sources[position] for position in order]
        self.references = [references[position] for position in order]
        self.translations: dict[TranslateSettings, list[str]] = {}
        self.work: dict[TranslateSettings, float] = {}  # processor time, which other programs' load disturbs less

    def scored(self, candidate: Candidate, sentences: int, advance: Advance | None = None) -> Candidate:
        """The candidate with its BLEU on the first sentences."""
        texts = self.translations.setdefault(candidate.settings, [])
        began = time.process_time()
        translator = self.with_settings(candidate.settings)
        new = translator.translations(self.sources[len(texts) : sentences], advance=advance)
        texts += [translation.text for translation in new]
        self.work[candidate.settings] = self.work.get(candidate.settings, 0.0) + time.process_time() - began
        bleu = metrics(self.translator, self.references[:sentences])[0].corpus_score(texts, None).score
        skipped = translator.asked.share_skipped
        return replace(candidate, bleu=round(bleu, 2), sentences=sentences, skipped=skipped)

    def p_value(self, one: Candidate, other: Candidate) -> float:
        """Of the difference in BLEU, on the sentences that both were decoded on."""
        count = min(one.sentences, other.sentences)
        bleu, _ = metrics(self.translator, self.references[:count])
        both = [self.translations[candidate.settings][:count] for candidate in (one, other)]
        return paired_bootstrap(bleu, *(Scores(0.0, 0.0, None, texts) for texts in both))

    def with_settings(self, settings: TranslateSettings) -> Translator:
        mixer = self.learned if settings.mixing == LEARNED else None
        return Translator(self.translator.translation_model, self.translator.retriever, settings, mixer)

    def plain_work(self) -> float:
        """The time that the model alone would need for all sentences."""
        settings, work = next(
            (each, took) for each, took in self.work.items() if each.mixing is None and each.fixed.weight == 0
        )
        return work / len(self.translations[settings]) * len(self.sources)

    def signature(self, settings: TranslateSettings) -> dict[str, str]:
        bleu, _ = metrics(self.translator, self.references)
        bleu.corpus_score(self.references, None)
        return {"bleu": str(bleu.get_signature()), "knnmt": signature_of(self.with_settings(settings))}
