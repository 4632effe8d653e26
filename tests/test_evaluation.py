"""Scores are sacreBLEU's own, with the tokenizer that the target language needs."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu
from tiny_models import tiny_model

from knnmt import CorpusError, SettingsError, Translator
from knnmt.decoding import SearchSettings
from knnmt.evaluation import Scores, evaluate, metrics, paired_bootstrap, read_test_set, signature_of
from knnmt.languages import base_language


def translator_into(language: str | None) -> Translator:
    model = replace(tiny_model("marian"), target_lang=language)
    return Translator(model, None, SearchSettings(weight=0))


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [("en", "13a"), ("de", "13a"), (None, "13a"), ("zh", "zh"), ("zh_CN", "zh"), ("zho_Hans", "zh"), ("zh-TW", "zh")],
)
def test_tokenizer_by_language(language: str | None, tokenizer: str) -> None:
    bleu, _ = metrics(translator_into(language), ["a"])
    assert f"tok:{tokenizer}|" in str(bleu.get_signature())


@pytest.mark.parametrize(
    ("code", "base"), [("ja_XX", "ja"), ("jpn_Jpan", "ja"), ("kor_Hang", "ko"), ("EN", "en"), (None, "")]
)
def test_base_language(code: str | None, base: str) -> None:
    assert base_language(code) == base


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="the tokenizer for Japanese is installed")
def test_a_missing_tokenizer_names_the_extra() -> None:
    with pytest.raises(SettingsError, match=r"pip install 'knnmt\[japanese\]'"):
        metrics(translator_into("ja"), ["a"])


def test_scores_are_those_of_sacrebleu() -> None:
    sources = ["Das Haus steht am Fluss.", "Wir haben die Datei gespeichert."]
    references = ["The house stands by the river.", "We have saved the file."]
    translator = translator_into("en")
    evaluation = evaluate(translator, sources, references)
    outputs = translator.translate(sources)
    assert evaluation.base.translations == outputs
    assert evaluation.base.bleu == round(sacrebleu.corpus_bleu(outputs, [references]).score, 2)
    assert evaluation.base.chrf == round(sacrebleu.corpus_chrf(outputs, [references]).score, 2)
    assert (evaluation.knn, evaluation.p_value, evaluation.sentences) == (None, None, 2)
    assert "knn" not in evaluation.to_json()


def test_the_p_value_tells_a_difference_from_none() -> None:
    references = [f"this is sentence number {number} of the test set" for number in range(60)]
    worse = [text.replace("sentence number", "word") for text in references]
    alike = [text.replace("set", "text") if number % 2 else text for number, text in enumerate(references)]
    bleu, _ = metrics(translator_into("en"), references)

    def scores(texts: list[str]) -> Scores:
        return Scores(0.0, 0.0, 0.0, texts)

    assert paired_bootstrap(bleu, scores(worse), scores(references)) < 0.01
    assert paired_bootstrap(bleu, scores(alike), scores(list(alike))) > 0.5


def test_signature_of_a_model_alone() -> None:
    model = tiny_model("marian")
    assert f"model:marian@{model.fingerprint}|beam:5|v:" in signature_of(translator_into("en"))


def test_reading_a_test_set(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("eins\n\ndrei\n")
    (tmp_path / "b").write_text("one\ntwo\nthree\n")
    assert read_test_set(tmp_path / "a", tmp_path / "b", None) == (["eins", "", "drei"], ["one", "two", "three"])
    assert read_test_set(tmp_path / "a", tmp_path / "b", 1) == (["eins"], ["one"])
    with pytest.raises(SettingsError, match="--limit 0"):
        read_test_set(tmp_path / "a", tmp_path / "b", 0)
    with pytest.raises(CorpusError, match="no such file"):
        read_test_set(tmp_path / "a", tmp_path / "c", None)
