"""The recipe of the embedded model: its tables, its run from end to end, and its resumption."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

RECIPE = Path(__file__).parents[2] / "recipes" / "embedded-model"
MODULES = sorted(path.stem for path in RECIPE.glob("*.py"))
SMALL = ["--dimension", "16", "--heads", "2", "--feed-forward", "32", "--encoder-layers", "1",
         "--decoder-layers", "1", "--vocabulary", "50"]  # fmt: skip
RUN = ["--processes", "1", "--tokens", "200", "--accumulate", "2", "--held-out", "10", "--warmup", "2",
       "--validate-every", "4", "--save-every", "2", "--average", "2"]  # fmt: skip


@pytest.fixture(scope="module")
def recipe() -> Iterator[SimpleNamespace]:
    """The recipe's modules, imported from its folder, which is no package."""
    sys.path.insert(0, str(RECIPE))
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in MODULES})
    finally:
        sys.path.remove(str(RECIPE))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """200 pairs of a toy language in which every German word has one English word."""
    words = {"Haus": "house", "Hund": "dog", "Katze": "cat", "rot": "red", "läuft": "runs", "und": "and",
             "Straße": "street", "der": "the", "alt": "old", "singt": "sings", "schnell": "quickly"}  # fmt: skip
    choose, folder = random.Random(7), tmp_path_factory.mktemp("corpus")
    lines = [choose.choices(list(words), k=choose.randint(2, 12)) for _ in range(200)]
    source, target = folder / "toy.de", folder / "toy.en"
    source.write_text("".join(" ".join(line) + " .\n" for line in lines), encoding="utf-8")
    target.write_text("".join(" ".join(words[word] for word in line) + " .\n" for line in lines), encoding="utf-8")
    return str(source), str(target)


@pytest.fixture(scope="module")
def trained(recipe: SimpleNamespace, corpus: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model made anew, in eight steps without a break."""
    output = tmp_path_factory.mktemp("anew")
    recipe.train.main(["--corpus", *corpus, "--output", str(output), "--steps", "8", *SMALL, *RUN])
    return output


def check_folder(folder: Path) -> None:
    """The folder is a Marian model in half precision, and its tokenizer gives back what it was given."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.float16
    for text, target in (("der Hund läuft schnell .", False), ("the old house and the street .", True)):
        ids = tokenizer(text_target=text).input_ids if target else tokenizer(text).input_ids
        assert ids[-1] == model.config.eos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    batch = tokenizer(["der Hund singt ."], return_tensors="pt")
    assert model.float().generate(**batch, max_new_tokens=8, max_length=None).shape[0] == 1


def read_log(output: Path) -> dict[str, Any]:
    content = json.loads((output / "model" / "training.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize(
    ("step", "used", "expected"),
    [(0, 0.0, 0.25), (1, 0.0, 0.5), (3, 0.0, 1.0), (3, 0.25, 0.75), (100, 0.5, 0.5), (100, 1.0, 0.0)],
)
def test_rate_factor(recipe: SimpleNamespace, step: int, used: float, expected: float) -> None:
    assert recipe.schedule.rate_factor(step=step, warmup=4, used=used) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("budget", "step", "seconds", "expected"),
    [
        ({"steps": 10}, 0, 99.0, 0.0),
        ({"steps": 10}, 5, 99.0, 0.5),
        ({"steps": 10}, 12, 99.0, 1.0),
        ({"minutes": 2}, 5, 30.0, 0.25),
        ({"minutes": 2}, 5, 121.0, 1.0),
    ],
)
def test_budget_used(
    recipe: SimpleNamespace, budget: dict[str, float], step: int, seconds: float, expected: float
) -> None:
    assert recipe.schedule.Budget(**budget).used(step=step, seconds=seconds) == pytest.approx(expected)


@pytest.mark.parametrize("budget", [{}, {"steps": 1, "minutes": 1.0}, {"steps": 0}, {"minutes": -1.0}])
def test_budget_is_checked(recipe: SimpleNamespace, budget: dict[str, float]) -> None:
    with pytest.raises(recipe.text.RecipeError, match="--steps"):
        recipe.schedule.Budget(**budget)


@pytest.mark.parametrize(
    ("source", "target", "tokens", "expected"),
    [
        ([], [], 10, []),
        ([2, 2, 2], [3, 3, 3], 10, [(0, 2), (2, 3)]),
        ([2, 2, 2], [3, 3, 3], 15, [(0, 3)]),
        ([1, 4, 1], [1, 1, 1], 10, [(0, 2), (2, 3)]),  # padding to the longest counts
        ([9, 1, 1], [9, 1, 1], 10, [(0, 1), (1, 3)]),  # a pair above the budget stands alone
    ],
)
def test_cut_batches(
    recipe: SimpleNamespace, source: list[int], target: list[int], tokens: int, expected: list[tuple[int, int]]
) -> None:
    cuts = recipe.batches.cut_batches(np.array(source), np.array(target), tokens=tokens)
    assert [(cut.start, cut.stop) for cut in cuts] == expected


@pytest.mark.parametrize(
    ("weights", "first", "second"),
    [
        ((1.0, 1.0), [1, 1, 1, 1], [1, 1]),
        ((2.0, 0.5), [2, 2, 2, 2], [0, 1]),
        ((1.5, 3.0), [1, 1, 2, 2], [3, 3]),
        ((0.25, 1.0), [0, 0, 0, 1], [1, 1]),
    ],
)
def test_a_round_draws_by_weight(
    recipe: SimpleNamespace, weights: tuple[float, float], first: list[int], second: list[int]
) -> None:
    drawn = recipe.batches.sample_round([4, 2], weights, np.random.default_rng(3))
    times = np.bincount(drawn, minlength=6).tolist()
    assert (sorted(times[:4]), sorted(times[4:])) == (first, second)


def plan(recipe: SimpleNamespace, *, seed: int = 1, index: int = 0) -> list[list[int]]:
    source, target = np.arange(1, 41) % 7 + 1, np.arange(1, 41) % 5 + 1
    batches = recipe.batches.plan_round(
        sizes=[30, 10], weights=[1.0, 2.0], source=source, target=target, tokens=24, seed=seed, index=index
    )
    return [batch.tolist() for batch in batches]


def test_the_plan_is_a_function_of_seed_and_round(recipe: SimpleNamespace) -> None:
    assert plan(recipe) == plan(recipe)
    assert plan(recipe) != plan(recipe, index=1)
    assert plan(recipe) != plan(recipe, seed=2)
    assert sorted(pair for batch in plan(recipe) for pair in batch) == sorted([*range(40), *range(30, 40)])


def test_orthogonalise(recipe: SimpleNamespace) -> None:
    matrix = torch.randn(6, 24, generator=torch.Generator().manual_seed(0))
    for given in (matrix, matrix.T):
        values = torch.linalg.svdvals(recipe.optimizer.orthogonalise(given))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_the_encoder_agrees_with_the_tokenizer(recipe: SimpleNamespace, trained: Path, corpus: tuple[str, str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    toy = Path(corpus[0]).read_text(encoding="utf-8").splitlines()[:50]
    lines = [*toy, "Žluťoučký kůň 🙂", "", "  zwei  Leerzeichen "]
    encoded = recipe.vocabulary.load_encoder(trained / "model", "source")(lines)
    assert [ids.tolist() for ids in encoded] == [tokenizer(line).input_ids for line in lines]


def test_anew(trained: Path) -> None:
    check_folder(trained / "model")
    log = read_log(trained)
    assert log["progress"]["step"] == 8
    assert [score["step"] for score in log["scores"]] == [0, 4, 8, 8, 8]
    assert log["data"] == [{"name": "toy.de", "weight": 1.0, "training_pairs": 190, "validation_pairs": 10,
                            "dropped": {"excluded": 0, "empty": 0, "long": 0}}]  # fmt: skip
    card = (trained / "model" / "README.md").read_text(encoding="utf-8")
    assert "for 8 steps" in card
    assert "| toy.de | 1.0 | 190 | 10 | 0 | 0 | 0 |" in card


def test_from_start_weights_in_two_processes(
    recipe: SimpleNamespace, corpus: tuple[str, str], trained: Path, tmp_path: Path
) -> None:
    recipe.train.main(["--corpus", *corpus, "1.5", "--output", str(tmp_path), "--start", str(trained / "model"),
                       "--steps", "30", *RUN, "--processes", "2", "--accumulate", "1", "--rate", "0.01"])  # fmt: skip
    check_folder(tmp_path / "model")
    losses = [score["loss"] for score in read_log(tmp_path)["scores"]]
    assert losses[-1] < losses[0] - 0.5


def test_a_model_of_several_languages(recipe: SimpleNamespace, corpus: tuple[str, str], tmp_path: Path) -> None:
    """Both directions in one M2M-100 model; the ids that it is trained on are its tokenizer's."""
    options = ["--corpus", *corpus, "--corpus", *reversed(corpus), "--architecture", "m2m_100", "--steps", "4"]
    recipe.train.main([*options, "--output", str(tmp_path), *SMALL, *RUN])
    folder = tmp_path / "model"
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert (model.config.model_type, model.dtype) == ("m2m_100", torch.float16)
    assert set(read_log(tmp_path)["scores"][-1]["by_corpus"]) == {"toy.de-en", "toy.en-de"}
    tokenizer.src_lang, tokenizer.tgt_lang = "de", "en"
    lines = ["der Hund läuft schnell .", "", "Žluťoučký kůň"]
    source = recipe.vocabulary.load_encoder(folder, "source", "de")(lines)
    target = recipe.vocabulary.load_encoder(folder, "target", "en")(lines)
    assert [ids.tolist() for ids in source] == [tokenizer(line).input_ids for line in lines]
    assert [ids.tolist() for ids in target] == [tokenizer(text_target=line).input_ids for line in lines]
    assert tokenizer.decode(source[0], skip_special_tokens=True) == lines[0]
    assert max(tokenizer.lang_code_to_id.values()) < model.config.vocab_size


class KilledError(Exception):
    """Stands for a kill between two steps."""


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_killed_run_resumes_to_the_same_weights(
    recipe: SimpleNamespace, corpus: tuple[str, str], trained: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, optimizer: str,
) -> None:  # fmt: skip
    """Dropout is on, and the run crosses into the second round, so that all randomness is covered."""
    options = ["--corpus", *corpus, "--start", str(trained / "model"), "--steps", "40", *RUN, "--tokens", "300",
               "--dropout", "0.1", "--optimizer", optimizer, "--cache", str(tmp_path / "cache")]  # fmt: skip
    recipe.train.main([*options, "--output", str(tmp_path / "whole")])
    step = recipe.trainer.Trainer.step

    def kill_at_31(self: Any, *arguments: Any, **settings: Any) -> Any:
        if self.progress.step == 31:
            raise KilledError
        return step(self, *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(recipe.trainer.Trainer, "step", kill_at_31)
        with pytest.raises(KilledError):
            recipe.train.main([*options, "--output", str(tmp_path / "broken")])
    recipe.train.main([*options, "--output", str(tmp_path / "broken"), "--resume"])
    whole, broken = (recipe.checkpoint.load_checkpoint(tmp_path / name / "run") for name in ("whole", "broken"))
    assert whole["progress"]["round"] > 0
    for counter in ("step", "round", "round_step", "source_tokens", "target_tokens"):
        assert broken["progress"][counter] == whole["progress"][counter]
    for name, tensor in whole["weights"].items():
        assert torch.equal(broken["weights"][name], tensor), name


def test_averaged_weights(recipe: SimpleNamespace, tmp_path: Path) -> None:
    for position, value in enumerate((1.0, 2.0, 6.0)):
        weight = torch.full((2,), value)
        torch.save({"weight": weight, "tied": weight}, tmp_path / f"weights-{position}.pt")
    average = recipe.checkpoint.average_weights(recipe.checkpoint.weight_files(tmp_path))
    assert {name: tensor.tolist() for name, tensor in average.items()} == {"weight": [3.0, 3.0], "tied": [3.0, 3.0]}


def test_split_by_resemblance(recipe: SimpleNamespace) -> None:
    sample = recipe.split.count_words([["council", "votes"], ["the", "council"]] * 5)
    lines = [["the", "council", "votes"], ["a", "dog", "runs"], ["council", "votes"], ["a", "cat", "runs"]]
    assert recipe.split.resembles(lines, sample, rounds=3) == [True, False, True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "no.de", "no.en", "--steps", "1", "--start", "nowhere"], "--start nowhere: not a Marian folder"),
        (["--corpus", "no.de", "no.en", "--steps", "1"], "no.de: cannot be read"),
        (["--corpus", "no.de", "--steps", "1"], "--corpus takes SOURCE TARGET"),
        (["--corpus", "no.de", "no.en", "x", "--steps", "1"], "the weight 'x' is not a number"),
        (["--corpus", "no.de", "no.en"], "exactly one of --steps and --minutes"),
        (["--corpus", "no.de", "no.en", "--steps", "1", "--tokens", "0"], "--tokens must be at least 1"),
        (["--corpus", "a.de", "a.xx", "--steps", "1", "--architecture", "m2m_100"], "a.xx: m2m_100 takes the language"),
        (
            ["--corpus", "a.de", "a.en", "--steps", "1", "--architecture", "m2m_100", "--start", "x"],
            "--start takes a Marian folder",
        ),
    ],
)
def test_mistakes_are_one_clean_line(
    recipe: SimpleNamespace, tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        recipe.train.main([*arguments, "--output", str(tmp_path)])


def test_unequal_files_are_refused(recipe: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "b").write_text("one\n", encoding="utf-8")
    with pytest.raises(recipe.text.RecipeError, match="differ in their number of lines"):
        list(recipe.text.read_pairs(tmp_path / "a", tmp_path / "b"))


def test_the_readme_names_every_file_and_option(recipe: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (RECIPE / "README.md").read_text(encoding="utf-8")
    assert [name for name in MODULES if f"`{name}.py`" not in readme] == []
    with pytest.raises(SystemExit):
        recipe.train.main(["--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert [option for option in sorted(options) if f"`{option}" not in readme] == []
