"""Two documents as parallel text."""

from pathlib import Path

import pytest
from parallel_text import message

from knnmt.units.pairs import DocumentPair, is_document_pair


def pair(tmp_path: Path, ending: str, left: str, right: str) -> DocumentPair:
    files = tmp_path / f"a.de{ending}", tmp_path / f"a.en{ending}"
    for file, text in zip(files, (left, right), strict=True):
        file.write_text(text, encoding="utf-8")
    assert is_document_pair(*files)
    return DocumentPair(*files)


@pytest.mark.parametrize(
    ("ending", "left", "right"),
    [
        (".html", "<p>Ein <b>Haus</b></p><p>Zwei</p>", "<p>A <b>house</b></p><p>Two</p>"),
        (".md", "Ein *Haus*\n\nZwei\n", "A *house*\n\nTwo\n"),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\nEin Haus\n\n2\n00:00:03,000 --> 00:00:04,000\nZwei\n",
         "1\n00:00:01,000 --> 00:00:02,000\nA house\n\n2\n00:00:03,000 --> 00:00:04,000\nTwo\n"),
    ],
)  # fmt: skip
def test_units_are_aligned(tmp_path: Path, ending: str, left: str, right: str) -> None:
    units = [(unit.source, unit.target) for unit in pair(tmp_path, ending, left, right).units()]
    assert units == [("Ein Haus", "A house"), ("Zwei", "Two")]


def test_more_units_on_one_side_are_an_error(tmp_path: Path) -> None:
    said = message(pair(tmp_path, ".html", "<p>a</p><p>b</p>", "<p>a</p>"))
    assert said.endswith("units must be aligned")
    assert "ends at unit 1" in said


def test_what_is_no_pair_of_documents() -> None:
    assert not is_document_pair(Path("a.html"), None)
    assert not is_document_pair(Path("a.html"), Path("b.md"))
    assert not is_document_pair(Path("a.txt"), Path("b.txt"))
    assert not is_document_pair(Path("a.de"), Path("a.en"))
