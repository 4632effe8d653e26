"""Tuning: the choice by BLEU, and what is left behind."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from rich.console import Console
from tiny_models import tiny_folder

from knnmt import Store, StoreError, Translation, Translator
from knnmt.cli.measuring_view import show_tuning
from knnmt.cli.store_view import tuned_line
from knnmt.layout.manifest import read_manifest
from knnmt.measure.candidates import Candidate, CandidateScorer
from knnmt.measure.foreign import ForeignText
from knnmt.measure.tuning import (
    CLEARLY_BETTER,
    Tuning,
    choose,
    rounds_for,
    settled,
    tune,
    work_of,
    write_tuning,
)
from knnmt.measure.tuning_plot import check_drawable, draw_tuning
from knnmt.progress import Advance
from knnmt.store.removing import remove_from_store
from knnmt.store.versions import locked
from knnmt.translate.settings import TranslateSettings

LINES = 6
BEAM = 2


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


class Counted(CandidateScorer):
    """A scorer to which a larger weight is always the better one."""

    def __init__(self, lines: int) -> None:
        self.sources = [""] * lines
        self.decoded: dict[float, int] = {}

    def scored(self, candidate: Candidate, sentences: int, advance: Advance | None = None) -> Candidate:
        if advance:
            advance(sentences - candidate.sentences, 0)
        self.decoded[candidate.settings.weight] = sentences
        return replace(candidate, bleu=candidate.settings.weight, sentences=sentences)

    def p_value(self, one: Candidate, other: Candidate) -> float:  # noqa: ARG002
        return 0.01


def test_the_better_ones_are_decoded_on_more_sentences() -> None:
    candidates = [Candidate(TranslateSettings(weight=weight), "") for weight in (0.0, 0.2, 0.9, 0.5, 0.7)]
    scorer = Counted(2000)
    assert [candidate.bleu for candidate in choose(scorer, candidates)] == [0.9, 0.7, 0.5, 0.2, 0.0]
    assert scorer.decoded == {0.0: 200, 0.2: 200, 0.5: 400, 0.7: 800, 0.9: 800}
    assert work_of(rounds_for(2000), 5) == 2 * 200 + 400 + 2 * 800
    assert work_of(rounds_for(2000), 6, heads=1) == 2 * 200 + 400 + 3 * 800


def learned(bleu: float) -> Candidate:
    return Candidate(TranslateSettings(mixing="learned"), "learned", bleu=bleu)


def test_the_head_is_decoded_in_every_round() -> None:
    """However it does in the first rounds: it is compared with the best fixed values on the same sentences."""
    candidates = [
        learned(0.0),
        *(Candidate(TranslateSettings(weight=weight), "") for weight in (0.9, 0.8, 0.7, 0.6)),
    ]
    found = choose(Counted(2000), candidates)
    assert {candidate.origin: candidate.sentences for candidate in found[:2]} == {"learned": 800, "": 800}


@pytest.mark.parametrize(
    ("head", "fixed", "p", "chosen"),
    [
        (30.0, 30.0, 0.01, "learned"),
        (30.0, 30.0 + CLEARLY_BETTER, 0.01, "learned"),
        (30.0, 30.4, 0.01, "fixed"),
        (42.6, 46.0, 0.06, "learned"),  # on few sentences
        (31.0, 30.0, 0.01, "learned"),
    ],
)
def test_fixed_values_must_be_clearly_better_than_the_head(head: float, fixed: float, p: float, chosen: str) -> None:
    """By as little as chance they are a trap on text that the memory is not about."""
    other = Candidate(TranslateSettings(weight=0.5), "fixed", bleu=fixed)
    last = sorted([learned(head), other], key=lambda one: -(one.bleu or 0))
    found = settled(last, lambda *_: p)
    assert found[0].origin == chosen
    assert set(found) == set(last)


def test_a_p_value_of_two_candidates(translator: Translator) -> None:
    texts = [f"The battery of bike {number} is full." for number in range(30)]
    scorer = CandidateScorer(translator, texts, texts)
    right, wrong = (Candidate(TranslateSettings(weight=weight), "", sentences=30) for weight in (0.9, 0.1))
    scorer.translations = {right.settings: scorer.references, wrong.settings: ["A bike of 1."] * 30}
    assert scorer.p_value(right, wrong) < 0.05
    assert scorer.p_value(right, right) == 1.0


@pytest.mark.parametrize(
    ("lines", "sentences"), [(6, [6, 6, 6]), (300, [50, 100, 120]), (500, [50, 100, 200]), (2000, [200, 400, 800])]
)
def test_short_texts_are_decoded_whole(lines: int, sentences: list[int]) -> None:
    assert [count for count, _ in rounds_for(lines)] == sentences


def test_bleu_decides(tuning: Tuning, translator: Translator, texts: tuple[list[str], list[str]]) -> None:
    best = max(candidate.bleu or 0 for candidate in tuning.candidates)
    assert tuning.chosen.is_learned or tuning.chosen.bleu == best
    assert tuning.chosen is tuning.candidates[0]
    assert tuning.learned
    again = CandidateScorer(translator, *texts, tuning.learned.mixer).scored(tuning.chosen, LINES)
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
    scorer, made = CandidateScorer(translator, *texts), list[str]()

    def echo(_: Translator, sources: list[str], **__: object) -> list[Translation]:
        made.extend(sources)
        return [Translation(source, source, ()) for source in sources]

    monkeypatch.setattr(Translator, "translations", echo)
    candidate = Candidate(TranslateSettings(k=8), "")
    for sentences in (2, 4, 4, 6):
        candidate = scorer.scored(candidate, sentences)
    assert made == scorer.sources
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

    monkeypatch.setattr(CandidateScorer, "scored", interrupt)
    before = sorted(file for file in tmp_path.rglob("*"))
    manifest = (copied.path / "manifest.json").read_bytes()
    assert run("tune", copied.path, *dev, "--limit", 2) == (130, "", "knnmt: stopped\n")
    assert sorted(file for file in tmp_path.rglob("*")) == before
    assert (copied.path / "manifest.json").read_bytes() == manifest


def test_a_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch, run: Run, copied: Store, tmp_path: Path) -> None:
    monkeypatch.setattr("knnmt.measure.tuning_plot.find_spec", lambda _: None)
    code, _, err = run("tune", copied.path, "--source", "x", "--target", "x", "--plot", tmp_path / "a.png")
    assert (code, err) == (2, "knnmt: --plot needs matplotlib: pip install 'knnmt[plot]'\n")


@pytest.mark.parametrize(("name", "opening"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_plots(tuning: Tuning, tmp_path: Path, name: str, opening: bytes) -> None:
    pytest.importorskip("matplotlib")
    check_drawable(tmp_path / name)
    draw_tuning(tuning, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(opening)
    assert [file.name for file in tmp_path.iterdir()] == [name]
