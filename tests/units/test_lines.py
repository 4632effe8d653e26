"""Lines of a unit: lists stay lists, columns stay columns, and wrapped text is wrapped again."""

import pytest
from contents import contents
from hypothesis import given

from knnmt.documents.content import Content
from knnmt.units.flat import flattened, white
from knnmt.units.lines import Wrapping, ends_of_lines, hard_breaks, wrapped_again, wrapping_of
from knnmt.units.sentences import sentences

WRAPPED = "This is a text of some length that was wrapped\nto a width of forty-six characters, so that\nit fits."
USAGE = "Usage: knnmt [OPTION] FILE\n  -h, --help    show this\n  -V\tversion"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Name\nVorname", ["Name", "Vorname"]),
        ("Drücken Sie\nhier", ["Drücken Sie", "hier"]),
        ("Das ist ein Satz,\nder weitergeht", ["Das ist ein Satz, der weitergeht"]),
        ("Eins:\n- a b c\n- d e f", ["Eins:", "- a b c", "- d e f"]),
        ("one two three\n1. four", ["one two three", "1. four"]),
        ("A title\n\nand a text", ["A title", "and a text"]),
        (WRAPPED, [WRAPPED.replace("\n", " ")]),
        (USAGE, ["Usage: knnmt [OPTION] FILE", "-h, --help", "show this", "-V", "version"]),
        ("one  two", ["one", "two"]),
        ("one\r\ntwo", ["one", "two"]),
        ("", []),
    ],
)
def test_where_lines_end(text: str, expected: list[str]) -> None:
    flat = flattened((text,))
    assert [flat.text(*span) for span in sentences(flat, "en", has_lines=True)] == expected


def test_layout_of_a_file_is_no_line() -> None:
    flat = flattened(("\n   One\n   two  three\n",))
    assert [flat.text(*span) for span in sentences(flat, "en")] == ["One two three"]


def test_wrapped_text_is_wrapped_to_the_same_width() -> None:
    flat = flattened((WRAPPED.replace("\n", "\r\n"),))
    how = wrapping_of(flat)
    assert how == Wrapping(46, "\r\n")
    target = flattened((" ".join(["Wort%s," for _ in range(20)]),))
    done = wrapped_again(target, [(0, len(target.words))], how).white_text()
    assert done.split() == target.text().split()
    assert [len(line) for line in done.split("\r\n")] == [39, 39, 39, 39]
    assert wrapped_again(target, [], how) == target
    assert wrapping_of(flattened(("Name\nVorname",))) is None


@given(contents())
def test_breaks_are_gaps_between_words(content: Content) -> None:
    flat = flattened(content)
    assert set(hard_breaks(flat)) <= set(ends_of_lines(flat)) <= set(range(1, len(flat.words)))
    assert all("\n" in white(flat.gaps[at]) for at in hard_breaks(flat))
    assert [at for span in sentences(flat, "en", has_lines=True) for at in range(*span)] == [*range(len(flat.words))]
