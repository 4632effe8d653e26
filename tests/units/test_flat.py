"""Words and gaps: nothing of a unit is lost, and a model sees clean text."""

import pytest
from contents import contents, marked, shown
from hypothesis import given

from knnmt.documents.content import Content, plain_text
from knnmt.units.flat import Flat, flattened, joined_content, spans_of_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  ", []),
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("l'homme n’a", ["l'", "homme", "n’", "a"]),
        ("'quoted'", ["'", "quoted", "'"]),
        ("Open {0} at 1,000.5 %1$s", ["Open", "{0}", "at", "1,000.5", "%1$s"]),
        ("See https://example.org/a?b=1.", ["See", "https://example.org/a?b=1", "."]),
        ("你好。好", ["你", "好", "。", "好"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("e\u0301t\u00e9", ["e\u0301t\u00e9"]),
        ("snake_case x86", ["snake_case", "x", "86"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in spans_of_words(text)] == words


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Click <b>here</b> now.", "Click here now."),
        ("one<br/>two", "one two"),
        ("<i>one</i><i>two</i>", "one two"),
        ("<b>F</b>ile", "File"),
        ("  a \n\n b  ", "a b"),
        ("a <x/> b", "a b"),
        ("Hello<x/>, you", "Hello, you"),
        ("<b></b>", ""),
        ("one.<br/>Two,<x/>three", "one. Two, three"),
        ("(<x/>one) 3.<x/>5", "(one) 3.5"),
    ],
)
def test_what_a_model_sees(content: str, text: str) -> None:
    assert flattened(marked(content)).text() == text


def back(flat: Flat) -> Content:
    pieces = [piece for at, word in enumerate(flat.words) for piece in (*flat.gaps[at], word)]
    return joined_content([*pieces, *flat.gaps[-1]])


@given(contents())
def test_nothing_is_lost(content: Content) -> None:
    flat = flattened(content)
    assert shown(back(flat)) == shown(content)
    assert len(flat.gaps) == len(flat.words) + 1
    assert flat.text().split() == flat.white_text().split()
    spans = flat.spans(0, len(flat.words))
    assert [flat.text()[start:end] for start, end in spans] == list(flat.words)
    assert "".join(plain_text(content).split()) == "".join(flat.words)
