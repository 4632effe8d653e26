"""The best k, temperature and weight for a datastore, found on text with known translations.

Likelihood proposes, BLEU decides. Likelihood is known for every setting after a single pass, but it likes to hedge: it
may prefer higher temperatures, lower weights and more neighbours than those that translate best. So the likeliest
setting, likely ones that lean the other way, and the paper's own are decoded, on more and more sentences, the better
ones only. At last the chosen setting is tried without retrieval where the model is certain by itself, and in bfloat16.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from knnmt.engine.precision import BFLOAT16, objection_to_bfloat16
from knnmt.errors import StoreError
from knnmt.measure.evaluation import metrics, signature_of
from knnmt.measure.likelihood import Grid, Place, Surface, survey_likelihood
from knnmt.mixing.fixed_values import PAPER_TEMPERATURE, PAPER_WEIGHT
from knnmt.progress import Advance, progress_bar
from knnmt.store.datastore import Store
from knnmt.store.versions import changing, commit
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translator

SEED = 0
TUNED = ("k", "temperature", "weight", "certain", "precision")
FEWEST_SENTENCES = 100  # BLEU on fewer says little
FEWER_NEIGHBOURS = (16, 4)
MORE_WEIGHT, LOWER_TEMPERATURE = 4, 2  # steps of the grid from the likeliest
ROUNDS = ((0.1, 4), (0.2, 3), (0.4, 1))  # share of the sentences that is decoded, and how many candidates stay
CERTAINTIES = (0.9, 0.8, 0.7, 0.6, 0.5)  # of the model, from which on retrieval may be left out
MOST_LOST = 0.1  # BLEU
FEWEST_TO_SKIP_BY = 200  # sentences: BLEU on fewer is no judge of so little
FEWEST_SKIPPED = 0.1  # of all steps: fewer are not worth a difference from the plain method


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that is decoded, and its result."""

    settings: TranslateSettings
    origin: str
    likelihood: float | None = None  # mean logarithm of the probability of a reference token
    bleu: float | None = None
    sentences: int = 0  # that BLEU was computed on
    skipped: float = 0.0  # share of the steps without retrieval, because the model was certain

    def to_json(self) -> dict[str, Any]:
        settings = tuned_values(self.settings)
        return settings | {name: value for name, value in asdict(self).items() if name != "settings"}


@dataclass(frozen=True, slots=True)
class Tuning:
    """The choice and how it was made."""

    chosen: Candidate
    candidates: list[Candidate]  # best first
    surface: Surface
    lines: int
    seconds: float
    plain_decodes: float  # the run's cost, in decodes of the whole text by the model alone
    signature: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> dict[str, Any]:
        """The manifest's `tuned`: the settings, and below `how` everything else."""
        how = {
            **self.files,
            "lines": self.lines,
            "date": self.date,
            "bleu": self.chosen.bleu,
            "sentences": self.chosen.sentences,
            "skipped": round(self.chosen.skipped, 3),
            "seed": SEED,
            "reference_tokens": self.surface.tokens,
            "left_out": self.surface.left_out,
            "seconds": round(self.seconds, 1),
            "plain_decodes": round(self.plain_decodes, 2),
            "signature": self.signature,
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }
        return tuned_values(self.chosen.settings) | {"how": how}


def tune(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    files: dict[str, str] | None = None,
    show_progress: bool = False,
) -> Tuning:
    """Find the best settings for the translator's store on this text. Nothing is written."""
    if translator.retriever is None:
        raise StoreError("--store is missing: there is nothing to tune without a datastore")
    began, began_work = time.perf_counter(), time.process_time()
    with progress_bar("scoring", len(sources), show=show_progress) as advance:
        model = translator.translation_model
        surface = survey_likelihood(model, translator.retriever, sources, references, advance=advance)
    jury = Jury(translator, sources, references)
    candidates = choose(jury, propose(surface, translator.settings.beam), show_progress=show_progress)
    candidates = with_skipping(jury, candidates, show_progress=show_progress)
    candidates = with_less_precision(jury, candidates, show_progress=show_progress)
    return Tuning(
        chosen=candidates[0],
        candidates=candidates,
        surface=surface,
        lines=len(sources),
        seconds=time.perf_counter() - began,
        plain_decodes=(time.process_time() - began_work) / jury.plain_work(),
        signature=jury.signature(candidates[0].settings),
        files=files or {},
    )


def propose(surface: Surface, beam: int) -> list[Candidate]:
    """The settings to decode: likely ones, the paper's, and the model alone."""
    grid, paper = surface.grid, paper_settings(surface.grid.ks[-1], beam)
    proposed: dict[TranslateSettings, str] = {}
    for origin, place in likely_places(surface).items():
        proposed.setdefault(grid.settings_at(place, beam), origin)
    proposed.setdefault(paper, "paper")
    retrieving = {settings: origin for settings, origin in proposed.items() if settings.fixed.weight > 0}
    alone = {replace(paper, weight=0.0): "model alone"}
    return [Candidate(settings, origin, surface.at(settings)) for settings, origin in (alone | retrieving).items()]


def paper_settings(k: int, beam: int) -> TranslateSettings:
    """The paper's values, with as many neighbours as the store can give."""
    return TranslateSettings(k=k, temperature=PAPER_TEMPERATURE, weight=PAPER_WEIGHT, beam=beam)


def likely_places(surface: Surface) -> dict[str, Place]:
    """The likeliest of all, the likeliest with fewer neighbours, more weight, or lower temperature, and bolder ones."""
    grid, best = surface.grid, surface.best()
    fewer, few = (
        surface.best(k=max(place for place, k in enumerate(grid.ks) if k <= most)) for most in FEWER_NEIGHBOURS
    )
    return {
        "likeliest": best,
        "fewer neighbours": fewer,
        "few neighbours": few,
        "more weight": surface.best(weight=min(best[2] + MORE_WEIGHT, len(grid.weights) - 1)),
        "lower temperature": surface.best(temperature=max(best[1] - LOWER_TEMPERATURE, 0)),
        "fewer, bolder": bolder(fewer, grid),
        "few, bolder": bolder(few, grid),
    }


def bolder(place: Place, grid: Grid) -> Place:
    """The same k with more weight and a lower temperature."""
    k, temperature, weight = place
    return k, max(temperature - LOWER_TEMPERATURE, 0), min(weight + MORE_WEIGHT, len(grid.weights) - 1)


class Jury:
    """Decodes settings on sentences in a fixed random order, and caches translations."""

    def __init__(self, translator: Translator, sources: Sequence[str], references: Sequence[str]) -> None:
        order = np.random.default_rng(SEED).permutation(len(sources))
        self.translator = translator
        self.sources = [sources[position] for position in order]
        self.references = [references[position] for position in order]
        self.translations: dict[TranslateSettings, list[str]] = {}
        self.work: dict[TranslateSettings, float] = {}  # processor time, which other programs' load disturbs less

    def judge(self, candidate: Candidate, sentences: int, advance: Advance | None = None) -> Candidate:
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

    def with_settings(self, settings: TranslateSettings) -> Translator:
        return Translator(self.translator.translation_model, self.translator.retriever, settings)

    def plain_work(self) -> float:
        """The time that the model alone would need for all sentences."""
        settings, work = next((each, took) for each, took in self.work.items() if each.fixed.weight == 0)
        return work / len(self.translations[settings]) * len(self.sources)

    def signature(self, settings: TranslateSettings) -> dict[str, str]:
        bleu, _ = metrics(self.translator, self.references)
        bleu.corpus_score(self.references, None)
        return {"bleu": str(bleu.get_signature()), "knnmt": signature_of(self.with_settings(settings))}


def choose(jury: Jury, candidates: Sequence[Candidate], *, show_progress: bool = False) -> list[Candidate]:
    """All candidates, best first: each round decodes more sentences of fewer candidates."""
    staying, left = list(candidates), list[Candidate]()
    rounds = rounds_for(len(jury.sources))
    with progress_bar("decoding", work_of(rounds, len(candidates)), show=show_progress) as advance:
        for sentences, places in rounds:
            judged = [jury.judge(candidate, sentences, advance) for candidate in staying]
            judged.sort(key=lambda candidate: -(candidate.bleu or 0.0))
            staying, left = judged[:places], judged[places:] + left
    return staying + left


def with_skipping(jury: Jury, candidates: Sequence[Candidate], *, show_progress: bool = False) -> list[Candidate]:
    """All candidates, with those that skip retrieval, best first."""
    best = chosen = candidates[0]
    tried: list[Candidate] = []
    if chosen.settings.fixed.weight > 0 and chosen.sentences >= FEWEST_TO_SKIP_BY:
        with progress_bar("skipping", len(CERTAINTIES) * chosen.sentences, show=show_progress) as advance:
            for certain in CERTAINTIES:
                skipping = Candidate(replace(chosen.settings, certain=certain), "skipping")
                tried.append(skipping := jury.judge(skipping, chosen.sentences, advance))
                if (skipping.bleu or 0.0) < (chosen.bleu or 0.0) - MOST_LOST:
                    break
                best = skipping if skipping.skipped >= FEWEST_SKIPPED else best
    return [best, *(candidate for candidate in (*candidates, *tried) if candidate is not best)]


def with_less_precision(jury: Jury, candidates: Sequence[Candidate], *, show_progress: bool = False) -> list[Candidate]:
    """All candidates and the best one in bfloat16, best first: it is faster, and chosen where BLEU is the same."""
    best = candidates[0]
    if best.sentences < FEWEST_TO_SKIP_BY or best.settings.precision or objection_to_bfloat16():
        return list(candidates)
    with progress_bar("bfloat16", best.sentences, show=show_progress) as advance:
        less = Candidate(replace(best.settings, precision=BFLOAT16), BFLOAT16)
        less = jury.judge(less, best.sentences, advance)
    same = (less.bleu or 0.0) >= (best.bleu or 0.0) - MOST_LOST
    return [less, *candidates] if same else [best, less, *candidates[1:]]


def tuned_values(settings: TranslateSettings) -> dict[str, Any]:
    """What a tuning leaves in the manifest."""
    values = {**asdict(settings.fixed), **settings.given("precision")}
    return {name: value for name, value in values.items() if name in TUNED}


def rounds_for(lines: int) -> list[tuple[int, int]]:
    """Sentences to decode, and candidates to keep, in each round."""
    fewest = min(lines, FEWEST_SENTENCES)
    return [(max(fewest, round(lines * share)), places) for share, places in ROUNDS]


def work_of(rounds: Iterable[tuple[int, int]], candidates: int) -> int:
    """Sentences that all rounds decode together."""
    total = before = 0
    for sentences, places in rounds:
        total += (sentences - before) * candidates
        before, candidates = sentences, min(places, candidates)
    return total


def write_tuning(store: Store, tuning: Tuning) -> None:
    """Write the choice to the manifest as a new version."""
    with changing(store.path) as now:
        commit(now, "tuned", tuned=tuning.to_json())
