"""Scores are sacreBLEU's own, with the tokenizer that the target language needs."""

import hashlib
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu
from tiny_models import tiny_model

from knnmt import CorpusError, SettingsError, Store, Translator
from knnmt.cli.demo import read_demo
from knnmt.measure.evaluation import (
    Earlier,
    Evaluation,
    Scores,
    evaluate,
    metrics,
    paired_bootstrap,
    read_earlier,
    read_test_set,
    save,
    signature_of,
    write_lines,
)
from knnmt.text.languages import base_language
from knnmt.translate.settings import TranslateSettings


def translator_into(language: str | None) -> Translator:
    model = replace(tiny_model("marian"), target_lang=language)
    return Translator(model, None, TranslateSettings(weight=0))


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


def test_translations_made_earlier_take_the_place_of_the_base_model(store: Store, tmp_path: Path) -> None:
    sources, references = zip(*((pair.source, pair.target) for pair in read_demo("test")[:3]), strict=True)
    translator = Translator.from_store(store.path, k=4, beam=1)
    decoded = evaluate(translator, sources, references)
    save(decoded, tmp_path)
    write_lines(tmp_path / "test.de", sources)
    assert read_earlier(tmp_path / "knn.txt", tmp_path / "test.de", None).translations == translator.translate(sources)
    earlier = read_earlier(tmp_path / "base.txt", tmp_path / "test.de", None)
    compared = evaluate(translator, sources, references, against=earlier)
    assert compared.base == replace(decoded.base, tokens_per_second=None)
    assert compared.knn
    assert decoded.knn
    assert (compared.knn.translations, compared.p_value) == (decoded.knn.translations, decoded.p_value)
    digest = hashlib.sha256((tmp_path / "base.txt").read_bytes()).hexdigest()[:12]
    assert compared.signature == decoded.signature | {"base": f"file:base.txt@{digest}"}
    assert compared.to_json()["base"]["tokens_per_second"] is None


def test_earlier_translations_without_a_store() -> None:
    with pytest.raises(SettingsError, match=r"--against a\.txt: only with --store"):
        evaluate(translator_into("en"), ["a"], ["b"], against=Earlier("a.txt", "", ["c"]))


@pytest.mark.parametrize(("lines", "limit", "taken"), [(3, None, 3), (3, 2, 2), (2, 2, 2), (3, 9, 3)])
def test_earlier_translations_of_the_whole_text_or_of_its_beginning(
    tmp_path: Path, lines: int, limit: int | None, taken: int
) -> None:
    write_lines(tmp_path / "test.de", "abc")
    write_lines(tmp_path / "base.txt", "xyz"[:lines])
    assert read_earlier(tmp_path / "base.txt", tmp_path / "test.de", limit).translations == list("xyz"[:taken])


@pytest.mark.parametrize(("lines", "limit"), [(2, None), (4, None), (1, 2), (4, 2), (0, None)])
def test_earlier_translations_of_another_text(tmp_path: Path, lines: int, limit: int | None) -> None:
    write_lines(tmp_path / "test.de", "abc")
    write_lines(tmp_path / "base.txt", "wxyz"[:lines])
    with pytest.raises(CorpusError, match=rf"base\.txt has {lines} lines but .*test\.de has 3"):
        read_earlier(tmp_path / "base.txt", tmp_path / "test.de", limit)


def test_saved_translations_have_a_line_each(tmp_path: Path) -> None:
    save(Evaluation(Scores(0, 0, 0, ["a\nb\r", "", "c"]), None, 3, None, {}), tmp_path)
    assert (tmp_path / "base.txt").read_bytes() == b"a b \n\nc\n"
    assert [file.name for file in tmp_path.iterdir()] == ["base.txt"]


def test_the_p_value_tells_a_difference_from_none() -> None:
    references = [f"this is sentence number {number} of the test set" for number in range(60)]
    worse = [text.replace("sentence number", "word") for text in references]
    alike = [text.replace("set", "text") if number % 2 else text for number, text in enumerate(references)]
    bleu, _ = metrics(translator_into("en"), references)

    def scores(texts: list[str]) -> Scores:
        return Scores(0.0, 0.0, 0.0, texts)

    assert paired_bootstrap(bleu, scores(worse), scores(references)) < 0.01
    assert paired_bootstrap(bleu, scores(alike), scores(list(alike))) > 0.5
    assert paired_bootstrap(bleu, scores(alike), scores([f"{text} " for text in alike])) == 1.0  # the same BLEU


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
