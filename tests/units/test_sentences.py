"""Sentences and clauses: whole, in order, nothing lost."""

import pytest
from contents import contents, marked
from hypothesis import given
from hypothesis import strategies as st

from knnmt.documents.content import Content
from knnmt.units.flat import flattened
from knnmt.units.sentences import clauses, sentences


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith came. He left.", ["Dr. Smith came.", "He left."]),
        ("en", "See e.g. page 3. Then stop!  Really?", ["See e.g. page 3.", "Then stop!", "Really?"]),
        ("fr", "M. Dupont est là. Il part.", ["M. Dupont est là.", "Il part."]),
        ("de", "Am 3. Mai kam Dr. Ott z. B. her. Er ging.", ["Am 3. Mai kam Dr. Ott z. B. her.", "Er ging."]),
        ("zh", "你好。今天天气很好！", ["你好。", "今天天气很好！"]),
        ("ja", "これはペンです。あれは本です。", ["これはペンです。", "あれは本です。"]),
        ("en", "A title\n\nA paragraph", ["A title", "A paragraph"]),
        ("en", "Go to https://a.org/page. Then %s. 1. Stop", ["Go to https://a.org/page.", "Then %s.", "1. Stop"]),
        ("en", "First <b>one.</b> Then two.", ["First one.", "Then two."]),
        ("de", "Das ist <x/>.<br/>Neue Zeile, <x/>zwei:<x/>drei", ["Das ist .", "Neue Zeile, zwei: drei"]),
        ("de", "Datentr.-Sektoren: %s. Ja", ["Datentr.-Sektoren: %s.", "Ja"]),
        ("zh", "你好！OK。Windows。好", ["你好！", "OK。", "Windows。", "好"]),
        (None, "One. Two.", ["One.", "Two."]),
        ("xx", "One. Two.", ["One.", "Two."]),
        ("en", "", []),
    ],
)  # fmt: skip
def test_sentences(language: str | None, text: str, expected: list[str]) -> None:
    flat = flattened(marked(text))
    assert [flat.text(*span) for span in sentences(flat, language)] == expected


@given(contents(), st.sampled_from(["en", "de", "zh", None]))
def test_sentences_are_all_words(content: Content, language: str | None) -> None:
    flat = flattened(content)
    spans = sentences(flat, language)
    assert [at for first, last in spans for at in range(first, last)] == list(range(len(flat.words)))


def test_what_is_too_long_is_split_at_clauses() -> None:
    flat = flattened(("one two three, four five six; seven eight nine, ten eleven",))
    found = clauses(flat, (0, len(flat.words)), lambda text: len(text) < 40)
    assert [flat.text(*span) for span in found] == ["one two three, four five six;", "seven eight nine, ten eleven"]


@given(st.lists(st.sampled_from(["ab", "cdefg", ",", ";", "."]), min_size=1, max_size=40), st.integers(5, 30))
def test_clauses_fit_and_are_all_words(words: list[str], longest: int) -> None:
    flat = flattened((" ".join(words),))
    spans = clauses(flat, (0, len(flat.words)), lambda text: len(text) <= longest)
    assert [at for first, last in spans for at in range(first, last)] == list(range(len(flat.words)))
    assert all(len(flat.text(*span)) <= longest for span in spans)
