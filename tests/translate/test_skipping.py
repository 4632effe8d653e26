"""How much retrieval tuning leaves out: as much as costs hardly any BLEU, and none where that cannot be told."""

from dataclasses import replace

import pytest

from knnmt.measure.tuning import Candidate, Jury, with_skipping
from knnmt.progress import Advance
from knnmt.translate.settings import TranslateSettings


class Skipping(Jury):
    """A jury that has heard it all: BLEU and the share skipped by certainty."""

    def __init__(self, known: dict[float, tuple[float, float]]) -> None:
        self.known = known
        self.asked: list[float] = []

    def judge(self, candidate: Candidate, sentences: int, advance: Advance | None = None) -> Candidate:
        if advance:
            advance(sentences, 0)
        self.asked.append(candidate.settings.fixed.certain)
        bleu, skipped = self.known[candidate.settings.fixed.certain]
        return replace(candidate, bleu=bleu, skipped=skipped, sentences=sentences)


@pytest.mark.parametrize(
    ("known", "asked", "chosen"),
    [
        ([(29.9, 0.2), (30.1, 0.25), (29.95, 0.3), (29.9, 0.4), (30.2, 0.5)], [0.9, 0.8, 0.7, 0.6, 0.5], 0.5),
        ([(29.9, 0.2), (29.9, 0.25), (29.8, 0.3)], [0.9, 0.8, 0.7], 0.8),
        ([(29.9, 0.2), (29.8, 0.25)], [0.9, 0.8], 0.9),
        ([(29.8, 0.2)], [0.9], 1.0),
        ([(30.0, 0.05), (30.0, 0.1), (29.0, 0.2)], [0.9, 0.8, 0.7], 0.8),
        ([(30.0, 0.05), (30.0, 0.09), (29.0, 0.2)], [0.9, 0.8, 0.7], 1.0),
    ],
    ids=["all", "two steps", "one step", "none", "first too few", "too few"],
)
def test_the_most_that_may_be_skipped(known: list[tuple[float, float]], asked: list[float], chosen: float) -> None:
    plain = Candidate(TranslateSettings(weight=0.5), "paper", bleu=30.0, sentences=200)
    other = Candidate(TranslateSettings(weight=0.2), "likeliest", bleu=29.0, sentences=200)
    jury = Skipping(dict(zip(asked, known, strict=True)))
    found = with_skipping(jury, [plain, other])
    assert (jury.asked, found[0].settings.fixed.certain) == (asked, chosen)
    assert (len(found), set(found[1:]) >= {other}) == (2 + len(asked), True)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("weight", "sentences"), [(0.0, 200), (0.5, 199)], ids=["model alone", "few sentences"])
def test_nothing_to_skip(weight: float, sentences: int) -> None:
    chosen = Candidate(TranslateSettings(weight=weight), "", bleu=30.0, sentences=sentences)
    assert with_skipping(Skipping({}), [chosen]) == [chosen]
