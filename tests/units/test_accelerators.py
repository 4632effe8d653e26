"""Marks of accelerators: known by the file or by their shape, and put back once."""

import pytest
from contents import contents, marked, shown
from hypothesis import given
from hypothesis import strategies as st

from knnmt.documents.content import Content
from knnmt.units.accelerators import Accelerator, with_accelerator, without_accelerator

BOTH = "&_"


@pytest.mark.parametrize(
    ("text", "signs", "without", "letter"),
    [
        ("&Datei", BOTH, "Datei", "D"),
        ("_Datei öffnen …", BOTH, "Datei öffnen …", "D"),
        ("D&atei", BOTH, "Datei", "a"),
        ("E_xit", BOTH, "Exit", "x"),
        ("Save _as...", BOTH, "Save as...", "a"),
        ("Show _hidden files", BOTH, "Show hidden files", "h"),
        ("<b>&Foo</b> & bar", BOTH, "<b>Foo</b> & bar", "F"),
        ("文件(&F)", BOTH, "文件", "F"),
        ("打开 (_O)…", BOTH, "打开…", "O"),
        ("~Datei", "~", "Datei", "D"),
        ("max_size", "_", "maxsize", "s"),
        ("Ein langer Satz, der sagt, wofür dieses _Feld gut ist, und noch mehr.", "_", None, "F"),
    ],
)
def test_marks_are_known(text: str, signs: str, without: str | None, letter: str) -> None:
    content, accelerator = without_accelerator(marked(text), signs)
    assert shown(content) == (without or text.replace("_", ""))
    assert accelerator is not None
    assert accelerator.letter == letter


@pytest.mark.parametrize(
    "text",
    [
        "R&D", "AT&T", "a & b", "a && b", "&&Datei", "&amp; mehr", "file_name", "max_size", "__init__", "_fett_",
        "&Datei &Bild", "&Datei _Bild", "%(file_name)s fehlt", "https://a.b/?c=1&d=2", "Die Variable _x fehlt.",
        "Ein langer Text, der kein Label ist, weil er viel zu lang ist: _Datei", "{a_b}", "", "&", "100&1",
    ],
)  # fmt: skip
def test_what_is_no_mark(text: str) -> None:
    assert without_accelerator(marked(text), BOTH) == (marked(text), None)


@pytest.mark.parametrize(
    ("text", "letter", "expected"),
    [
        ("File", "D", "&File"),
        ("Open a document", "D", "Open a &document"),
        ("%s öffnen", "x", "%s &öffnen"),
        ("{name}: save", "n", "{name}: &save"),
        ("<b>Save</b> as", "A", "<b>Save</b> &as"),
        ("文件", "f", "文件(&F)"),
        ("打开…", "O", "打开(&O)…"),
        ("打开<x/>", "O", "打开<x/>(&O)"),
        ("amp; x", "a", "amp; &x"),
        ("42", "D", "42(&D)"),
        ("", "D", "(&D)"),
    ],
)
def test_marks_return(text: str, letter: str, expected: str) -> None:
    assert shown(with_accelerator(marked(text), Accelerator("&", letter))) == expected


@given(contents(), st.sampled_from("&_~"))
def test_what_was_put_back_is_found_again(content: Content, sign: str) -> None:
    done = with_accelerator(content, Accelerator(sign, "D"))
    again, accelerator = without_accelerator(done, sign)
    assert shown(again) == shown(content)
    assert accelerator is not None
