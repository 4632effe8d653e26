"""Tuning: the likelihood of every setting against a brute-force computation, the choice, and what is left behind."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run
from rich.console import Console
from tiny_models import tiny_folder

from knnmt import CorpusError, Store, StoreError, Translation, Translator
from knnmt.cli.demo import read_demo
from knnmt.cli.measuring_view import show_tuning
from knnmt.cli.store_view import tuned_line
from knnmt.engine.keys import catching_keys
from knnmt.layout.manifest import read_manifest
from knnmt.measure.foreign import ForeignText
from knnmt.measure.jury import JudgedSetting, Jury
from knnmt.measure.likelihood import Grid, Observed, Surface, summed_likelihoods, survey_likelihood
from knnmt.measure.surface import check_drawable, draw_tuning
from knnmt.measure.tuning import (
    CLEARLY_BETTER,
    Tuning,
    choose,
    paper_settings,
    propose,
    rounds_for,
    settled,
    tune,
    work_of,
    write_tuning,
)
from knnmt.mixing.mixture import mix, neighbour_weights
from knnmt.progress import Advance
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.removing import remove_from_store
from knnmt.store.versions import locked
from knnmt.translate.settings import TranslateSettings

INF = np.inf
LINES = 6
BEAM = 2
PAPER = (64, 10, 0.5)


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str]]:
    pairs = read_demo("test")[:LINES]
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


@pytest.fixture(scope="module")
def translator(store: Store) -> Translator:
    return Translator.from_store(store.path, beam=BEAM)


@pytest.fixture(scope="module")
def surface(translator: Translator, texts: tuple[list[str], list[str]]) -> Surface:
    return survey(translator, *texts)


@pytest.fixture(scope="module")
def tuning(translator: Translator, texts: tuple[list[str], list[str]]) -> Tuning:
    return tune(translator, *texts, files={"source": "dev.de", "target": "dev.en"})


@pytest.fixture
def copied(store: Store, tmp_path: Path) -> Store:
    return Store.open(shutil.copytree(store.path, tmp_path / "store"))


@pytest.fixture
def dev(texts: tuple[list[str], list[str]], tmp_path: Path) -> tuple[object, ...]:
    """The options that name the text."""
    for name, lines in zip(("dev.de", "dev.en"), texts, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return "--source", tmp_path / "dev.de", "--target", tmp_path / "dev.en", "--beam", BEAM


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


class Counted(Jury):
    """A jury to which a larger weight is always the better one."""

    def __init__(self, lines: int) -> None:
        self.sources = [""] * lines
        self.decoded: dict[float, int] = {}

    def judge(self, candidate: JudgedSetting, sentences: int, advance: Advance | None = None) -> JudgedSetting:
        if advance:
            advance(sentences - candidate.sentences, 0)
        self.decoded[candidate.settings.weight] = sentences
        return replace(candidate, bleu=candidate.settings.weight, sentences=sentences)


def test_the_better_ones_are_decoded_on_more_sentences() -> None:
    candidates = [JudgedSetting(TranslateSettings(weight=weight), "") for weight in (0.0, 0.2, 0.9, 0.5, 0.7)]
    jury = Counted(2000)
    assert [candidate.bleu for candidate in choose(jury, candidates)] == [0.9, 0.7, 0.5, 0.2, 0.0]
    assert jury.decoded == {0.0: 200, 0.2: 200, 0.5: 400, 0.7: 800, 0.9: 800}
    assert work_of(rounds_for(2000), 5) == 2 * 200 + 400 + 2 * 800
    assert work_of(rounds_for(2000), 6, heads=1) == 2 * 200 + 400 + 3 * 800


def learned(bleu: float) -> JudgedSetting:
    return JudgedSetting(TranslateSettings(mixing="learned"), "learned", bleu=bleu)


def test_the_head_is_decoded_in_every_round() -> None:
    """However it does in the first rounds: it is compared with the best fixed values on the same sentences."""
    candidates = [
        learned(0.0),
        *(JudgedSetting(TranslateSettings(weight=weight), "") for weight in (0.9, 0.8, 0.7, 0.6)),
    ]
    found = choose(Counted(2000), candidates)
    assert {candidate.origin: candidate.sentences for candidate in found[:2]} == {"learned": 800, "": 800}


@pytest.mark.parametrize(
    ("head", "fixed", "chosen"),
    [(30.0, 30.0, "learned"), (30.0, 30.0 + CLEARLY_BETTER, "learned"), (30.0, 30.4, "fixed"), (31.0, 30.0, "learned")],
)
def test_fixed_values_must_be_clearly_better_than_the_head(head: float, fixed: float, chosen: str) -> None:
    """By as little as chance they are a trap on text that the memory is not about."""
    other = JudgedSetting(TranslateSettings(weight=0.5), "fixed", bleu=fixed)
    last = sorted([learned(head), other], key=lambda one: -(one.bleu or 0))
    assert settled(last)[0].origin == chosen
    assert set(settled(last)) == set(last)


@pytest.mark.parametrize(("lines", "sentences"), [(6, [6, 6, 6]), (500, [100, 100, 200]), (2000, [200, 400, 800])])
def test_short_texts_are_decoded_whole(lines: int, sentences: list[int]) -> None:
    assert [count for count, _ in rounds_for(lines)] == sentences


def test_bleu_decides(tuning: Tuning, translator: Translator, texts: tuple[list[str], list[str]]) -> None:
    best = max(candidate.bleu or 0 for candidate in tuning.candidates)
    assert (tuning.chosen.bleu or 0) >= best - CLEARLY_BETTER
    assert tuning.chosen is tuning.candidates[0]
    assert tuning.learned
    again = Jury(translator, *texts, tuning.learned.mixer).judge(tuning.chosen, LINES)
    assert again == tuning.chosen
    alone = next(candidate for candidate in tuning.candidates if candidate.is_alone)
    assert (tuning.chosen.bleu or 0) > (alone.bleu or 0)
    assert tuning.plain_decodes > 0


def test_a_memory_that_does_not_help_is_called_so(tuning: Tuning, capsys: pytest.CaptureFixture[str]) -> None:
    alone = next(candidate for candidate in tuning.candidates if candidate.is_alone)
    show_tuning(replace(tuning, chosen=alone), Console(width=100))
    assert "the memory did not help on this text" in capsys.readouterr().out
    show_tuning(tuning, Console(width=100))
    assert "did not help" not in capsys.readouterr().out


def test_translations_are_made_once(
    translator: Translator, texts: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    jury, made = Jury(translator, *texts), list[str]()

    def echo(_: Translator, sources: list[str], **__: object) -> list[Translation]:
        made.extend(sources)
        return [Translation(source, source, ()) for source in sources]

    monkeypatch.setattr(Translator, "translations", echo)
    candidate = JudgedSetting(TranslateSettings(k=8), "")
    for sentences in (2, 4, 4, 6):
        candidate = jury.judge(candidate, sentences)
    assert made == jury.sources
    assert sorted(made) == sorted(texts[0])


def test_a_model_alone_cannot_be_tuned(translator: Translator, texts: tuple[list[str], list[str]]) -> None:
    with pytest.raises(StoreError, match="nothing to tune"):
        tune(translator.base(), *texts)


def fixed_of(tuning: Tuning) -> Tuning:
    """As if the best fixed values had been chosen."""
    return replace(tuning, chosen=next(one for one in tuning.candidates if not (one.is_learned or one.is_alone)))


def test_fixed_values_that_were_chosen_are_the_new_default(copied: Store, tuning: Tuning) -> None:
    tuning = fixed_of(tuning)
    write_tuning(copied, tuning)
    written = read_manifest(copied.path)
    chosen = tuning.chosen.settings
    opened = Translator.from_store(copied.path)
    settings = opened.settings
    for name in ("k", "temperature", "weight", "certain"):
        assert getattr(opened.mixer, name) == getattr(chosen.fixed, name)
    assert settings.beam == TranslateSettings().beam  # the beam that it was tuned with is no default
    assert Translator.from_store(copied.path, k=3).settings.k == 3
    assert written.change == "tuned"
    changes = {name: getattr(written, name) for name in ("tuned", "change", "changed")}
    assert written == replace(copied.manifest, **changes, version=copied.manifest.version + 1)
    assert written.tuned
    how = written.tuned["how"]
    assert (how["source"], how["target"], how["lines"], how["bleu"]) == ("dev.de", "dev.en", LINES, tuning.chosen.bleu)
    assert len(how["candidates"]) == len(tuning.candidates)


def test_a_head_that_was_chosen_is_the_new_default(copied: Store, tuning: Tuning) -> None:
    head = next(one for one in tuning.candidates if one.is_learned)
    write_tuning(copied, replace(tuning, chosen=head))
    opened = Translator.from_store(copied.path)
    assert tuning.learned
    assert opened.mixer
    assert opened.mixer.signature == tuning.learned.mixer.signature
    written = read_manifest(copied.path)
    assert written.mixing is None  # the built-in head serves so small a store
    assert written.tuned
    assert (written.tuned["mixing"], "k" in written.tuned) == ("learned", False)
    assert tuned_line(written.tuned).startswith("learned: BLEU")


def test_how_much_foreign_text_changes(translator: Translator, texts: tuple[list[str], list[str]]) -> None:
    """Against the model's own translations, and with references in BLEU."""
    tuned = tune(translator, *texts, foreign=ForeignText("news.de", list(texts[0][:2]), list(texts[1][:2])))
    assert [harm.mixing for harm in tuned.harm] == ["learned", "fixed"]
    alone = translator.base().translate(texts[0][:2])
    mixed = Translator.with_memory(translator.translation_model, translator.retriever, TranslateSettings(beam=BEAM))  # type: ignore[arg-type]
    assert 0 <= tuned.harm[0].same <= 1
    assert tuned.harm[1].agreement < 100
    assert mixed.translate(texts[0][:2]) != alone
    assert tuned.harm[0].base == tuned.harm[1].base is not None
    assert tuned.to_json()["how"]["foreign"][0]["mixing"] == "learned"


def test_a_store_that_is_being_changed_still_shows_the_choice(
    run: Run, copied: Store, dev: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour of work must not end in one line of error alone."""
    monkeypatch.setattr("knnmt.store.versions.PATIENCE", 0.0)
    with locked(copied.path):
        code, out, err = run("tune", copied.path, *dev)
    assert (code, "being changed by another process" in err) == (2, True)
    assert "chosen: " in out


def test_a_store_that_changed_meanwhile_keeps_its_change(copied: Store, tuning: Tuning) -> None:
    """Tuning takes long; what was added or removed during it must not be lost, and neither must the result."""
    remove_from_store(copied.path, segments=[0])
    write_tuning(copied, tuning)
    after = Store.open(copied.path)
    assert list(after.removed) == [0]
    assert after.manifest.tuned


@pytest.mark.parametrize(
    ("tuned", "line"),
    [
        (None, "no"),
        ({"k": 8, "temperature": 50.0, "weight": 0.25}, "k 8, temperature 50, weight 0.25"),
        ({"k": 8, "temperature": 50.0, "weight": 0.25, "certain": 1.0}, "k 8, temperature 50, weight 0.25"),
        ({"k": 8, "temperature": 5, "weight": 0.2, "certain": 0.8}, "k 8, temperature 5, weight 0.2, certain 0.8"),
        (
            {
                "k": 8,
                "temperature": 5,
                "weight": 0.9,
                "how": {"bleu": 31.2, "sentences": 1000, "date": "2026-11-16T03"},
            },
            "k 8, temperature 5, weight 0.9: BLEU 31.20 on 1,000 sentences, 2026-11-16",
        ),
    ],
)
def test_info_says_how_a_store_was_tuned(tuned: dict[str, Any] | None, line: str) -> None:
    assert tuned_line(tuned) == line


def test_the_command(run: Run, copied: Store, dev: tuple[object, ...]) -> None:
    """Twice: the second run overwrites what the first one wrote."""
    code, out, err = run("tune", copied.path, *dev, "--limit", 3)
    first = read_manifest(copied.path)
    assert (code, err.count("\n")) == (0, 1)
    assert "3 sentences are few to tune on" in err
    assert first.tuned
    assert "model alone" in out
    assert "chosen: " in out
    assert "learned" in out
    code, out, _ = run("tune", copied.path, *dev, "--limit", 4, "--json")
    second = read_manifest(copied.path)
    assert (code, json.loads(out)) == (0, second.tuned)
    assert second.tuned
    assert (first.version, second.version) == (copied.manifest.version + 1, copied.manifest.version + 2)
    assert (first.tuned["how"]["lines"], second.tuned["how"]["lines"]) == (3, 4)
    chosen = f"k {second.tuned['k']}, temperature" if "k" in second.tuned else "learned: BLEU"
    assert chosen in run("info", copied.path)[1]
    assert run("verify", copied.path)[0] == 0


# Wrong calls: arguments (FOLDER holds the files below), and what the one line must say.
WRONG = {
    "no text": ("--source FOLDER/gone --target FOLDER/two.en", "gone: no such file"),
    "empty text": ("--source FOLDER/empty --target FOLDER/empty", "empty: empty"),
    "blank text": ("--source FOLDER/blank --target FOLDER/blank", "no line has text on both sides"),
    "uneven text": ("--source FOLDER/three.de --target FOLDER/two.en", "lines must be aligned"),
    "another model": ("--source FOLDER/two.de --target FOLDER/two.en --model MARIAN", "made with another model"),
    "limit": ("--source FOLDER/two.de --target FOLDER/two.en --limit 0", "--limit 0"),
    "beam": ("--source FOLDER/two.de --target FOLDER/two.en --beam 0", "--beam 0"),
    "nprobe": ("--source FOLDER/two.de --target FOLDER/two.en --nprobe 0", "--nprobe 0"),
    "target": ("--source FOLDER/two.de", "--target"),
    "plot's form": ("--source FOLDER/two.de --target FOLDER/two.en --plot FOLDER/a.gif", "a.gif: must end in .png"),
    "plot's folder": ("--source FOLDER/two.de --target FOLDER/two.en --plot FOLDER/no/a.png", "there is no folder"),
}


@pytest.mark.parametrize(("call", "says"), WRONG.values(), ids=WRONG)
def test_wrong_calls(run: Run, copied: Store, tmp_path: Path, call: str, says: str) -> None:
    for name, text in {
        "empty": "",
        "blank": "\n\n",
        "two.de": "a\nb\n",
        "two.en": "a\nb\n",
        "three.de": "a\n\n\n",
    }.items():
        (tmp_path / name).write_text(text)
    before = (copied.path / "manifest.json").read_bytes()
    arguments = call.replace("FOLDER", str(tmp_path)).replace("MARIAN", str(tiny_folder("marian"))).split()
    code, out, err = run("tune", copied.path, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert (copied.path / "manifest.json").read_bytes() == before


def test_an_interrupted_run_leaves_nothing(
    run: Run, copied: Store, dev: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Jury, "judge", interrupt)
    before = sorted(file for file in tmp_path.rglob("*"))
    manifest = (copied.path / "manifest.json").read_bytes()
    assert run("tune", copied.path, *dev, "--limit", 2) == (130, "", "knnmt: stopped\n")
    assert sorted(file for file in tmp_path.rglob("*")) == before
    assert (copied.path / "manifest.json").read_bytes() == manifest


def test_a_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch, run: Run, copied: Store, tmp_path: Path) -> None:
    monkeypatch.setattr("knnmt.measure.surface.find_spec", lambda _: None)
    code, _, err = run("tune", copied.path, "--source", "x", "--target", "x", "--plot", tmp_path / "a.png")
    assert (code, err) == (2, "knnmt: --plot needs matplotlib: pip install 'knnmt[plot]'\n")


@pytest.mark.parametrize(("name", "opening"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_plots(tuning: Tuning, tmp_path: Path, name: str, opening: bytes) -> None:
    pytest.importorskip("matplotlib")
    check_drawable(tmp_path / name)
    draw_tuning(tuning, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(opening)
    assert [file.name for file in tmp_path.iterdir()] == [name]
