"""Plain text, by lines and by paragraphs."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting import identity, message, opened, rewritten, texts

from knnmt.documents.content import UnitResult

LINES = [
    ("", ""),
    ("eins\n", "EINS\n"),
    ("  eins \r\n\r\n\tzwei", "  EINS \r\n\r\n\tZWEI"),
    ("\ufeffeins\n", "\ufeffEINS\n"),
    ("a\x0bb\u2028c\n\x0c\nd\rx\n", "A\x0bB\u2028C\n\x0c\nD\rX\n"),
]


@pytest.mark.parametrize(("document", "expected"), LINES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_lines(tmp_path: Path, document: str, expected: str, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    found = rewritten(opened(tmp_path, "a.txt", (mark + document).encode(encoding)))
    assert found == (mark + expected).encode(encoding)


def test_columns_of_a_line_are_part_of_its_text(tmp_path: Path) -> None:
    assert [unit.has_lines for unit in opened(tmp_path, "a.txt", "Name:\tWert\n").units()] == [True]
    wrapped = opened(tmp_path, "a.txt", "ein Absatz\nder weitergeht\n", paragraphs=True)
    assert [unit.has_lines for unit in wrapped.units()] == [False]


def test_a_line_break_in_a_translation_makes_no_line(tmp_path: Path) -> None:
    document = opened(tmp_path, "a.txt", "eins\nzwei\n")
    assert rewritten(document, lambda _: UnitResult(("one\ntwo",))) == b"one two\none two\n"


PARAGRAPHS = [
    ("eins zwei\ndrei\n\nvier\n", ["eins zwei drei", "vier"], "EINS ZWEI DREI AB\n\nVIER AB\n"),
    (
        "  Ein langer Satz, der\r\n  umbrochen ist.\r\n\r\n\r\n Neu",
        ["Ein langer Satz, der umbrochen ist.", "Neu"],
        "  EIN LANGER SATZ, DER\r\n  UMBROCHEN IST. AB\r\n\r\n\r\n NEU AB",
    ),
]


@pytest.mark.parametrize(("document", "units", "expected"), PARAGRAPHS)
def test_paragraphs(tmp_path: Path, document: str, units: list[str], expected: str) -> None:
    file = opened(tmp_path, "a.txt", document, paragraphs=True)
    assert texts(file) == units
    longer = rewritten(file, lambda unit: UnitResult((f"{unit.source[0]} ab".upper(),)))
    assert longer == expected.encode()


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60), st.booleans())
def test_the_identity_changes_nothing(tmp_path: Path, document: str, paragraphs: bool) -> None:
    assert rewritten(opened(tmp_path, "a.txt", document, paragraphs=paragraphs), identity) == document.encode()


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    assert message(tmp_path, "a.txt", b"eins\n\xff\n") == "a.txt: line 2 is not utf-8 (invalid start byte)"
    assert message(tmp_path, "a.txt", b"eins\na\0\n") == "a.txt: line 2 is not text (it holds a zero byte)"
    said = message(tmp_path, "a.docx", b"PK")
    assert said.startswith("a.docx: documents of the ending '.docx' are not known; known: .xlf,")
