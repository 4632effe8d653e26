"""What a person calls a language, and what each family of models calls it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_FAMILIES
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB

from knnmt.errors import ModelError
from knnmt.text.languages import (
    NLLB_NAMES,
    base_language,
    best_first,
    model_code,
    names_of,
    normal_code,
    same_language,
    three_letters,
)

M2M = M2M_FAMILIES["m2m100"]


@pytest.mark.parametrize(
    ("language", "mbart", "m2m", "nllb"),
    [
        ("de", "de_DE", "de", "deu_Latn"),
        ("en", "en_XX", "en", "eng_Latn"),
        ("zh", "zh_CN", "zh", "zho_Hans"),
        ("ar", "ar_AR", "ar", "arb_Arab"),
        ("fa", "fa_IR", "fa", "pes_Arab"),
        ("DE", "de_DE", "de", "deu_Latn"),
        ("de-DE", "de_DE", "de", "deu_Latn"),
        ("de_AT", "de_DE", "de", "deu_Latn"),
        ("EN-US", "en_XX", "en", "eng_Latn"),
        ("pt-BR", "pt_XX", "pt", "por_Latn"),
        ("zh-CN", "zh_CN", "zh", "zho_Hans"),
    ],
)
def test_a_persons_code_becomes_the_models(language: str, mbart: str, m2m: str, nllb: str) -> None:
    found = [model_code(language, known, "--source-lang") for known in (MBART, M2M, NLLB)]
    assert found == [mbart, m2m, nllb]


@pytest.mark.parametrize(
    ("language", "known", "expected"),
    [
        ("deu_Latn", NLLB, "deu_Latn"),
        ("deu", NLLB, "deu_Latn"),
        ("DEU_LATN", NLLB, "deu_Latn"),
        ("zho-Hant", NLLB, "zho_Hant"),
        ("zh-TW", NLLB, "zho_Hant"),
        ("zh-HK", NLLB, "zho_Hant"),
        ("de_DE", MBART, "de_DE"),
        ("ast", M2M, "ast"),
        ("pt", ["pt", "pt_BR"], "pt"),
        ("pt_br", ["pt", "pt_BR"], "pt_BR"),
    ],
)
def test_the_models_own_code_is_taken_as_it_is(language: str, known: list[str], expected: str) -> None:
    assert model_code(language, known, "--target-lang") == expected


@pytest.mark.parametrize(
    ("flag", "language", "known", "complaint"),
    [
        ("--source-lang", "zho", NLLB, "--source-lang zho: the model has several: zho_Hans, zho_Hant"),
        ("--target-lang", "ace", NLLB, "--target-lang ace: the model has several: ace_Arab, ace_Latn"),
        ("--target-lang", "pt", ["pt_BR", "pt_PT"], "--target-lang pt: the model has several: pt_BR, pt_PT"),
        ("--source-lang", "xx", ["de", "en"], "--source-lang xx: the model does not know it; it knows de, en, …"),
        ("--target-lang", "de", ["fr"], "--target-lang de: the model does not know it; it knows fr, …"),
        ("--target-lang", "d", ["de"], "--target-lang d: the model does not know it; it knows de, …"),
        ("--target-lang", "", ["de"], "--target-lang : the model does not know it; it knows de, …"),
        ("--target-lang", "zh-TW", ["zh"], "--target-lang zh-TW: the model does not know it; it knows zh, …"),
        ("--target-lang", "sr-Latn", ["sr"], "--target-lang sr-Latn: the model does not know it; it knows sr, …"),
    ],
)
def test_what_cannot_be_matched_names_the_flag(flag: str, language: str, known: list[str], complaint: str) -> None:
    with pytest.raises(ModelError) as caught:
        model_code(language, known, flag)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("language", NLLB_NAMES)
def test_every_name_is_one_of_nllbs(language: str) -> None:
    assert model_code(language, NLLB, "--source-lang").startswith(NLLB_NAMES[language])


def test_names_go_from_the_closest_to_the_widest() -> None:
    assert list(names_of("de-AT")) == ["de_AT", "de_AT", "de", "deu"]


@pytest.mark.parametrize(("language", "expected"), [("fr", "fra"), ("FR", "fra"), ("zh", "zho"), ("fra", "fra")])
def test_three_letters(language: str, expected: str) -> None:
    assert three_letters(language) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("zh", "zh"),
        ("zh_CN", "zh"),
        ("zh-TW", "zh"),
        ("zho_Hans", "zh"),
        ("zho_Hant", "zh"),
        ("jpn_Jpan", "ja"),
        ("ja_XX", "ja"),
        ("EN-us", "en"),
        ("deu", "de"),
        ("arb_Arab", "ar"),
        ("yue_Hant", "yue"),
        (None, ""),
    ],
)
def test_base_language(code: str | None, expected: str) -> None:
    assert base_language(code) == expected


# Codes as files write them


@pytest.mark.parametrize(
    ("code", "wanted", "expected"),
    [
        ("de", "de", True),
        ("DE", "de", True),
        ("de-DE", "de", True),
        ("de_AT", "de", True),
        ("DE-de", "de", True),
        ("de", "de-AT", True),
        ("de", "de_AT", True),
        ("de-AT", "de_at", True),
        ("zh-Hans-CN", "zh-Hans", True),
        ("deu", "de", True),
        ("de-DE", "deu", True),
        ("zho_Hans", "zh", True),
        ("de-AT", "de-CH", False),
        ("zh-Hant", "zh-Hans", False),
        ("den", "de", False),
        ("de", "den", False),
        ("d", "de", False),
        ("", "de", False),
        ("de", "en", False),
    ],
)
def test_same_language(code: str, wanted: str, expected: bool) -> None:
    assert same_language(code, wanted) is expected
    assert same_language(wanted, code) is expected


@pytest.mark.parametrize(
    ("code", "expected"), [("DE", "de"), ("deu", "de"), ("de_AT", "de-at"), ("zho_Hans", "zh-hans"), ("", "")]
)
def test_normal_code(code: str, expected: str) -> None:
    assert normal_code(code) == expected


@pytest.mark.parametrize(
    ("codes", "wanted", "other", "expected"),
    [
        (["de-AT", "de", "de-DE"], "de", "en", ["de", "de-AT", "de-DE"]),
        (["de", "de-AT", "de-CH"], "de-AT", "en", ["de-AT", "de"]),
        (["de", "de-CH"], "de-AT", "en", ["de"]),
        (["de-CH"], "de-AT", "en", []),
        (["pt-BR", "pt-PT"], "pt", "pt-BR", ["pt-PT"]),
        (["pt-BR", "pt-PT"], "pt-BR", "pt", ["pt-BR"]),
        (["pt-BR", "pt"], "pt-BR", "pt", ["pt-BR"]),
    ],
)
def test_the_same_code_comes_before_a_regional_one(
    codes: list[str], wanted: str, other: str, expected: list[str]
) -> None:
    assert best_first([(code, code) for code in codes], wanted, other) == expected


LANGUAGE = st.sampled_from(["de", "de-AT", "DE_ch", "en", "en-GB", "fr", "deu", ""])


@given(st.lists(LANGUAGE), LANGUAGE, LANGUAGE)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_best_first_takes_only_the_language(codes: list[str], wanted: str, other: str) -> None:
    chosen = best_first([(code, code) for code in codes], wanted, other)
    assert all(same_language(code, wanted) for code in chosen)
    exact = [code for code in codes if normal_code(code) == normal_code(wanted)]
    assert chosen[: len(exact)] == exact
