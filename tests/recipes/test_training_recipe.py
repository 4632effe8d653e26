"""The recipe of the embedded model: its run from end to end, and its resumption."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

SMALL = ["--dimension", "16", "--heads", "2", "--feed-forward", "32", "--encoder-layers", "1",
         "--decoder-layers", "1", "--vocabulary", "335"]  # fmt: skip
RUN = ["--processes", "1", "--tokens", "200", "--accumulate", "2", "--held-out", "10", "--warmup", "2",
       "--validate-every", "4", "--save-every", "2", "--average", "2"]  # fmt: skip


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


@pytest.fixture(scope="module")
def tokenizer(trained: Path) -> Any:
    return AutoTokenizer.from_pretrained(trained / "model")


@given(text=st.text())
@example('%1$s {0} ${name} <x id="1"/> &amp; --option=value /usr/lib/x file_name.txt a@b.org C:\\x |')
@example("</s> <unk> <pad> <0x41> zwei  Leerzeichen, „Größe“ – 12345.67")
@settings(deadline=None, max_examples=200)
def test_text_comes_back_letter_for_letter(tokenizer: Any, text: str) -> None:
    """But for what Marian's own tokenizer takes: blanks around the text, ▁ (its blank), and `>>code<<` in front."""
    text = text.replace("▁", "_").strip()
    if text.startswith(">>") and "<<" in text:
        text = f"a{text}"
    for ids in (tokenizer(text, split_special_tokens=True), tokenizer(text_target=text, split_special_tokens=True)):
        assert tokenizer.unk_token_id not in ids.input_ids
        assert tokenizer.decode(ids.input_ids, skip_special_tokens=True) == text


def test_a_model_grows_and_says_nearly_the_same(
    recipe: SimpleNamespace, corpus: tuple[str, str], trained: Path, tmp_path: Path
) -> None:
    """Same vocabulary, more layers and wider ones: the hidden states hardly change."""
    shape = ["--dimension", "16", "--heads", "2", "--feed-forward", "48", "--encoder-layers", "2",
             "--decoder-layers", "2", "--vocabulary", "335"]  # fmt: skip
    start = trained / "model"
    recipe.grow.main(["--start", str(start), "--text", *corpus, "--output", str(tmp_path / "grown"), *shape])
    small, large = (AutoModelForSeq2SeqLM.from_pretrained(path).float() for path in (start, tmp_path / "grown"))
    batch = AutoTokenizer.from_pretrained(start)(["der Hund singt ."], return_tensors="pt")
    with torch.no_grad():
        before, after = (model(**batch, labels=batch.input_ids).logits for model in (small, large))
    assert (large.config.encoder_layers, large.config.decoder_layers, large.config.encoder_ffn_dim) == (2, 2, 48)
    assert torch.nn.functional.cosine_similarity(before, after, dim=-1).min() > 0.98


def test_new_pieces_begin_as_the_old_ones_that_spell_them(recipe: SimpleNamespace, trained: Path) -> None:
    assert recipe.grow.spread(4, 6) == [(0, False), (0, True), (1, False), (2, False), (2, True), (3, False)]
    old = torch.arange(335, dtype=torch.float32)[:, None].expand(-1, 4)
    folder = trained / "model"
    assert torch.equal(recipe.grow.map_embeddings(old, folder, folder), old)


def test_a_longer_run_goes_on_from_before_the_decay(
    recipe: SimpleNamespace, corpus: tuple[str, str], trained: Path, tmp_path: Path
) -> None:
    """A finished run of 8 steps with the budget of 12 ends with the weights of a run of 12."""
    options = ["--corpus", *corpus, "--start", str(trained / "model"), *RUN, "--decay", "0.5"]
    for output, steps in (("short", "8"), ("long", "12")):
        recipe.train.main([*options, "--output", str(tmp_path / output), "--steps", steps])
    check_folder(tmp_path / "short" / "before-decay")
    recipe.train.main([*options, "--output", str(tmp_path / "short"), "--steps", "12", "--resume"])
    extended, long = (recipe.checkpoint.load_checkpoint(tmp_path / name / "run") for name in ("short", "long"))
    assert extended["progress"]["step"] == 12
    for name, tensor in long["weights"].items():
        assert torch.equal(extended["weights"][name], tensor), name


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "no.de", "no.en", "--steps", "1", "--start", "nowhere"], "--start nowhere: not a Marian folder"),
        (["--corpus", "no.de", "no.en", "--steps", "1"], "no.de: cannot be read"),
        (["--corpus", "no.de", "--steps", "1"], "--corpus takes SOURCE TARGET"),
        (["--corpus", "no.de", "no.en", "x", "--steps", "1"], "the weight 'x' is not a number"),
        (["--corpus", "no.de", "no.en"], "exactly one of --steps and --minutes"),
        (["--corpus", "no.de", "no.en", "--steps", "1", "--tokens", "0"], "--tokens must be at least 1"),
        (["--corpus", "no.de", "no.en", "--steps", "1", "--decay", "0"], "--decay must be above 0"),
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


def test_the_readme_names_every_file_and_option(recipe: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(recipe.train.__file__).parent
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert [file.name for file in folder.glob("*.py") if f"`{file.name}`" not in readme] == []
    with pytest.raises(SystemExit):
        recipe.train.main(["--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert [option for option in sorted(options) if f"`{option}" not in readme] == []


def test_the_curve_has_a_line_for_each_corpus(recipe: SimpleNamespace, trained: Path, tmp_path: Path) -> None:
    scores = read_log(trained)["scores"]
    lines = recipe.curve.points(scores)
    assert set(lines) == {"toy.de", "mean"}
    assert len(lines["mean"]) == sum(score["weights"] == "last" for score in scores)
    recipe.curve.draw(scores, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
