"""Finds the best mixing for a datastore on text with reference translations.

Likelihood proposes candidates, and BLEU decides. One pass gives the likelihood of every fixed setting, but likelihood
prefers cautious settings: higher temperatures, lower weights and more neighbours than translate best. The candidates
are therefore the likeliest setting, likely settings that are less cautious, the paper's, and a head that was refitted
with a part of the text. They are decoded on more and more sentences, and only the better ones continue. The head is
never judged on sentences that it was fitted on.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from knnmt.engine.precision import BFLOAT16, objection_to_bfloat16
from knnmt.errors import StoreError
from knnmt.measure.candidates import LEARNED, SEED, Candidate, CandidateScorer, tuned_values
from knnmt.measure.fitting import FittedHead, learn_with, write_files
from knnmt.measure.foreign import ForeignText, Harm, harm_of
from knnmt.measure.likelihood import Grid, Place, Surface, survey_likelihood
from knnmt.mixing.fixed_values import PAPER_TEMPERATURE, PAPER_WEIGHT
from knnmt.progress import progress_bar
from knnmt.store.datastore import Store
from knnmt.store.versions import changing, commit
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translator

FEWER_NEIGHBOURS = (16, 4)
MORE_WEIGHT, LOWER_TEMPERATURE = 4, 2  # steps of the grid from the likeliest
# The share of the sentences that is decoded, the fewest of them, and how many fixed candidates stay. On fifty sentences
# BLEU tells good settings from bad ones, no more.
ROUNDS = ((0.1, 50, 3), (0.2, 100, 2), (0.4, 100, 1))
MOST_LOST = 0.1  # BLEU
FEWEST_TO_COMPARE = 200  # sentences: BLEU on fewer is no judge of so little
CLEARLY_BETTER = 0.3  # BLEU that fixed values must gain over the head, which leaves foreign text alone,
SIGNIFICANT = (
    0.05  # with such a p-value: they are the best of many on these sentences, and chance favours the best of many
)
TEXT_FOR_FITTING = 400  # sentences at most


@dataclass(frozen=True, slots=True)
class Tuning:
    """The choice and how it was made."""

    chosen: Candidate
    candidates: list[Candidate]  # the chosen one first, then best first
    surface: Surface
    lines: int
    seconds: float
    plain_decodes: float  # the run's cost, in decodes of the whole text by the model alone
    signature: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    learned: FittedHead | None = None  # the head that was refitted
    harm: list[Harm] = field(default_factory=list)  # to foreign text

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
            "foreign": [harm.to_json() for harm in self.harm],
        }
        return tuned_values(self.chosen.settings) | {"how": how}


def tune(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    files: dict[str, str] | None = None,
    foreign: ForeignText | None = None,
    show_progress: bool = False,
) -> Tuning:
    """Find the best mixing for the translator's store on this text. Nothing is written; see `write_tuning`."""
    if translator.retriever is None:
        raise StoreError("--store is missing: there is nothing to tune without a datastore")
    began, began_work = time.perf_counter(), time.process_time()
    with progress_bar("scoring", len(sources), show=show_progress) as advance:
        model = translator.translation_model
        surface = survey_likelihood(model, translator.retriever, sources, references, advance=advance)
    scorer = CandidateScorer(translator, sources, references)
    learned = learn(scorer, show_progress=show_progress)
    candidates = propose(surface, translator.settings.beam)
    if learned:
        scorer.learned = learned.mixer
        candidates.append(Candidate(TranslateSettings(mixing=LEARNED, beam=translator.settings.beam), LEARNED))
    candidates = choose(scorer, candidates, show_progress=show_progress)
    candidates = with_less_precision(scorer, candidates, show_progress=show_progress)
    work = time.process_time() - began_work
    return Tuning(
        chosen=candidates[0],
        candidates=candidates,
        surface=surface,
        lines=len(sources),
        seconds=time.perf_counter() - began,
        plain_decodes=work / scorer.plain_work(),
        signature=scorer.signature(candidates[0].settings),
        files=files or {},
        learned=learned,
        harm=harm_of(scorer, to_compare(candidates), foreign) if foreign else [],
    )


def learn(scorer: CandidateScorer, *, show_progress: bool = False) -> FittedHead | None:
    """The store's head, fitted again with the sentences that are not used to compare candidates."""
    compared = rounds_for(len(scorer.sources))[-1][0]
    free = slice(compared, compared + TEXT_FOR_FITTING)
    with progress_bar("fitting", 1, show=show_progress) as advance:
        learned = learn_with(scorer.translator, scorer.sources[free], scorer.references[free])
        advance(1, 0)
    return learned


def to_compare(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best candidate of each kind."""
    learned = [one for one in candidates if one.is_learned][:1]
    fixed = [one for one in candidates if not one.is_learned and not one.is_alone][:1]
    return [*learned, *fixed]


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
    """The likeliest, the likeliest with fewer neighbours, more weight, or lower temperature, and bolder ones."""
    grid, best = surface.grid, surface.best()
    fewer, few = (
        surface.best(k=max(place for place, k in enumerate(grid.ks) if k <= most)) for most in FEWER_NEIGHBOURS
    )
    return {
        "likeliest": best,
        "fewer neighbours": fewer,
        "more weight": surface.best(weight=min(best[2] + MORE_WEIGHT, len(grid.weights) - 1)),
        "lower temperature": surface.best(temperature=max(best[1] - LOWER_TEMPERATURE, 0)),
        "fewer, bolder": bolder(fewer, grid),
        "few, bolder": bolder(few, grid),
    }


def bolder(place: Place, grid: Grid) -> Place:
    """The same k with more weight and a lower temperature."""
    k, temperature, weight = place
    return k, max(temperature - LOWER_TEMPERATURE, 0), min(weight + MORE_WEIGHT, len(grid.weights) - 1)


def choose(scorer: CandidateScorer, candidates: Sequence[Candidate], *, show_progress: bool = False) -> list[Candidate]:
    """All candidates, the chosen one first: each round decodes more sentences of fewer candidates; the head stays."""
    staying, left = list(candidates), list[Candidate]()
    rounds = rounds_for(len(scorer.sources))
    heads = sum(candidate.is_learned for candidate in candidates)
    with progress_bar("decoding", work_of(rounds, len(candidates), heads), show=show_progress) as advance:
        for sentences, places in rounds:
            scored = by_bleu(scorer.scored(candidate, sentences, advance) for candidate in staying)
            fixed = [candidate for candidate in scored if not candidate.is_learned]
            learned = [candidate for candidate in scored if candidate.is_learned]
            staying, left = by_bleu([*fixed[:places], *learned]), fixed[places:] + left
    return settled(staying, scorer.p_value) + left


def by_bleu(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: -(candidate.bleu or 0.0))


def settled(last: Sequence[Candidate], p_value: Callable[[Candidate, Candidate], float]) -> list[Candidate]:
    """The last candidates, the chosen one first: the head, unless fixed values are clearly better."""
    best = last[0]
    learned = next((one for one in last if one.is_learned), best)
    is_better = (best.bleu or 0.0) > (learned.bleu or 0.0) + CLEARLY_BETTER and p_value(best, learned) < SIGNIFICANT
    chosen = best if is_better else learned
    return [chosen, *(one for one in last if one is not chosen)]


def with_less_precision(
    scorer: CandidateScorer, candidates: Sequence[Candidate], *, show_progress: bool = False
) -> list[Candidate]:
    """All candidates and the best one in bfloat16, best first: it is faster, and chosen where BLEU is the same."""
    best = candidates[0]
    if best.sentences < FEWEST_TO_COMPARE or best.settings.precision or objection_to_bfloat16():
        return list(candidates)
    with progress_bar("bfloat16", best.sentences, show=show_progress) as advance:
        less = Candidate(replace(best.settings, precision=BFLOAT16), BFLOAT16)
        less = scorer.scored(less, best.sentences, advance)
    same = (less.bleu or 0.0) >= (best.bleu or 0.0) - MOST_LOST
    return [less, *candidates] if same else [best, less, *candidates[1:]]


def rounds_for(lines: int) -> list[tuple[int, int]]:
    """Sentences to decode, and candidates to keep, in each round."""
    return [(max(min(lines, fewest), round(lines * share)), places) for share, fewest, places in ROUNDS]


def work_of(rounds: Iterable[tuple[int, int]], candidates: int, heads: int = 0) -> int:
    """Sentences that all rounds decode together; heads stay in all of them."""
    total = before = 0
    for sentences, places in rounds:
        total += (sentences - before) * candidates
        before, candidates = sentences, min(places, candidates - heads) + heads
    return total


def write_tuning(store: Store, tuning: Tuning) -> None:
    """Write the result of `tune` to the store as a new version. If a head was chosen, it becomes the store's own."""
    with changing(store.path) as now:
        fields: dict[str, Any] = {"tuned": tuning.to_json()}
        if tuning.chosen.is_learned and tuning.learned and tuning.learned.record:
            files = write_files(now, tuning.learned.contents)
            fields["mixing"] = replace(tuning.learned.record, files=files)
        commit(now, "tuned", **fields)
