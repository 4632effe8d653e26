"""Every architecture as a translation model: languages, token ids, fingerprint, and what a bad folder is answered."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, tiny_folder, tiny_model

from knnmt.errors import ModelError
from knnmt.models.architectures import ARCHITECTURES as REGISTRY
from knnmt.models.language_tokens import target_prefix
from knnmt.models.translation_model import TranslationModel, fingerprint, load_model, wrap_model

every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
MULTILINGUAL = [name for name, architecture in ARCHITECTURES.items() if architecture.languages]


def texts(model: TranslationModel, tokens: Any) -> list[str]:
    return [model.token_text(int(token)) for token in tokens]


@pytest.mark.parametrize(
    ("name", "kind", "prefix", "told", "end"),
    [
        ("fsmt", "fsmt", ["</s>"], [], "</s>"),
        ("marian", "marian", ["<pad>"], [], "</s>"),
        ("bart", "bart", ["</s>", "<s>"], [], "</s>"),
        ("mbart", "mbart", ["en_XX"], ["decoder_start_token_id"], "</s>"),
        ("mbart-50", "mbart", ["</s>", "en_XX"], ["forced_bos_token_id"], "</s>"),
        ("m2m_100", "m2m_100", ["</s>", "__en__"], ["forced_bos_token_id"], "</s>"),
        ("nllb", "m2m_100", ["</s>", "eng_Latn"], ["forced_bos_token_id"], "</s>"),
        ("pegasus", "pegasus", ["<pad>"], [], "</s>"),
        ("t5", "t5", ["<pad>"], [], "</s>"),
        ("mt5", "mt5", ["<pad>"], [], "</s>"),
        ("umt5", "umt5", ["<pad>"], [], "</s>"),
    ],
)
def test_what_the_decoder_is_given(name: str, kind: str, prefix: list[str], told: list[str], end: str) -> None:
    model = tiny_model(name)
    assert model.network.config.model_type == kind
    assert texts(model, model.decoder_prefix) == prefix
    assert list(model.generation) == told
    assert texts(model, [model.end_token, model.padding]) == [end, "<pad>"]
    assert not model.network.training


def test_every_known_place_of_the_key_is_tested() -> None:
    assert {tiny_model(name).network.config.model_type for name in ARCHITECTURES} == set(REGISTRY)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("marian", "▁Da", "</s>"),
        ("bart", "<s>", "</s>"),
        ("mbart", "▁Da", "de_DE"),
        ("mbart-50", "de_DE", "</s>"),
        ("m2m_100", "__de__", "</s>"),
        ("nllb", "deu_Latn", "</s>"),
        ("pegasus", "▁Da", "</s>"),
        ("t5", "▁Da", "</s>"),
        ("umt5", "▁Da", "</s>"),
    ],
)
def test_sources_carry_their_language(name: str, first: str, last: str) -> None:
    model = tiny_model(name)
    tokens = texts(model, model.encode_sources(GERMAN)[0])
    assert (tokens[0], tokens[-1]) == (first, last)


@every_architecture
def test_targets_are_the_text_and_its_end(name: str) -> None:
    model = tiny_model(name)
    special = set(model.tokenizer.all_special_ids) | set(model.decoder_prefix) | {model.padding}
    for target, text in zip(model.encode_targets(ENGLISH), ENGLISH, strict=True):
        assert target[-1] == model.end_token
        assert not special & set(target[:-1])
        assert model.decode(target) == text
        assert model.decode([*model.decoder_prefix, *target, model.padding]) == text


@every_architecture
def test_encoding_targets_leaves_sources_alone(name: str) -> None:
    model = tiny_model(name)
    before = model.encode_sources(GERMAN)
    model.encode_targets(ENGLISH)
    assert model.encode_sources(GERMAN) == before


@every_architecture
def test_an_empty_target_is_its_end(name: str) -> None:
    model = tiny_model(name)
    assert model.encode_targets([""]) == [[model.end_token]]


def test_fsmt_has_a_vocabulary_for_each_side() -> None:
    model = tiny_model("fsmt")
    source, target = (model.network.model.encoder, model.network.model.decoder)
    assert source.embed_tokens.num_embeddings != target.embed_tokens.num_embeddings
    assert (model.source_lang, model.target_lang) == ("de", "en")
    tokens = [number for row in model.encode_targets(ENGLISH) for number in row]
    assert max(tokens) < target.embed_tokens.num_embeddings
    assert model.encode_targets(["the"])[0] != model.encode_sources(["the"])[0]
    assert texts(model, model.encode_targets(["the"])[0]) == ["the</w>", "</s>"]


def test_teacher_forcing_shifts_the_target_behind_the_prefix() -> None:
    model = tiny_model("m2m_100")
    inputs = model.teacher_forcing([[7, 8, 2], [9, 2]], [[11, 12, 13, 2], [14, 2]])
    start, language = model.decoder_prefix
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == {
        "input_ids": [[7, 8, 2], [9, 2, 1]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "decoder_input_ids": [[start, language, 11, 12, 13], [start, language, 14, 1, 1]],
        "decoder_attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    }


def test_a_long_text_is_tokenized_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("marian")
    told: list[str] = []
    monkeypatch.setattr(model.tokenizer, "model_max_length", 20)
    monkeypatch.setattr(model.tokenizer, "deprecation_warnings", {})  # it is said once
    monkeypatch.setattr(transformers.tokenization_utils_base.logger, "warning", told.append)
    assert len(model.encode_sources([" ".join(GERMAN * 200)])[0]) > 600
    assert told == []


@pytest.mark.parametrize(("name", "positions"), [("marian", 64), ("fsmt", 64), ("t5", 512), ("umt5", 512)])
def test_the_longest_sequence(name: str, positions: int) -> None:
    assert tiny_model(name).positions == positions


@pytest.mark.parametrize("name", MULTILINGUAL)
@pytest.mark.parametrize(
    ("languages", "complaint"),
    [
        ({}, "--source-lang is missing: this model translates between many languages"),
        ({"source_lang": "de"}, "--target-lang is missing: this model translates between many languages"),
        ({"source_lang": "xx", "target_lang": "en"}, "--source-lang xx: the model does not know it; it knows "),
        ({"source_lang": "de", "target_lang": "tlh"}, "--target-lang tlh: the model does not know it; it knows "),
    ],
)
def test_a_model_of_many_languages_must_be_told_which(name: str, languages: dict[str, str], complaint: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(str(tiny_folder(name)), **languages)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize("name", MULTILINGUAL)
def test_the_target_language_is_the_one_asked_for(name: str) -> None:
    there = tiny_model(name)
    back = load_model(str(tiny_folder(name)), source_lang="en", target_lang="de")
    assert back.encode_sources(["a"]) != there.encode_sources(["a"])
    assert back.decoder_prefix[-1] != there.decoder_prefix[-1]
    assert back.encode_targets(ENGLISH) == there.encode_targets(ENGLISH)
    assert back.fingerprint == there.fingerprint


def test_languages_of_a_pair_come_from_the_model_and_can_be_given() -> None:
    folder = str(tiny_folder("marian"))
    assert (load_model(folder).source_lang, load_model(folder).target_lang) == ("de", "en")
    given = load_model(str(tiny_folder("t5")), source_lang="de", target_lang="en")
    assert (given.source_lang, given.target_lang) == ("de", "en")


def test_bart_begins_as_its_tokenizer_does_even_where_nothing_forces_it(tmp_path: Path) -> None:
    folder = changed_copy("bart", tmp_path, edit_json("config.json", forced_bos_token_id=None))
    edit_json("generation_config.json", forced_bos_token_id=None)(folder)
    model = load_model(str(folder))
    assert model.generation == {"forced_bos_token_id": 0}
    assert texts(model, model.decoder_prefix) == ["</s>", "<s>"]


def test_t5_is_told_its_task_in_its_own_words(tmp_path: Path) -> None:
    words = {"translation_de_to_en": {"prefix": "translate German to English: "}}
    folder = str(changed_copy("t5", tmp_path, edit_json("config.json", task_specific_params=words)))
    assert load_model(folder, source_lang="de", target_lang="en").source_prefix == "translate German to English: "
    assert load_model(folder, source_lang="en", target_lang="de").source_prefix == ""
    assert load_model(folder).source_prefix == ""
    assert load_model(folder, source_lang="de", target_lang="en", source_prefix="").source_prefix == ""


def test_the_source_prefix_stands_before_every_source() -> None:
    plain = tiny_model("t5")
    prefixed = load_model(str(tiny_folder("t5")), source_prefix="Der Motor: ")
    assert prefixed.encode_sources(GERMAN) == plain.encode_sources(["Der Motor: " + text for text in GERMAN])


@pytest.mark.parametrize(
    ("codes", "language", "expected"),
    [
        ([">>fra<<", ">>spa<<"], "fra", ">>fra<< "),
        ([">>fra<<", ">>spa<<"], "fr", ">>fra<< "),
        ([">>fr<<", ">>es<<"], "fr", ">>fr<< "),
        ([">>fra<<"], "de", ""),
        ([">>fra<<"], None, ""),
        ([], "fr", ""),
    ],
)
def test_opus_models_of_many_languages_want_a_prefix(codes: list[str], language: str | None, expected: str) -> None:
    assert target_prefix(SimpleNamespace(supported_language_codes=codes), language) == expected


def test_loaded_objects_can_be_wrapped() -> None:
    tiny = tiny_model("marian")
    wrapped = wrap_model(tiny.network, tiny.tokenizer, name="mine")
    assert (wrapped.fingerprint, wrapped.key_site, wrapped.name) == (tiny.fingerprint, tiny.key_site, "mine")


def test_another_key_site_is_taken() -> None:
    model = load_model(str(tiny_folder("marian")), key_site="decoder.layers[0].fc1")
    assert model.key_site.path == "decoder.layers[0].fc1"


def edit_json(file: str, **values: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, **values}))

    return edit


def cut(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:200]) and None


def remove(*files: str) -> Callable[[Path], None]:
    def unlink(folder: Path) -> None:
        for file in files:
            (folder / file).unlink()

    return unlink


def changed_copy(name: str, place: Path, change: Callable[[Path], None]) -> Path:
    folder = place / name
    shutil.copytree(tiny_folder(name), folder)
    change(folder)
    return folder


@every_architecture
def test_the_fingerprint_does_not_know_the_place(name: str, tmp_path: Path) -> None:
    languages = ARCHITECTURES[name].languages or (None, None)
    folder = changed_copy(name, tmp_path, lambda _: None)
    copy = load_model(str(folder), source_lang=languages[0], target_lang=languages[1])
    assert copy.fingerprint == tiny_model(name).fingerprint
    assert len(copy.fingerprint) == 16


def test_every_tiny_model_has_its_own_fingerprint() -> None:
    assert len({tiny_model(name).fingerprint for name in ARCHITECTURES}) == len(ARCHITECTURES)


@pytest.mark.parametrize("name", ["fsmt", "marian", "m2m_100", "umt5"])
def test_one_changed_weight_changes_the_fingerprint(name: str) -> None:
    model = tiny_model(name)
    weight = list(model.network.parameters())[-3]
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.view(-1)[5] += 1e-3
        assert fingerprint(model.network, model.tokenizer) != model.fingerprint
    finally:
        weight.data.copy_(before)
    assert fingerprint(model.network, model.tokenizer) == model.fingerprint


@pytest.mark.parametrize(
    ("name", "file"), [("fsmt", "vocab-src.json"), ("fsmt", "vocab-tgt.json"), ("marian", "vocab.json")]
)
def test_another_vocabulary_is_another_model(name: str, file: str, tmp_path: Path) -> None:
    """Two tokens have changed places."""

    def swap(folder: Path) -> None:
        tokens = json.loads((folder / file).read_text())
        one, other = list(tokens)[10:12]
        edit_json(file, **{one: tokens[other], other: tokens[one]})(folder)

    assert load_model(str(changed_copy(name, tmp_path, swap))).fingerprint != tiny_model(name).fingerprint


def test_half_precision_files_are_computed_with_in_single(tmp_path: Path) -> None:
    tiny_model("marian").tokenizer.save_pretrained(tmp_path)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(tiny_folder("marian"), dtype=torch.float16)
    network.save_pretrained(tmp_path)
    model = load_model(str(tmp_path))
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}


LOAD = "cannot be loaded: "
TOKENIZER = "its tokenizer cannot be loaded, perhaps for a missing file: "


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("bart", remove("config.json"), "the folder has no config.json, so it holds no model"),
        ("bart", cut("config.json"), LOAD),
        ("bart", edit_json("config.json", model_type="bert"), LOAD),
        ("bart", edit_json("config.json", model_type="no-such"), LOAD),
        ("bart", edit_json("config.json", d_model="wide"), LOAD),
        ("bart", edit_json("config.json", vocab_size=50), LOAD),
        ("bart", edit_json("config.json", decoder_layers=3), "the file of weights lacks 26 of them, such as model."),
        ("bart", remove("model.safetensors"), LOAD),
        ("bart", cut("model.safetensors"), LOAD),
        ("bart", cut("tokenizer.json"), TOKENIZER),
        ("bart", cut("tokenizer_config.json"), TOKENIZER),
        ("bart", remove("tokenizer.json", "vocab.json", "merges.txt"), "its tokenizer knows 5 tokens of 300; are its"),
        ("t5", remove("tokenizer.json", "spiece.model"), "its tokenizer knows 4 tokens of 90; are its files there?"),
        ("marian", remove("source.spm"), TOKENIZER),
        ("marian", cut("target.spm"), TOKENIZER),
        ("marian", cut("vocab.json"), TOKENIZER),
        ("fsmt", remove("vocab-tgt.json"), TOKENIZER),
        ("m2m_100", remove("vocab.json"), TOKENIZER),
    ],
)
def test_a_broken_folder_is_one_clear_line(
    name: str, change: Callable[[Path], None], complaint: str, tmp_path: Path
) -> None:
    folder = changed_copy(name, tmp_path, change)
    with pytest.raises(ModelError) as caught:
        load_model(str(folder), source_lang="de", target_lang="en")
    message = str(caught.value)
    assert message.startswith(f"--model {folder}: {complaint}")
    assert "\n" not in message


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("asked the network")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["/no/such/folder", "./no-such", "../no-such", "a/b/c", "~/no-such", "a\\b", "a/"])
def test_a_missing_folder_is_answered_without_the_network(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(name)
    assert str(caught.value) == f"--model {name}: no such folder, and not a name of the Hugging Face Hub"


@pytest.mark.usefixtures("no_network")
def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="no such folder"):
        load_model(str(tmp_path / "model.bin"))


@pytest.mark.usefixtures("no_network")
def test_there_is_one_embedded_model() -> None:
    with pytest.raises(ModelError) as caught:
        load_model("builtin:xx-yy")
    assert str(caught.value) == "--model builtin:xx-yy: no such embedded model; there is builtin:de-en"


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["nobody/no-such-model", "no-such-model"])
def test_a_name_of_the_hub_that_is_not_there_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as caught:
        load_model(name)
    assert str(caught.value).startswith(f"--model {name}: cannot be loaded: ")
    assert "\n" not in str(caught.value)


def test_a_home_folder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_folder("marian")
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load_model(f"~/{folder.name}").fingerprint == tiny_model("marian").fingerprint


def test_an_unknown_kind_of_model_is_told_about_key_site() -> None:
    sizes = {
        f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    config = transformers.BlenderbotConfig(vocab_size=99, d_model=8, max_position_embeddings=16, **sizes)
    network = transformers.BlenderbotForConditionalGeneration(config)
    with pytest.raises(ModelError) as caught:
        wrap_model(network, tiny_model("bart").tokenizer, name="new")
    assert str(caught.value) == (
        "model type 'blenderbot' is new to knnmt: name the module whose input is the key, "
        "for example --key-site 'decoder.layers[-1].fc1'"
    )
    wrapped = wrap_model(network, tiny_model("bart").tokenizer, name="new", key_site="decoder.layers[-1].fc1")
    assert wrapped.dimension == 8


def test_loading_imports_only_what_it_needs_and_leaves_the_process_as_it_was() -> None:
    """Marian's tokenizer would import sacremoses; what transformers says is for the user to choose."""
    script = """
import logging, sys
import transformers
from knnmt import load_model
from transformers.utils import logging as theirs

before = theirs.get_verbosity(), theirs.is_progress_bar_enabled(), logging.getLogger("huggingface_hub").level
load_model("builtin:de-en")
after = theirs.get_verbosity(), theirs.is_progress_bar_enabled(), logging.getLogger("huggingface_hub").level
print(before == after, "sacremoses" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", script], capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr


def test_sacremoses_can_be_imported_while_a_tokenizer_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sacremoses", raising=False)
    tokenizer = tiny_model("marian").tokenizer
    imported: list[bool] = []

    def watched(*_arguments: Any, **_options: Any) -> Any:
        thread = Thread(target=lambda: imported.append(import_module("sacremoses") is not None))
        thread.start()
        thread.join()
        return tokenizer

    monkeypatch.setattr(transformers.PreTrainedTokenizerBase, "from_pretrained", watched)
    load_model(str(tiny_folder("marian")))
    assert imported == [True]


def test_marian_s_tokenizer_is_the_one_of_transformers(tmp_path: Path) -> None:
    ours, theirs = tiny_model("marian").tokenizer, transformers.AutoTokenizer.from_pretrained(tiny_folder("marian"))
    assert isinstance(ours, type(theirs))
    texts = ["Der Akku ist leer.", "„Laden“ — 3 kg …", ""]
    assert ours(texts) == theirs(texts)
    assert [ours.normalize(text) for text in texts] == [theirs.normalize(text) for text in texts]
    ours.save_pretrained(tmp_path)
    assert type(transformers.AutoTokenizer.from_pretrained(tmp_path)) is type(theirs)
