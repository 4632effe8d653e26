"""Texts with markup: what is text, what is a tag, what comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.documents.content import Tag
from knnmt.service.markup import contents, spoken, written_markup


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", [("plain",)]),
        ("a < b and c > d", [("a < b and c > d",)]),
        ("R&amp;D", [("R&amp;D",)]),
        ("see [X10X] now", [("see [X10X] now",)]),
        (
            '<a id="a1">x</a>',
            [(Tag('<a id="a1">', "open", 1), "x", Tag("</a>", "close", 1))],
        ),
        ('<x id="10"></x>!', [(Tag('<x id="10">', "open", 1), Tag("</x>", "close", 1), "!")]),
        ("<b>x", [(Tag("<b>"), "x")]),
        ("x</b>", [("x", Tag("</b>"))]),
        ("a<br>b<br/>c", [("a", Tag("<br>"), "b", Tag("<br/>"), "c")]),
        ("<b><i>x</b></i>", [(Tag("<b>", "open", 1), Tag("<i>"), "x", Tag("</b>", "close", 1), Tag("</i>"))]),
    ],
)
def test_plain_text(text: str, expected: list[object]) -> None:
    assert contents(text, is_html=False) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R&amp;D &lt;b&gt;", [("R&D <b>",)]),
        ("<p>One.</p><p>Two <b>big</b>.</p>", ["<p>", ("One.",), "</p>", "<p>",
            ("Two ", Tag("<b>", "open", 1), "big", Tag("</b>", "close", 1), "."), "</p>"]),
        ("<script>a < b</script>x", [(Tag("<script>a < b</script>"), "x")]),
        ("<!-- a <b> -->x", [(Tag("<!-- a <b> -->"), "x")]),
        ("<ul><li>a</li></ul>", ["<ul>", "<li>", ("a",), "</li>", "</ul>"]),
    ],
)  # fmt: skip
def test_html(text: str, expected: list[object]) -> None:
    assert contents(text, is_html=True) == expected


SOME = st.lists(st.sampled_from(["<b>", "</b>", "<br>", "<p>", "</p>", "&amp;", "a", " ", "<", ">", "[X1X]", "ü"])).map(
    "".join
)


def again(text: str, *, is_html: bool) -> str:
    parts = contents(text, is_html=is_html)
    return "".join(one if isinstance(one, str) else written_markup(one, is_html=is_html) for one in parts)


@given(SOME)
def test_plain_text_comes_back_as_it_was(text: str) -> None:
    assert (
        "".join(
            one if isinstance(one, str) else written_markup(one, is_html=False) for one in contents(text, is_html=False)
        )
        == text
    )


@given(SOME)
def test_html_says_the_same_when_it_comes_back(text: str) -> None:
    back = again(text, is_html=True)
    assert contents(back, is_html=True) == contents(text, is_html=True)
    assert spoken(back, is_html=True) == spoken(text, is_html=True)
