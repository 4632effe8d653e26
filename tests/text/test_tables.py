"""Tables: with and without a header, tab-separated and CSV, and every way in which they are broken."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.errors import CorpusError
from knnmt.text.corpus import Corpus
from knnmt.text.tables import layout_of_header, read_table
from knnmt.text.units import Unit

TIME = "2024-05-01T12:00:00Z"
Languages = tuple[str | None, str | None]


def units(
    path: Path,
    content: str | bytes,
    languages: Languages = ("de", "en"),
    columns: tuple[str, str] | None = None,
) -> list[Unit]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_table(path, languages, columns))


def message(
    path: Path, content: str | bytes, languages: Languages = ("de", "en"), columns: tuple[str, str] | None = None
) -> str:
    with pytest.raises(CorpusError) as caught:
        units(path, content, languages, columns)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def as_csv(table: str) -> str:
    file = io.StringIO()
    csv.writer(file).writerows(line.split("\t") for line in table.splitlines())
    return file.getvalue()


# Headers


@pytest.mark.parametrize("form", ["tsv", "csv"])
@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("source\ttarget", Unit("a", "b")),
        ("Source\tTARGET", Unit("a", "b")),
        ("target\tsource", Unit("b", "a")),
        ("de\ten", Unit("a", "b")),
        ("en\tde", Unit("b", "a")),
        ("de-DE\ten_US", Unit("a", "b")),
        ("deu\teng", Unit("a", "b")),
    ],
)
def test_two_columns_under_a_header(tmp_path: Path, form: str, header: str, expected: Unit) -> None:
    table = f"{header}\na\tb\n"
    assert units(tmp_path / f"a.{form}", as_csv(table) if form == "csv" else table) == [expected]


@pytest.mark.parametrize("form", ["tsv", "csv"])
@pytest.mark.parametrize(
    "first",
    [
        "Quelle\tZiel",
        "source\tQuelle",
        "der source\tthe target",
        "de\tfr",
        "fr\tit",
        "Deutsch\tEnglish",
        "De-Icing\tEn-suite",
        "De facto\tEn route",
    ],
)
def test_a_first_line_of_text_is_a_pair(tmp_path: Path, form: str, first: str) -> None:
    table = f"{first}\na\tb\n"
    found = units(tmp_path / f"a.{form}", as_csv(table) if form == "csv" else table)
    assert found == [Unit(*first.split("\t")), Unit("a", "b")]


def test_without_languages_their_codes_are_text(tmp_path: Path) -> None:
    assert units(tmp_path / "a.tsv", "de\ten\n", (None, None)) == [Unit("de", "en")]


@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_further_columns_are_metadata(tmp_path: Path, form: str) -> None:
    table = (
        "id\tde\tClient\ten\tCreated\tcorpus\tfr\t\n"
        "7\teins\tA\tone\t20240501T120000Z\thouse\tun\tlast\n"
        "\tzwei\t\ttwo\tgestern\t\t\t\n"
    )
    found = units(tmp_path / f"a.{form}", as_csv(table) if form == "csv" else table)
    assert found == [
        Unit("eins", "one", TIME, {"id": "7", "Client": "A", "fr": "un", "column 8": "last"}),
        Unit("zwei", "two", "", {"created": "gestern"}),
    ]


def test_a_metadata_column_may_hold_an_object(tmp_path: Path) -> None:
    table = 'source\ttarget\tmetadata\na\tb\t{"x": "y", "n": 1}\nc\td\tplain\ne\tf\t"text"\n'
    assert [unit.metadata for unit in units(tmp_path / "a.tsv", table)] == [
        {"x": "y"},
        {"metadata": "plain"},
        {"metadata": '"text"'},
    ]


@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_columns_are_chosen_by_name(tmp_path: Path, form: str) -> None:
    table = "source\tZiel\tQuelle\ttarget\nx\tone\teins\ty\n"
    content = as_csv(table) if form == "csv" else table
    found = units(tmp_path / f"a.{form}", content, columns=("Quelle", "Ziel"))
    assert found == [Unit("eins", "one", "", {"source": "x", "target": "y"})]


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        ("a\tb", ("a", "c"), "line 1 names no column 'c'; it has 'a', 'b'"),
        ("a\tb", ("b", "b"), "line 1: the column 'b' is chosen for both sides"),
        ("a\tb\tx\tx", ("a", "b"), "line 1 names the column 'x' twice"),
        ("source\ttarget\tsource", None, "line 1 names the column 'source' twice"),
    ],
)
def test_headers_that_cannot_be_used(
    tmp_path: Path, header: str, columns: tuple[str, str] | None, expected: str
) -> None:
    assert message(tmp_path / "a.tsv", f"{header}\n1\t2\t3\t4\n", columns=columns) == expected


def test_columns_are_only_for_tables(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(CorpusError, match=r"a\.jsonl: --columns is only for \.tsv and \.csv files"):
        Corpus(tmp_path / "a.jsonl", columns=("a", "b"))


def test_a_corpus_passes_its_columns_on(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\neins,one\n", encoding="utf-8")
    assert list(Corpus(tmp_path / "a.csv", columns=("y", "x")).units()) == [Unit("one", "eins")]


# CSV


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,b\n", [("a", "b")]),
        ('"a, b",c\r\n"d ""e""",f', [("a, b", "c"), ('d "e"', "f")]),
        ('"two\r\nlines",c\n', [("two\nlines", "c")]),
        ("a;b\nc;d\n", [("a", "b"), ("c", "d")]),
        ('"a, b";"c"\n', [("a, b", "c")]),
        ("a\tb\n", [("a", "b")]),
        ("\n\na;b\n", [("", ""), ("", ""), ("a", "b")]),
        ("a,b\n\n,\nc,\n", [("a", "b"), ("", ""), ("", ""), ("c", "")]),
        ("\ufeffsource,target\na,b\n", [("a", "b")]),
        ("", []),
    ],
)
def test_csv(tmp_path: Path, content: str, expected: list[tuple[str, str]]) -> None:
    assert [(unit.source, unit.target) for unit in units(tmp_path / "a.csv", content)] == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_utf16_with_byte_order_mark(tmp_path: Path, form: str, encoding: str) -> None:
    table = "source\ttarget\r\nGrüße 😀\tGreetings €\r\n"
    content = ("" if encoding == "utf-16" else "\ufeff") + table
    assert units(tmp_path / f"a.{form}", content.encode(encoding)) == [Unit("Grüße 😀", "Greetings €")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,b\nc\n", "line 2 has 1 comma-separated columns instead of 2"),
        ("a;b\nc;d;e\n", "line 2 has 3 semicolon-separated columns instead of 2"),
        ("a,b,c\n", "line 1 has 3 comma-separated columns instead of 2; name source and target in a header"),
        ("source,target,x\na,b\n", "line 2 has 2 comma-separated columns instead of 3"),
        ('a,b\n"c,d\n', "line 2 is not CSV: unexpected end of data; is a quote not closed?"),
        ('a,b\n"c"x,d\n', "line 2 is not CSV: ',' expected after '\"'"),
        ('a,b\n"' + ("x" * (9 << 20) + "\n") * 2 + '",d\n', "line 3 is not CSV: field larger than field limit"),
        ("a,b\rc,d\n", "line 1 is not CSV: "),
        (b"a,b\nf\xfcr,for\n", "line 2 is not UTF-8 (invalid start byte)"),
        ("a,b\n".encode("utf-16") + b"x", "not UTF-16 after line "),
        ("a,b\nc\0,d\n".encode("utf-16"), "line 2 is not UTF-16 text (it holds a zero character)"),
        ("a,b\nc\0,d\n", "line 2 is not UTF-8 text (it holds a zero byte)"),
    ],
)
def test_broken_csv(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert message(tmp_path / "a.csv", content).startswith(expected)


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff"), max_size=12)


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=4), st.sampled_from(",;"), st.sampled_from(["utf-8", "utf-16"]))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_what_the_csv_module_writes_is_read(
    tmp_path: Path, rows: list[tuple[str, str, str]], separator: str, encoding: str
) -> None:
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows([("target", "note", "source"), *rows])
    found = units(tmp_path / "a.csv", file.getvalue().encode(encoding))
    expected = [
        Unit(source, target, "", {"note": note} if note else {}) if (source + target + note).strip() else Unit("", "")
        for target, note, source in rows
    ]
    assert found == expected


def test_a_header_of_many_names_is_read_in_one_pass() -> None:
    """Comparing each of them with all others would take minutes."""
    names = ["source", "target", *(f"name {number}" for number in range(200_000))]
    assert layout_of_header(names, 0, 1, where="row 1").source == 0
    with pytest.raises(CorpusError, match="'name 199999' twice"):
        layout_of_header([*names, names[-1]], 0, 1, where="row 1")
