"""HTML, translated."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting import identity, message, opened, rewritten, texts

from knnmt.documents.content import Tag, UnitResult

HTML = [
    ("<p>eins</p>\n<p> zwei\n drei </p>", ["eins", "zwei drei"], "<p>EINS</p>\n<p> ZWEI DREI </p>"),
    (
        "<p>a <b class=x>b</b> <i>c</i><br/>d</p>",
        ["a b cd"],
        "<p>A <b class=x>B</b> <i>C</i><br/>D</p>",
    ),
    ("<ul><li>a<li>b</ul>", ["a", "b"], "<ul><li>A<li>B</ul>"),
    ("a &amp; b&nbsp;c &lt; d", ["a & b\xa0c < d"], "A &amp; B&nbsp;C &lt; D"),
    ("<% if a > 1 %><p>a <%= b %> c</p><?php d ?>", ["a  c"], "<% if a > 1 %><p>A <%= b %> C</p><?php d ?>"),
    ("5 < 6 & 7 a", ["5 < 6 & 7 a"], "5 &lt; 6 &amp; 7 A"),
    # attributes
    (
        '<p><a title="x &quot;y&quot;" href="z">a</a><img alt=\'b "c"\'></p>',
        ["a", 'x "y"', 'b "c"'],
        '<p><a title="X &quot;Y&quot;" href="z">A</a><img alt=\'B "C"\'></p>',
    ),
    ("<div title='a'>b</div>", ["a", "b"], "<div title='A'>B</div>"),
    ('<input placeholder=a value="b"><img alt="">', ["a"], '<input placeholder="A" value="b"><img alt="">'),
    # left alone
    ("<script>a < b</script><style>c</style>d", ["d"], "<script>a < b</script><style>c</style>D"),
    ("<script>document.write('</p>')", [], "<script>document.write('</p>')"),
    ("<p>a <code>b <i>c</i></code> d</p>", ["a  d"], "<p>A <code>b <i>c</i></code> D</p>"),
    ("<pre>a</pre><p>b</p>", ["b"], "<pre>a</pre><p>B</p>"),
    ("<!-- a --><!DOCTYPE html><?x y?><p>a<!-- b -->c</p>", ["ac"], "<!-- a --><!DOCTYPE html><?x y?><p>A<!-- b -->C</p>"),
    ("<p>a <span translate=no>b</span> c</p>", ["a  c"], "<p>A <span translate=no>b</span> C</p>"),
    ("<p>a <span class='x notranslate'>b</span> c</p>", ["a  c"], "<p>A <span class='x notranslate'>b</span> C</p>"),
    (
        '<div translate="no">a<p>b</p><p translate="yes">c</p>d</div>e',
        ["c", "e"],
        '<div translate="no">a<p>b</p><p translate="yes">C</p>d</div>E',
    ),
    # what is not well-formed
    ("<p>a<b>b</p>c</b>", ["ab", "c"], "<p>A<b>B</p>C</b>"),
    ("a<", ["a<"], "A&lt;"),
    ("<p title='a>b</p>", ["b"], "<p title='a>B</p>"),
    ("", [], ""),
]  # fmt: skip


@pytest.mark.parametrize(("document", "units", "expected"), HTML)
def test_html(tmp_path: Path, document: str, units: list[str], expected: str) -> None:
    file = opened(tmp_path, "a.html", document)
    assert texts(file) == units
    assert rewritten(file).decode() == expected


ENCODINGS = [
    ("utf-16", "<p>ä</p>", "<p>Ä</p>"),
    ("latin-1", '<meta charset="ISO-8859-1"><p>ä</p>', '<meta charset="ISO-8859-1"><p>Ä</p>'),
    ("cp1251", '<meta http-equiv=x content="text/html; charset=windows-1251"><p>ж</p>',
     '<meta http-equiv=x content="text/html; charset=windows-1251"><p>Ж</p>'),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "document", "expected"), ENCODINGS)
def test_the_encoding_stays(tmp_path: Path, encoding: str, document: str, expected: str) -> None:
    assert rewritten(opened(tmp_path, "a.htm", document.encode(encoding))) == expected.encode(encoding)


def test_a_character_that_the_encoding_has_not_is_a_reference(tmp_path: Path) -> None:
    file = opened(tmp_path, "a.html", b'<meta charset="latin-1"><p>a</p>')
    assert rewritten(file, lambda _: UnitResult(("猫",))) == b'<meta charset="latin-1"><p>&#29483;</p>'


def test_the_language_is_read(tmp_path: Path) -> None:
    assert opened(tmp_path, "a.html", '<!DOCTYPE html>\n<html dir=ltr lang="de-AT">').source_lang == "de-AT"
    assert opened(tmp_path, "a.html", "<html>").source_lang is None


def test_attributes_are_chosen(tmp_path: Path) -> None:
    document = opened(tmp_path, "a.html", "<p title=a aria-label=b>c</p>", attributes=("aria-label",))
    assert texts(document) == ["b", "c"]


def test_tags_are_pairs_where_they_nest(tmp_path: Path) -> None:
    (unit,) = opened(tmp_path, "a.html", "<p><b>a <i>b</i></b><br>c</p>").units()
    found = [(piece.kind, piece.pair) for piece in unit.source if isinstance(piece, Tag)]
    assert found == [("open", 2), ("open", 1), ("close", 1), ("close", 2), ("empty", None)]


def test_a_translation_makes_no_markup(tmp_path: Path) -> None:
    nasty = "<script>\"'&amp;"
    file = opened(tmp_path, "a.html", "<p title='a'>b</p>")
    again = opened(tmp_path, "b.html", rewritten(file, lambda _: UnitResult((nasty,))))
    assert texts(again) == [nasty, nasty]


@pytest.mark.parametrize("count", [20_000])
@pytest.mark.parametrize(
    "text", ["<a x ", "<a '", "<b>", "<code>", "<span translate=no>", "<!--", "</p>", "&lt", " <p"]
)
def test_nothing_takes_longer_than_the_text(tmp_path: Path, text: str, count: int) -> None:
    """Would take minutes if it were quadratic."""
    document = text * count
    assert rewritten(opened(tmp_path, "a.html", document), identity).decode() == document


PIECES = ["<p>", "</p>", "<b>", "</b>", "<code>", "</code>", "<img alt='x' title=y>", "<!--", "-->", "<script>", "</script>",
          "a ", "&amp;", "&nbsp", "<", ">", "\n", "\r\n", '"', "שלום", "<span translate=no>", "</span>", "<pre>", "</pre>"]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_the_identity_changes_nothing(tmp_path: Path, document: str) -> None:
    assert rewritten(opened(tmp_path, "a.html", document), identity).decode() == document


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        (b"<p>\xff</p>", "a.html: line 1 is not utf-8 (invalid start byte)"),
        (b"<meta charset=nope>", "a.html: names the encoding 'nope', which cannot be read"),
    ]
    for document, expected in wrong:
        assert message(tmp_path, "a.html", document) == expected
