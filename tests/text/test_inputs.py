"""Every form against the same hardships: placeholders, broken files, files without end."""

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import polib
import pytest

from knnmt.errors import CorpusError
from knnmt.text.corpus import READERS, Corpus, Segment, Skipped, survey
from knnmt.text.exporting import WRITERS, write_memory
from knnmt.text.placeholders import placeholders

LANGUAGES = ("de", "en")

# One writer for each form, plain enough to be checked by eye.


def as_tsv(source: str, target: str) -> str:
    return f"{source}\t{target}\n"


def as_csv(source: str, target: str) -> str:
    file = io.StringIO()
    csv.writer(file).writerow([source, target])
    return file.getvalue()


def as_jsonl(source: str, target: str) -> str:
    return json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n"


def as_tmx(source: str, target: str) -> str:
    sides = zip(LANGUAGES, (source, target), strict=True)
    variants = "".join(f"<tuv xml:lang={quoteattr(code)}><seg>{escape(text)}</seg></tuv>" for code, text in sides)
    return f'<tmx version="1.4"><header srclang="de"/><body><tu tuid="1">{variants}</tu></body></tmx>'


def as_xliff_1(source: str, target: str) -> str:
    unit = f'<trans-unit id="1"><source>{escape(source)}</source><target>{escape(target)}</target></trans-unit>'
    return f'<xliff version="1.2"><file source-language="de" target-language="en"><body>{unit}</body></file></xliff>'


def as_xliff_2(source: str, target: str) -> str:
    sides = f"<source>{escape(source)}</source><target>{escape(target)}</target>"
    unit = f'<unit id="1"><segment state="final">{sides}</segment></unit>'
    return f'<xliff version="2.0" srcLang="de" trgLang="en"><file id="f">{unit}</file></xliff>'


def as_po(source: str, target: str) -> str:
    catalogue = polib.POFile()
    catalogue.append(polib.POEntry(msgid=source, msgstr=target))
    return str(catalogue)


FORMS = {
    "a.tsv": as_tsv,
    "a.csv": as_csv,
    "a.jsonl": as_jsonl,
    "a.tmx": as_tmx,
    "a.xlf": as_xliff_1,
    "a.xliff": as_xliff_2,
    "a.po": as_po,
}


def test_every_form_is_here() -> None:
    assert [Path(name).suffix for name in FORMS] == list(READERS)


def file_of(folder: Path, name: str, content: str | bytes) -> Corpus:
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return Corpus(folder / name, languages=LANGUAGES)


def message(corpus: Corpus) -> str:
    with pytest.raises(CorpusError) as caught:
        survey([corpus])
    assert str(caught.value).startswith(f"{corpus.source}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{corpus.source}: ")


# Placeholders

PLACEHOLDERS = [
    "Datei %1$s fehlt, %s, %(name)s, 100 %, 100%%",
    "Seite {0} von {name}, ${var}, {{x}}",
    'Taste <x id="1"/> und <g id="2">fett</g>, <br>, a < b',
    "Müller &amp; Sohn &#228; & Tochter",
    "Er sagte: \"\\n ist \\t nicht 'n'\", 50 €, 😀, \u05d0\u200f",
]


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("text", PLACEHOLDERS)
@pytest.mark.parametrize("name", FORMS)
def test_placeholders_come_through_every_form_and_back(tmp_path: Path, name: str, text: str, gz: str) -> None:
    corpus = file_of(tmp_path, f"{name}{gz}", FORMS[name](text, f"{text}!"))
    [segment] = corpus.segments(Skipped())
    assert (segment.source, segment.target) == (text, f"{text}!")
    assert placeholders(segment.source) == placeholders(text)
    for ending in WRITERS:
        write_memory(tmp_path / f"out{ending}", [segment], LANGUAGES)
        [again] = Corpus(tmp_path / f"out{ending}", languages=LANGUAGES).segments(Skipped())
        assert again == Segment(segment.source, segment.target, "out", 1, segment.created, segment.metadata)


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_placeholders_come_through_aligned_files(tmp_path: Path, text: str) -> None:
    for code in LANGUAGES:
        (tmp_path / f"a.{code}").write_text(f"{text}\n", encoding="utf-8")
    [segment] = Corpus(tmp_path / "a.de", tmp_path / "a.en").segments(Skipped())
    assert (segment.source, segment.target) == (text, text)


# Broken files

BOMB = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))


def bomb(name: str) -> str:
    root = "tmx" if name == "a.tmx" else "xliff"
    return f'<!DOCTYPE {root} [<!ENTITY l0 "lol">{BOMB}]>' + FORMS[name]("BOMB", "x").replace("BOMB", "&l9;")


LINES, MARKUP = ("a.tsv", "a.csv", "a.jsonl", "a.po"), ("a.tmx", "a.xlf", "a.xliff")
RANDOM = bytes(range(128, 256)) * 4


def latin(name: str) -> bytes:
    return FORMS[name]("für", "for").encode("latin-1")


MALFORMED = [
    *((name, "nothing in it", "", "no sentence pairs found") for name in LINES),
    *((name, "nothing in it", "", "not a") for name in MARKUP),
    *((name, "blank lines", "\n\n", "no sentence pairs found") for name in LINES),
    *((name, "blank lines", "\n\n", "not a") for name in MARKUP),
    *((name, "random bytes", RANDOM, "line 1 is not UTF-8 (invalid start byte)") for name in LINES),
    *((name, "random bytes", RANDOM, "not a") for name in MARKUP),
    *((name, "Latin-1", latin(name), "line 1 is not UTF-8 (invalid start byte)") for name in LINES[:3]),
    ("a.po", "Latin-1", latin("a.po"), "line 5 is not UTF-8 (invalid start byte)"),
    ("a.tmx", "Latin-1", latin("a.tmx"), "broken TMX after unit 0: "),
    *((name, "Latin-1", latin(name), "broken XLIFF after unit 0: ") for name in ("a.xlf", "a.xliff")),
    ("a.tsv", "truncated", "eins\tone\nzw", "line 2 has 1 tab-separated columns instead of 2"),
    ("a.csv", "truncated", 'eins,one\n"zw', "line 2 is not CSV: unexpected end of data"),
    (
        "a.jsonl",
        "truncated",
        as_jsonl("a", "b") + '{"source": "zw',
        "line 2, column 12 is not JSON: Unterminated string",
    ),
    ("a.tmx", "truncated", as_tmx("a", "b")[:-40], "broken TMX after unit 0: "),
    ("a.xlf", "truncated", as_xliff_1("a", "b")[:-40], "broken XLIFF after unit 0: "),
    ("a.xliff", "truncated", as_xliff_2("a", "b")[:-40], "broken XLIFF after unit 0: "),
    ("a.po", "truncated", 'msgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d', "line 4 is not PO"),
    ("a.jsonl", "duplicate name", '{"source": "a", "target": "b", "target": "c"}', "line 1: has 'target' twice"),
    ("a.csv", "duplicate column", "source,target,x,x\na,b,c,d\n", "line 1 names the column 'x' twice"),
    ("a.xlf", "duplicate segment", "SEGMENTS", "unit 1 has the segment '1' twice"),
]
SEGMENTS = as_xliff_1("a", "MARK").replace("MARK", '<mrk mtype="seg" mid="1">a</mrk>' * 2)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [(n, c, e) for n, _, c, e in MALFORMED],
    ids=[f"{name}: {what}" for name, what, _, _ in MALFORMED],
)
def test_a_malformed_file_is_one_clear_line(tmp_path: Path, name: str, content: str | bytes, expected: str) -> None:
    content = SEGMENTS if content == "SEGMENTS" else content
    assert message(file_of(tmp_path, name, content)).startswith(expected)
    if content:
        packed = file_of(tmp_path, f"{name}.gz", content)
        assert message(packed).startswith(expected)


@pytest.mark.parametrize("name", MARKUP)
def test_an_entity_bomb_is_one_clear_line(tmp_path: Path, name: str) -> None:
    """Which of the two guards speaks first depends on the version of the XML library."""
    text = message(file_of(tmp_path, name, bomb(name)))
    assert "entity" in text
    assert "lollol" not in text


@pytest.mark.parametrize("name", FORMS)
def test_a_cut_gzip_is_one_clear_line(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(FORMS[name]("eins", "one").encode())[:-9])
    assert "cannot be read to its end" in message(Corpus(tmp_path / f"{name}.gz", languages=LANGUAGES))


# Files without end: 64 MB in one line or unit, read by a process that may not have that much beyond what it starts with

ENDLESS = 64 << 20
TOO_LONG = {
    "a.tsv": "line 1 is longer than 16 MB, which is no sentence",
    "a.csv": "line 1 is longer than 16 MB, which is no sentence",
    "a.jsonl": "line 1 is longer than 16 MB, which is no sentence",
    "a.tmx": "broken TMX after unit 0: ",
    "a.xlf": "broken XLIFF after unit 0: ",
    "a.xliff": "broken XLIFF after unit 0: ",
    "a.po": "line 5 is longer than 16 MB, which is no sentence",
}
READ = """
import resource, sys
from pathlib import Path
from knnmt.text.corpus import Corpus, survey
from knnmt.errors import CorpusError
corpus = Corpus(Path(sys.argv[1]), languages=("de", "en"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    survey([corpus])
except CorpusError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def grown(path: Path) -> tuple[str, int]:
    """The error, and the megabytes by which reading grew the process."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    text, size = done.stdout.splitlines()
    return text, int(size) // 1024


@pytest.mark.parametrize("name", FORMS)
def test_one_line_without_end(tmp_path: Path, name: str) -> None:
    before, after = FORMS[name]("MIDDLE", "x").encode().split(b"MIDDLE")
    path = tmp_path / f"{name}.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(before)
        for _ in range(ENDLESS >> 20):
            file.write(b"x" * (1 << 20))
        file.write(after)
    text, megabytes = grown(path)
    assert text.startswith(f"{path}: {TOO_LONG[name]}")
    assert megabytes < ENDLESS >> 20


@pytest.mark.parametrize(
    ("name", "filler", "reason"),
    [
        ("a.tmx", f"<note>{'x' * 90}</note>", "16 MB"),
        ("a.xlf", f"<note>{'x' * 90}</note>", "16 MB"),
        ("a.tmx", "<note>x</note>", "524,288 tags"),
        ("a.xlf", "<note>x</note>", "524,288 tags"),
        ("a.tmx", "<!---->", "524,288 tags"),
    ],
)
def test_one_unit_without_end(tmp_path: Path, name: str, filler: str, reason: str) -> None:
    before, after = FORMS[name]("MIDDLE", "x").encode().split(b"MIDDLE")
    (tmp_path / name).write_bytes(before + filler.encode() * ((17 << 20) // len(filler)) + after)
    corpus = Corpus(tmp_path / name, languages=LANGUAGES)
    assert message(corpus) == f"more than {reason} without the end of a unit"


def test_a_long_line_is_read_where_it_is_allowed(tmp_path: Path) -> None:
    words = "Wort " * 200_000
    assert survey([file_of(tmp_path, "a.tsv", f"{words}\tone\n")]) == 1
