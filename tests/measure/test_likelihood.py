"""The likelihood of every setting against a brute-force computation, and the settings that it proposes."""

from typing import Any

import numpy as np
import pytest
import torch

from knnmt import CorpusError, Translator
from knnmt.engine.keys import catching_keys
from knnmt.measure.likelihood import Grid, Observed, Surface, summed_likelihoods, survey_likelihood
from knnmt.measure.tuning import paper_settings, propose
from knnmt.mixing.mixture import mix, neighbour_weights
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.translate.settings import TranslateSettings

INF = np.inf
PAPER = (64, 10, 0.5)


@pytest.fixture(scope="module")
def surface(translator: Translator, texts: tuple[list[str], list[str]]) -> Surface:
    return survey(translator, *texts)


def survey(translator: Translator, sources: list[str], references: list[str]) -> Surface:
    assert translator.retriever
    model = translator.translation_model
    return survey_likelihood(model, translator.retriever, sources, references, advance=lambda *_: None)


@torch.inference_mode()
def brute_force(
    translator: Translator, sources: list[str], references: list[str], settings: TranslateSettings
) -> float:
    """Sentence by sentence, with a search of its own for k neighbours and the whole mixed distribution."""
    model, scores = translator.translation_model, []
    assert translator.retriever
    for source, target in zip(model.encode_sources(sources), model.encode_targets(references), strict=True):
        with catching_keys(model.network, model.key_site) as catch:
            logits = model.network(**model.teacher_forcing([source], [target])).logits[0]
        found = translator.retriever.search(catch.keys[0].numpy(), settings.k)
        weights = neighbour_weights(torch.from_numpy(found.distances), settings.temperature)
        mixed = mix(logits, torch.from_numpy(found.tokens), weights, settings.weight)
        scores += mixed[torch.arange(len(target)), torch.tensor(target)].tolist()
    return float(np.mean(scores))


@pytest.mark.parametrize(
    ("k", "temperature", "weight"),
    [(1, 1, 0.95), (4, 10, 0.5), (12, 100, 0.8), (24, 3, 0.2), (64, 10, 0.5), (64, 1000, 0.05), (16, 30, 0.0)],
)
def test_the_grid_is_what_brute_force_says(
    translator: Translator,
    surface: Surface,
    texts: tuple[list[str], list[str]],
    k: int,
    temperature: float,
    weight: float,
) -> None:
    settings = TranslateSettings(k=k, temperature=temperature, weight=weight)
    assert surface.at(settings) == pytest.approx(brute_force(translator, *texts, settings), abs=1e-4)


def test_one_token_by_hand() -> None:
    """Model 1/4; of three neighbours at equal distance the first and third are the reference's."""
    observed = Observed(np.log(np.float32([0.25])), np.float32([[5, 5, 5]]), np.array([[True, False, True]]))
    sums = summed_likelihoods(observed, Grid(ks=(1, 2, 3), temperatures=(1.0, 10.0), weights=(0.0, 0.5)))
    expected = [[0.25, 0.625], [0.25, 0.375], [0.25, 0.125 + 1 / 3]]
    np.testing.assert_allclose(np.exp(sums), np.stack([expected, expected], axis=1), rtol=1e-6)


def test_without_neighbours_the_model_stands_alone() -> None:
    observed = Observed(np.log(np.float32([0.25])), np.float32([[INF, INF]]), np.array([[True, True]]))
    sums = summed_likelihoods(observed, Grid(ks=(1, 2), temperatures=(10.0,), weights=(0.0, 0.5, 0.95)))
    np.testing.assert_allclose(np.exp(sums), 0.25)


def test_blocks_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    distances = np.sort(random.gamma(2, 40, (50, 64)), axis=1).astype(np.float32)
    observed = Observed(-random.gamma(1, 2, 50).astype(np.float32), distances, random.random((50, 64)) < 0.3)
    whole = summed_likelihoods(observed, Grid())
    monkeypatch.setattr("knnmt.measure.likelihood.POSITIONS", 7)
    np.testing.assert_allclose(summed_likelihoods(observed, Grid()), whole)


def test_every_token_is_looked_up_once(
    translator: Translator, texts: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    search = LocalRetriever.search

    def count(self: LocalRetriever, queries: Any, k: int) -> Any:
        asked.append((len(queries), k))
        return search(self, queries, k)

    monkeypatch.setattr(LocalRetriever, "search", count)
    surface = survey(translator, *texts)
    tokens = sum(map(len, translator.translation_model.encode_targets(texts[1])))
    assert surface.tokens == sum(queries for queries, _ in asked) == tokens
    assert {k for _, k in asked} == {64}


def test_pairs_that_cannot_be_scored_are_counted(
    translator: Translator, surface: Surface, texts: tuple[list[str], list[str]]
) -> None:
    more = survey(translator, [*texts[0], "", "Hallo.", "Wort " * 700], [*texts[1], "Empty.", " ", "word"])
    assert (more.left_out, more.tokens) == (3, surface.tokens)
    np.testing.assert_allclose(more.likelihoods, surface.likelihoods, atol=1e-5)


@pytest.mark.parametrize(("source", "says"), [(" ", "text on both sides"), ("Wort " * 700, "longer than the model's")])
def test_nothing_to_score(translator: Translator, source: str, says: str) -> None:
    with pytest.raises(CorpusError, match=says):
        survey(translator, [source], ["word"])


@pytest.mark.parametrize(
    ("entries", "ks"), [(3, (1, 2, 3)), (12, (1, 2, 4, 8, 12)), (20, (1, 2, 4, 8, 12, 16, 20)), (9999, Grid().ks)]
)
def test_k_stays_within_the_store(entries: int, ks: tuple[int, ...]) -> None:
    assert Grid.within(entries).ks == ks


def test_likelihood_proposes(surface: Surface) -> None:
    candidates = propose(surface, beam=3)
    origins = {candidate.origin: candidate for candidate in candidates}
    assert len({candidate.settings for candidate in candidates}) == len(candidates)
    assert origins["model alone"].settings.weight == 0
    assert origins["likeliest"].likelihood == surface.likelihoods.max()
    assert paper_settings(64, 3) in {candidate.settings for candidate in candidates}
    assert all(candidate.likelihood == surface.at(candidate.settings) for candidate in candidates)


def peaked(k: int, temperature: float, weight: float) -> Surface:
    """A surface that falls off from one point on all sides."""
    grid = Grid()
    top = (grid.ks.index(k), grid.temperatures.index(temperature), grid.weights.index(weight))
    distance = sum((axis - place) ** 2 for axis, place in zip(np.indices(grid.shape), top, strict=True))
    return Surface(grid, -distance.astype(np.float64), 1, 0)


@pytest.mark.parametrize(
    ("top", "proposed"),
    [
        (
            (64, 30, 0.6),
            [
                (64, 30, 0.6),
                (16, 30, 0.6),
                (64, 30, 0.8),
                (64, 15, 0.6),
                (16, 15, 0.8),
                (4, 15, 0.8),
                PAPER,
            ],
        ),
        (
            (4, 100, 0.85),
            [(4, 100, 0.85), (16, 100, 0.85), (4, 100, 0.95), (4, 50, 0.85), (16, 50, 0.95), (4, 50, 0.95), PAPER],
        ),
        (PAPER, [PAPER, (16, 10, 0.5), (64, 10, 0.7), (64, 5, 0.5), (16, 5, 0.7), (4, 5, 0.7)]),
        ((1, 1, 0.0), [(1, 1, 0.2), (16, 1, 0.2), (4, 1, 0.2), PAPER]),
    ],
)
def test_candidates_differ(top: tuple[int, float, float], proposed: list[tuple[int, float, float]]) -> None:
    settings = [candidate.settings for candidate in propose(peaked(*top), beam=5)]
    assert [(each.k, each.temperature, each.weight) for each in settings] == [(64, 10, 0.0), *proposed]
