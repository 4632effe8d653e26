"""`pipeline("translation")`: the calls and shapes that transformers had until version 5."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import tiny_folder, tiny_model

import knnmt
from knnmt import SettingsError, Store, Translator
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.store.building import build_store
from knnmt.text.corpus import Corpus
from knnmt.translate.settings import TranslateSettings

TEXTS = ["Guten Tag.", "Prüfen Sie den Akku.", ""]


def test_the_shapes_of_transformers(embedded: TranslationModel) -> None:
    translate = knnmt.pipeline("translation", model=embedded.network, tokenizer=embedded.tokenizer, beam=1)
    expected = Translator(embedded, None, TranslateSettings(beam=1)).translate(TEXTS)
    assert translate(TEXTS[0]) == [{"translation_text": expected[0]}]
    assert translate(*TEXTS[:2]) == [{"translation_text": text} for text in expected[:2]]
    assert translate(TEXTS) == translate(TEXTS, batch_size=1) == [{"translation_text": text} for text in expected]
    assert list(translate(text for text in TEXTS)) == [[{"translation_text": text}] for text in expected]
    assert translate([]) == []
    assert translate.model is embedded.network
    assert translate.tokenizer is embedded.tokenizer


def test_a_generator_is_taken_as_it_comes(embedded: TranslationModel) -> None:
    taken = []

    def texts() -> Iterator[str]:
        for text in TEXTS * 3:
            taken.append(text)
            yield text

    translate = knnmt.pipeline("translation", embedded.network, tokenizer=embedded.tokenizer, batch_size=2, beam=1)
    results = translate(texts())
    assert taken == []
    next(results)
    assert len(taken) == 2


def test_with_a_store(store: Store) -> None:
    text = store.segment(0).source
    by_pipeline = knnmt.pipeline("translation", store=store.path, k=4, beam=1)(text)
    assert by_pipeline == [{"translation_text": Translator.from_store(store.path, k=4, beam=1).translate([text])[0]}]


def test_beams_and_the_longest_output_of_one_call(embedded: TranslationModel) -> None:
    translate = knnmt.pipeline("translation", model=embedded.network, tokenizer=embedded.tokenizer)
    before = embedded.network.generation_config.max_length
    short = translate("Prüfen Sie den Akku und laden Sie ihn auf.", max_length=4, num_beams=1, truncation=True)
    assert len(embedded.tokenizer(text_target=short[0]["translation_text"])["input_ids"]) <= 5
    assert embedded.network.generation_config.max_length == before


def test_options_of_generate_hold_for_one_call(embedded: TranslationModel) -> None:
    translate = knnmt.pipeline("translation", model=embedded.network, tokenizer=embedded.tokenizer, beam=1)
    settings = embedded.network.generation_config
    before = settings.to_dict()
    text = "Prüfen Sie den Akku und laden Sie ihn auf."
    assert translate(text, max_new_tokens=3) == translate(text, max_length=4) != translate(text)
    ids = embedded.tokenizer([text], return_tensors="pt")
    tokens = embedded.network.generate(**ids, num_beams=1, max_length=20, min_length=15, no_repeat_ngram_size=2)[0]
    expected = embedded.tokenizer.decode(tokens, skip_special_tokens=True)
    given = translate(text, max_length=20, min_length=15, no_repeat_ngram_size=2, return_text=True)
    assert given == [{"translation_text": expected}]
    assert settings.to_dict() == before


def test_options_of_generate_may_be_given_once_for_all_calls(embedded: TranslationModel) -> None:
    given = {"model": embedded.network, "tokenizer": embedded.tokenizer}
    once = knnmt.pipeline("translation", **given, max_length=4, num_beams=1, truncation=True, framework="pt")
    each = knnmt.pipeline("translation", **given)
    text = "Prüfen Sie den Akku und laden Sie ihn auf."
    assert once(text) == each(text, max_length=4, num_beams=1)
    assert once(text, max_length=9) == once(text, max_new_tokens=8) == each(text, max_length=9, num_beams=1)
    assert once(text, num_beams=2) == each(text, max_length=4, num_beams=2)
    two = knnmt.pipeline("translation", **given, num_return_sequences=2, num_beams=2, torch_dtype="auto")
    assert two(text) == each(text, num_return_sequences=2, num_beams=2)
    assert len(two(text, num_return_sequences=1)) == 1


def test_languages_given_with_a_store(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("Guten Tag\tGood day\n", encoding="utf-8")
    model = load_model(str(tiny_folder("m2m_100")), source_lang="de", target_lang="en")
    build_store(tmp_path / "store", model, [Corpus(tmp_path / "a.tsv")])
    same, back = (
        knnmt.pipeline("translation", store=tmp_path / "store", src_lang=one, tgt_lang=other, weight=0.0, k=1, beam=1)
        for one, other in (("de", "en"), ("en", "de"))
    )
    alone = knnmt.pipeline("translation", model=str(tiny_folder("m2m_100")), src_lang="en", tgt_lang="de", beam=1)
    assert back("Good day") == alone("Good day") == same("Good day", src_lang="en", tgt_lang="de")


def test_several_translations_of_each_text(embedded: TranslationModel) -> None:
    translate = knnmt.pipeline("translation", model=embedded.network, tokenizer=embedded.tokenizer, beam=4)
    expected = [generated(embedded, text, beams=4, several=3) for text in TEXTS[:2]]
    assert translate(TEXTS[0], num_return_sequences=3) == expected[0]
    assert translate(TEXTS[:2], num_return_sequences=3) == translate(*TEXTS[:2], num_return_sequences=3) == expected
    assert list(translate(iter(TEXTS[:2]), num_return_sequences=3)) == expected
    assert translate(TEXTS[2:], num_return_sequences=3) == [[{"translation_text": ""}] * 3]
    by_generate = translate(TEXTS[1], num_return_sequences=2, num_beams=2, no_repeat_ngram_size=2)
    assert by_generate == generated(embedded, TEXTS[1], beams=2, several=2, no_repeat_ngram_size=2)
    with pytest.raises(SettingsError, match="num_return_sequences=5: there are 4 beams; give num_beams=5"):
        translate(TEXTS[0], num_return_sequences=5)


def generated(model: TranslationModel, text: str, *, beams: int, several: int, **options: int) -> list[dict[str, str]]:
    ids = model.tokenizer([text], return_tensors="pt")
    rows = model.network.generate(**ids, num_beams=beams, num_return_sequences=several, **options)
    return [{"translation_text": one} for one in model.tokenizer.batch_decode(rows, skip_special_tokens=True)]


def test_languages_of_the_task_and_of_a_call() -> None:
    translate = knnmt.pipeline("translation_de_to_en", model=str(tiny_folder("m2m_100")), beam=1)
    model = translate.translator.translation_model
    assert (model.source_lang, model.target_lang) == ("de", "en")
    back = translate("Good day", src_lang="en", tgt_lang="de")
    other = knnmt.pipeline("translation", model=str(tiny_folder("m2m_100")), src_lang="en", tgt_lang="de", beam=1)
    assert back == other("Good day")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: knnmt.pipeline("summarization", model="x"), 'pipeline\\("summarization"\\): only'),
        (lambda: knnmt.pipeline("translation"), "model or store is missing"),
        (lambda: knnmt.pipeline("translation", model=tiny_model("marian").network), "needs its tokenizer"),
        (lambda: knnmt.pipeline("translation", model=str(tiny_folder("marian")), batch_size=0), "batch_size 0"),
        (lambda: knnmt.pipeline("translation", model=str(tiny_folder("marian")), odd=3), "odd= is not known"),
        (lambda: knnmt.pipeline("translation", model="x", torch_dtype="float16"), "torch_dtype=float16: not known"),
        (lambda: knnmt.pipeline("translation", model=str(tiny_folder("marian")))("a", odd=3), "odd= is not known"),
        (lambda: knnmt.pipeline("translation", model=str(tiny_folder("marian")))(["a", 3]), "must be str, not int"),
        (lambda: knnmt.pipeline("translation", model=str(tiny_folder("marian")))(3), "must be str, not int"),
        (lambda: knnmt.pipeline("translation", model=str(tiny_folder("marian")))("a", num_return_sequences=0), "be at"),
    ],
)  # fmt: skip
def test_wrong_calls(call: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        call()  # type: ignore[operator]
