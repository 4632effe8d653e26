"""CSV, TSV and JSON lines, translated."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting import capitals, identity, message, opened, rewritten, texts
from xml_readers import peak_memory

from knnmt.documents.content import UnitResult
from knnmt.text.tables import unguarded

CSV = [
    ("source,target\na,\n", {}, "source,target\na,A\n"),
    ("id;Source;Target;n\r\n1;a;;x\r\n2;b;B!;\r\n", {}, "id;Source;Target;n\r\n1;a;A;x\r\n2;b;B!;\r\n"),
    ('"source","target"\n"a, ""b""\nc",""\n', {}, '"source","target"\n"a, ""b""\nc","A, ""B""\nC"\n'),
    ("id,source\n1,a", {}, "id,source,target\n1,a,A"),
    ("id,source\n1,\n\n2,b\n", {}, "id,source,target\n1,,\n\n2,b,B\n"),
    ("a,\nb,x\n", {}, "a,A\nb,x\n"),
    ("a\nb\n", {}, "a,A\nb,B\n"),
    ("sep=;\nsource;target\na;\n", {}, "sep=;\nsource;target\na;A\n"),
    ("\ufeffsource,target\n a ,\n", {}, "\ufeffsource,target\n a , A \n"),
    ("de,note\nhallo,x\n", {"source_lang": "de", "target_lang": "en"}, "de,note,en\nhallo,x,HALLO\n"),
    ("en,de-AT\n,hallo\n", {"source_lang": "de", "target_lang": "en"}, "en,de-AT\nHALLO,hallo\n"),
    ("k,v,t\n1,a,\n", {"columns": ("v", "t")}, "k,v,t\n1,a,A\n"),
    ("k,v\n1,a\n", {"columns": ("v", "new, name")}, 'k,v,"new, name"\n1,a,A\n'),
    ("source,target\na,x\n", {"all_units": True}, "source,target\na,A\n"),
    ('source,target\n5" pipe,\n', {}, 'source,target\n5" pipe,"5"" PIPE"\n'),
    ("source,target\n'=x,\n-y,\n", {}, "source,target\n'=x,'=X\n-y,-Y\n"),
]
TSV = [
    ("source\ttarget\na\t\n", {}, "source\ttarget\na\tA\n"),
    ('id\tsource\n1\t"a\n', {}, 'id\tsource\ttarget\n1\t"a\t"A\n'),
    ("a\tb\r\n c \t\r\n", {}, "a\tb\r\n c \t C \r\n"),
]
JSONL = [
    ('{"source": "a"}\n', {}, '{"source": "a", "target": "A"}\n'),
    ('{"target":null,"source":"a","n":[1.0, {"x":2}]}', {}, '{"target":"A","source":"a","n":[1.0, {"x":2}]}'),
    ('{"source":"a","n":1e3}\r\n\r\n', {}, '{"source":"a","n":1e3,"target":"A"}\r\n\r\n'),
    ('{"source": "a", "target": "da"}\n{"source": "", "x": 1}\n', {}, '{"source": "a", "target": "da"}\n{"source": "", "x": 1}\n'),
    ('{"source": "\\u00e4"}', {}, '{"source": "\\u00e4", "target": "\\u00c4"}'),
    ('{"source": "ä\\n"}', {}, '{"source": "ä\\n", "target": "Ä\\n"}'),
    ('{"k": {"source": "x"}, "v": "a"}', {"columns": ("v", "w")}, '{"k": {"source": "x"}, "v": "a", "w": "A"}'),
    (
        '{"id": 1, "translation": {"de": "a", "fr": "b"}, "z": 2}',
        {"source_lang": "de", "target_lang": "en"},
        '{"id": 1, "translation": {"de": "a", "fr": "b", "en": "A"}, "z": 2}',
    ),
    (
        '{"translation": {"en": "", "de_AT": "a"}}',
        {"source_lang": "de", "target_lang": "en"},
        '{"translation": {"en": "A", "de_AT": "a"}}',
    ),
]  # fmt: skip
TABLES = [(name, *row) for name, rows in (("a.csv", CSV), ("a.tsv", TSV), ("a.jsonl", JSONL)) for row in rows]


@pytest.mark.parametrize(("name", "document", "options", "expected"), TABLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tables(
    tmp_path: Path, name: str, document: str, options: dict[str, Any], expected: str, encoding: str
) -> None:
    if encoding == "utf-16":
        document, expected = document.removeprefix("\ufeff"), expected.removeprefix("\ufeff")
    assert rewritten(opened(tmp_path, name, document.encode(encoding), **options)) == expected.encode(encoding)


FORMULAS = [
    "=SUM(A1:A3)", "=A2&\" kg\"", "=HYPERLINK(\"a\";\"b c\")", "=Summe(A1;B2)", "=$B$2*3", "=1+2", "= 1.5", "=Blatt1!A1",
    "='Blatt 1'!A1", "=(A1+B1)/2", "+SUM(A1)", "@SUM(A1;2)", "-SUM(A1)", "=cmd|' /C calc'!A0", "+cmd|'x'!A1", "=-A1",
]  # fmt: skip
TEXTS = [
    "- Kette prüfen", "-y", "=> weiter", "= Ergebnis", "== Titel ==", "@anna fragt", "+49 ist Deutschland", "=A4 Papier",
    "-Schalter(n) prüfen", "'=SUM(A1)", "A1+B1", "-- Ende", "=3 mm Spiel",
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("all_units", [False, True])
def test_formulas_are_left_alone(tmp_path: Path, name: str, all_units: bool) -> None:
    separator, kind = (",", csv.QUOTE_MINIMAL) if name == "a.csv" else ("\t", csv.QUOTE_NONE)
    text = io.StringIO()
    rows = [
        ["source", "target"],
        *([formula, ""] for formula in FORMULAS),
        [FORMULAS[0], "x"],
        *([one, ""] for one in TEXTS),
    ]
    csv.writer(text, delimiter=separator, quoting=kind, quotechar=None if kind else '"', lineterminator="\n").writerows(
        rows
    )
    document = opened(tmp_path, name, text.getvalue(), all_units=all_units)
    assert texts(document) == [unguarded(one) if name == "a.csv" else one for one in TEXTS]
    lines = text.getvalue().split("\n")[: len(FORMULAS) + 2]
    assert rewritten(document).decode().split("\n")[: len(FORMULAS) + 2] == lines


def test_a_translation_does_not_become_a_formula(tmp_path: Path) -> None:
    document = opened(tmp_path, "a.csv", "source,target\na,\n")
    assert rewritten(document, lambda _: UnitResult(("=1+1",))) == b"source,target\na,'=1+1\n"


def test_a_translation_stays_in_its_cell(tmp_path: Path) -> None:
    nasty = 'a,"b\n\tc'
    out = rewritten(opened(tmp_path, "a.csv", "source,target\na,\n"), lambda _: UnitResult((nasty,))).decode()
    assert list(csv.reader(io.StringIO(out))) == [["source", "target"], ["a", nasty]]
    assert rewritten(opened(tmp_path, "a.tsv", "a\t\n"), lambda _: UnitResult((nasty,))) == b'a\ta,"b  c\n'
    out = rewritten(opened(tmp_path, "a.jsonl", '{"source": "a"}'), lambda _: UnitResult((nasty,))).decode()
    assert json.loads(out) == {"source": "a", "target": nasty}


WRONG = [
    ("a.csv", "a,b,c\n", "a.csv: line 1 has 3 comma-separated columns and no header; name source and target in a header, or choose two of its names with --columns"),
    ("a.csv", "source,target\na\n", "a.csv: line 2 has 1 comma-separated columns instead of 2"),
    ("a.csv", 'source,target\n"a,\nb,\n', "a.csv: line 2 is not CSV: a quote is not closed"),
    ("a.csv", 'source,target\n"a"b,\n', "a.csv: line 2 is not CSV: text after a closed quote"),
    ("a.jsonl", '{"source": "a"\n', "a.jsonl: line 1, column 1 is not JSON: Expecting ',' delimiter"),
    ("a.jsonl", '["a"]\n', "a.jsonl: line 1: not an object"),
    ("a.jsonl", '{}\n', "a.jsonl: line 1: no text under 'source'"),
    ("a.jsonl", '{"source": 1}\n', "a.jsonl: line 1: no text under 'source'"),
    ("a.jsonl", '{"source": "a"} x\n', "a.jsonl: line 1: has text after its object"),
    ("a.jsonl", '{"source": "a", "source": "b"}\n', "a.jsonl: line 1: has 'source' twice"),
    ("a.jsonl", '{"translation": {"de": "a"}}\n', "a.jsonl: line 1: name the languages with --source-lang and --target-lang"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "document", "expected"), WRONG)
def test_wrong_files_are_one_line(tmp_path: Path, name: str, document: str, expected: str) -> None:
    said = message(tmp_path, name, document)
    assert said == expected or ("column" in expected and said.startswith("a.jsonl: line 1, column"))


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = message(tmp_path, "a.csv", "k,v\n1,a\n", columns=("x", "v"))
    assert said == "a.csv: line 1 names no column 'x'; it has 'k', 'v'"


CELL = st.text(st.sampled_from("ab \",;\n\té'"), max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_with_the_identity_only_targets_change(
    tmp_path: Path, rows: list[tuple[str, str, str]], line_end: str, all_quoted: bool
) -> None:
    """Compared with Python's own reader: every other cell says the same, and full targets and all else are the same bytes."""
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=line_end, quoting=quoting).writerows([("x", "source", "target"), *rows])
    before = text.getvalue().encode()
    after = rewritten(opened(tmp_path, "a.csv", before), identity)
    read = [list(csv.reader(io.StringIO(data.decode(), newline=""))) for data in (before, after)]
    for old, new in zip(*read, strict=True):
        if new != old:
            assert new[:2] == old[:2]
            assert not unguarded(old[2]).strip()
            assert new[2].lstrip("'") == old[1].lstrip("'")
    filled = [row for row in rows if unguarded(row[2]).strip() or not unguarded(row[1]).strip()]
    if len(filled) == len(rows):
        assert after == before


LONG = "Text " + "x" * 500


@pytest.mark.parametrize(
    ("name", "line"),
    [("a.csv", f"{LONG},\n"), ("a.tsv", f"{LONG}\t\n"), ("a.jsonl", f'{{"source": "{LONG}"}}\n'), ("a.txt", f"{LONG}\n"),
     ("a.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{LONG}\n\n")],
)  # fmt: skip
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str, line: str) -> None:
    peaks = []
    for count in (100, 1_500):
        document = opened(tmp_path, name, line * count)
        with peak_memory() as peak, (tmp_path / "out").open("wb") as out:
            document.write((capitals(unit) for unit in document.units()), out)
        peaks.append(peak[0])
        assert (tmp_path / "out").read_bytes().count(b"TEXT") == count
    assert peaks[1] < peaks[0] + 150_000


def test_gzipped_documents_are_read(tmp_path: Path) -> None:
    import gzip

    assert texts(opened(tmp_path, "a.csv.gz", gzip.compress(b"source,target\na,\n"))) == ["a"]
