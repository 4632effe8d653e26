"""What is written is read again: the same texts, times and metadata, whatever they hold."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.errors import CorpusError
from knnmt.text.corpus import Corpus, Segment, Skipped, one_line
from knnmt.text.exporting import write_memory

FORMS = ["tmx", "tsv", "csv", "jsonl", "tmx.gz", "tsv.gz", "csv.gz", "jsonl.gz"]
LANGUAGES = ("de", "en")
TIME = "2024-05-01T12:00:00Z"


def written_and_read(path: Path, segments: list[Segment]) -> list[Segment]:
    assert write_memory(path, iter(segments), LANGUAGES) == len(segments)
    skipped = Skipped()
    again = list(Corpus(path, languages=LANGUAGES, name="memory").segments(skipped))
    assert not skipped.total
    return again


def message(path: Path, segments: list[Segment], languages: tuple[str | None, str | None] = LANGUAGES) -> str:
    with pytest.raises(CorpusError) as caught:
        write_memory(path, segments, languages)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not path.exists()
    return str(caught.value)


CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
TEXT = (
    st.text(st.one_of(CHARACTERS, st.sampled_from("\t\"'<>&;\\,|\u202e\u05d0\u200f😀{}%$")), min_size=1, max_size=20)
    .map(one_line)
    .filter(bool)
)
VALUE = st.text(st.one_of(CHARACTERS, st.sampled_from('\n\r\t"<&\x85\u2028')), max_size=12)
OWN_NAMES = [
    "note",
    "tuid",
    "creationid",
    "changedate",
    "creationdate",
    "created",
    "source",
    "metadata",
    "prop",
    "type",
]
NAME = st.one_of(st.sampled_from(OWN_NAMES), VALUE).filter(lambda name: name != "corpus")
METADATA = st.dictionaries(NAME, st.one_of(VALUE, st.just("20200101T000000Z"), st.just('{"a": "b"}')), max_size=4)
PAIR = st.tuples(TEXT, TEXT, st.sampled_from(["", TIME, "0001-01-01T00:00:00Z", "1999-12-31T23:59:59Z"]), METADATA)


@pytest.mark.parametrize("form", FORMS)
@given(pairs=st.lists(PAIR, max_size=4))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_reading_an_export_gives_equal_segments(
    tmp_path: Path, form: str, pairs: list[tuple[str, str, str, dict[str, str]]]
) -> None:
    segments = [
        Segment(source, target, "memory", number, created, metadata)
        for number, (source, target, created, metadata) in enumerate(pairs, start=1)
    ]
    assert written_and_read(tmp_path / f"memory.{form}", segments) == segments


MEMORY = (
    '<tmx version="1.4"><header srclang="*all*"/><body>'
    '<tu tuid="7" creationdate="20240501T120000Z" creationid="ANNA"><note>erste</note><note>zweite</note>'
    '<prop type="client">A &amp; B</prop>'
    '<tuv xml:lang="fr"><seg>un</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv>'
    '<tuv xml:lang="en"><seg>one</seg></tuv></tu></body></tmx>'
)


@pytest.mark.parametrize("form", FORMS)
def test_a_memory_comes_back_through_every_form(tmp_path: Path, form: str) -> None:
    (tmp_path / "given.tmx").write_text(MEMORY, encoding="utf-8")
    segments = list(Corpus(tmp_path / "given.tmx", languages=LANGUAGES, name="memory").segments(Skipped()))
    metadata = {"tuid": "7", "creationid": "ANNA", "note": "erste\nzweite", "client": "A & B"}
    assert segments == [Segment("eins", "one", "memory", 1, TIME, metadata)]
    assert written_and_read(tmp_path / f"memory.{form}", segments) == segments


def test_what_tmx_looks_like(tmp_path: Path) -> None:
    metadata = {"tuid": "7", "note": "a\nb", "client": "A & B"}
    write_memory(tmp_path / "a.tmx", [Segment("eins <x/>", "one", "house", 1, TIME, metadata)], ("de_DE", "en"))
    assert (tmp_path / "a.tmx").read_text(encoding="utf-8").splitlines()[4:] == [
        '<tu creationdate="20240501T120000Z" tuid="7"><prop type="corpus">house</prop><note>a</note><note>b</note>'
        '<prop type="client">A &amp; B</prop><tuv xml:lang="de-DE"><seg>eins &lt;x/&gt;</seg></tuv>'
        '<tuv xml:lang="en"><seg>one</seg></tuv></tu>',
        "</body></tmx>",
    ]


def test_what_tsv_looks_like(tmp_path: Path) -> None:
    segments = [Segment("eins", "one", "house", 1, TIME, {"a": "\t"}), Segment("zwei\tdrei\n", "two", "house", 2)]
    write_memory(tmp_path / "a.tsv", segments, (None, None))
    assert (tmp_path / "a.tsv").read_text(encoding="utf-8") == (
        "source\ttarget\tcorpus\tcreated\tmetadata\n"
        f'eins\tone\thouse\t{TIME}\t{{"a": "\\t"}}\n'
        "zwei drei\ttwo\thouse\t\t\n"
    )


def test_what_csv_looks_like(tmp_path: Path) -> None:
    """As other programs read it: quotes around what holds a comma or a quote, and those doubled."""
    segments = [Segment('eins, "zwei"', "one", "house", 1, TIME, {"a": "b"}), Segment("drei;vier\n", "3", "house", 2)]
    write_memory(tmp_path / "a.csv", segments, (None, None))
    assert (tmp_path / "a.csv").read_bytes().decode() == (
        "source,target,corpus,created,metadata\n"
        f'"eins, ""zwei""",one,house,{TIME},"{{""a"": ""b""}}"\n'
        "drei;vier,3,house,,\n"
    )


def test_what_jsonl_looks_like(tmp_path: Path) -> None:
    metadata = {"client": "A", "created": "gestern"}
    write_memory(tmp_path / "a.jsonl", [Segment("eins", "one", "house", 1, TIME, metadata)], (None, None))
    assert json.loads((tmp_path / "a.jsonl").read_text(encoding="utf-8")) == {
        "source": "eins",
        "target": "one",
        "corpus": "house",
        "created": TIME,
        "client": "A",
        "metadata": {"created": "gestern"},
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_same_memory_gives_the_same_bytes(tmp_path: Path, form: str) -> None:
    segments = [Segment("eins", "one", "house", 1, TIME)]
    for name in ("a", "b"):
        write_memory(tmp_path / f"{name}.{form}", segments, LANGUAGES)
    first, second = ((tmp_path / f"{name}.{form}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert form.endswith("gz") == (first[:2] == b"\x1f\x8b")


@pytest.mark.parametrize(
    ("form", "character", "hint"),
    [
        ("tmx", "\x01", "has the character U+0001, which .tmx cannot hold; .jsonl can"),
        ("tmx.gz", "\uffff", "has the character U+FFFF, which .tmx cannot hold; .jsonl can"),
        ("tsv", "\0", "has the character U+0000, which .tsv cannot hold; .jsonl can"),
        ("csv", "\0", "has the character U+0000, which .csv cannot hold; .jsonl can"),
        ("tsv", "\ud83d", "has the character U+D83D, which .tsv cannot hold; .jsonl can"),
        ("jsonl", "\ud83d", "has the character U+D83D, which .jsonl cannot hold"),
    ],
)
@pytest.mark.parametrize("place", ["source", "target", "name", "value"])
def test_characters_that_a_form_cannot_hold(tmp_path: Path, form: str, character: str, hint: str, place: str) -> None:
    texts = {name: "x" + (character if name == place else "") for name in ("source", "target", "name", "value")}
    bad = Segment(texts["source"], texts["target"], "house", 9, "", {texts["name"]: texts["value"]})
    text = message(tmp_path / f"a.{form}", [Segment("eins", "one", "house", 1), bad])
    assert text.endswith(f": segment 2 (number 9 of 'house') {hint}")


@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl"])
def test_control_characters_survive_in_lines(tmp_path: Path, form: str) -> None:
    segments = [Segment("a\x01b\x1bc", "d\x7f", "memory", 1, "", {"x\x02": "y\x03"})]
    assert written_and_read(tmp_path / f"a.{form}", segments) == segments


@pytest.mark.parametrize("form", FORMS)
def test_a_long_segment(tmp_path: Path, form: str) -> None:
    segments = [Segment("wort " * 40_000 + "ende", "word", "memory", 1)]
    assert written_and_read(tmp_path / f"a.{form}", segments) == segments


@pytest.mark.parametrize(
    ("name", "languages", "expected"),
    [
        ("a.xlf", LANGUAGES, "not one of .tmx, .tsv, .csv, .jsonl, so it cannot be written"),
        ("a", LANGUAGES, "not one of .tmx, .tsv, .csv, .jsonl, so it cannot be written"),
        ("a.tmx", (None, "en"), "TMX names its languages; give them with --source-lang and --target-lang"),
        ("a.tmx", ("de", "deu"), "TMX tells its sides apart by language, but both are 'de'"),
        ("no/a.tmx", LANGUAGES, "cannot be written: no such file or directory"),
    ],
)
def test_exports_that_cannot_be(
    tmp_path: Path, name: str, languages: tuple[str | None, str | None], expected: str
) -> None:
    assert message(tmp_path / name, [], languages).endswith(f": {expected}")


@pytest.mark.parametrize("form", FORMS)
def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path, form: str) -> None:
    def broken() -> Iterator[Segment]:
        yield Segment("eins", "one", "house", 1)
        raise CorpusError("the store is broken")

    path = tmp_path / f"a.{form}"
    path.write_bytes(b"before")
    with pytest.raises(CorpusError, match="the store is broken"):
        write_memory(path, broken(), LANGUAGES)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_memory(tmp_path: Path, form: str) -> None:
    assert written_and_read(tmp_path / f"a.{form}", []) == []


def test_segments_are_written_while_they_come(tmp_path: Path) -> None:
    """A memory is larger than the machine's: nothing is gathered before it is written."""
    sizes: list[int] = []

    def many() -> Iterator[Segment]:
        for number in range(20_000):
            if number % 5_000 == 0:
                sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
            yield Segment("Satz " * 5, "sentence " * 5, "house", number)

    assert write_memory(tmp_path / "a.tmx", many(), LANGUAGES) == 20_000
    assert sizes == sorted(set(sizes))
    assert gzip.compress((tmp_path / "a.tmx").read_bytes())


FORMULAS = ["=1+1", "+49", "-5", "@SUM(A1)", "'=1", "''-x", "\t=1", "'quoted'", "plain", "a=b"]


def test_a_spreadsheet_computes_no_cell_and_reading_gives_the_text_back(tmp_path: Path) -> None:
    file = tmp_path / "memory.csv"
    segments = [Segment(text, f"{text} too", "house", number) for number, text in enumerate(FORMULAS)]
    write_memory(file, segments, ("de", "en"))
    with file.open(encoding="utf-8", newline="") as lines:
        cells = [cell for row in csv.reader(lines) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    read = [(pair.source, pair.target) for pair in Corpus(file, languages=LANGUAGES, name="memory").segments(Skipped())]
    assert read == [(text.strip(), f"{text} too".strip()) for text in FORMULAS]
