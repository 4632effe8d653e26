"""Parallel text as people have it: every form, every way in which it is broken."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parallel_text import STEADILY, TEXT, message, one_file, pairs_of, write

from knnmt.errors import CorpusError
from knnmt.text.corpus import READERS, Corpus, Segment, Skipped, default_name, one_line, read_segments, survey
from knnmt.text.endings import READ_AS_MEMORY, WRITTEN_AS_MEMORY
from knnmt.text.exporting import WRITERS

PAIRS = [("Guten Tag", "Good day"), ("Öl 漢字 😀", "oil")]
TMX = (
    '<tmx version="1.4"><header srclang="de"/><body>'
    + "".join(
        f'<tu><tuv xml:lang="de"><seg>{source}</seg></tuv><tuv xml:lang="en"><seg>{target}</seg></tuv></tu>'
        for source, target in PAIRS
    )
    + "</body></tmx>"
)
ONE_FILE = {
    "pairs.tsv": "Guten Tag\tGood day\nÖl 漢字 😀\toil\n",
    "pairs.jsonl": "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in PAIRS),
    "translation.jsonl": "".join(json.dumps({"id": 1, "translation": {"en": t, "de": s}}) + "\n" for s, t in PAIRS),
    "PAIRS.TMX": TMX,
    "pairs.tmx": TMX,
}


def aligned(folder: Path, source: str | bytes, target: str | bytes, *, gz: str = "") -> Corpus:
    return Corpus(write(folder / f"text.de{gz}", source), write(folder / f"text.en{gz}", target))


def kept_and_skipped(corpus: Corpus) -> tuple[list[tuple[int, str, str]], dict[str, int]]:
    skipped = Skipped()
    segments = list(corpus.segments(skipped))
    assert all(segment.corpus == corpus.name for segment in segments)
    return [(segment.number, segment.source, segment.target) for segment in segments], skipped.counts


# Every form gives the same pairs


@pytest.mark.parametrize("gz", ["", ".gz", ".GZ"])
@pytest.mark.parametrize("name", ONE_FILE)
def test_one_file_holds_both_sides(tmp_path: Path, name: str, gz: str) -> None:
    corpus = one_file(tmp_path / f"{name}{gz}", ONE_FILE[name])
    assert pairs_of(corpus) == PAIRS
    assert corpus.name == name.rsplit(".", 1)[0]
    assert corpus.paths == [tmp_path / f"{name}{gz}"]


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_two_aligned_files(tmp_path: Path, gz: str) -> None:
    corpus = aligned(tmp_path, "Guten Tag\nÖl 漢字 😀\n", "Good day\noil\n", gz=gz)
    assert pairs_of(corpus) == PAIRS
    assert corpus.name == "text"


def test_only_one_of_two_aligned_files_is_gzipped(tmp_path: Path) -> None:
    corpus = Corpus(write(tmp_path / "a.de.gz", "eins\n"), write(tmp_path / "a.en", "one\n"))
    assert pairs_of(corpus) == [("eins", "one")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("memory.tmx", "memory"),
        ("memory.tmx.gz", "memory"),
        ("memory.2024.tsv.gz", "memory.2024"),
        ("train.de", "train"),
        ("train", "train"),
        (".tsv", ".tsv"),
    ],
)
def test_a_corpus_is_called_after_its_file(name: str, expected: str) -> None:
    assert default_name(Path("folder") / name) == expected


def test_a_given_name_is_kept(tmp_path: Path) -> None:
    corpus = Corpus(write(tmp_path / "a.tsv", "eins\tone\n"), name="mine")
    assert list(corpus.segments(Skipped())) == [Segment("eins", "one", "mine", 1)]


# What a line is


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("\ufeffa\nb\n", ["a", "b"]),
        ("\ufeffa\r\nb\r\n", ["a", "b"]),
        ("a\u2028a\nb\n", ["a\u2028a", "b"]),
        ("a\u2029a\nb\n", ["a\u2029a", "b"]),
        ("a\u0085a\nb\n", ["a\u0085a", "b"]),
        ("a\x0ca\nb\x0b\n", ["a\x0ca", "b\x0b"]),
        ("a\x1ca\nb\x1d\x1e\n", ["a\x1ca", "b\x1d\x1e"]),
        ("a\ra\nb\n", ["a\ra", "b"]),
        ("a\n\nb\n", ["a", "", "b"]),
        ("", []),
        ("\n", [""]),
    ],
)
@pytest.mark.parametrize("gz", ["", ".gz"])
def test_lines_end_at_line_feeds_alone(tmp_path: Path, content: str, expected: list[str], gz: str) -> None:
    corpus = aligned(tmp_path, content, "x\n" * len(expected), gz=gz)
    assert [source for source, _ in pairs_of(corpus)] == expected


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\u0085", "\x0c", "\x0b", "\x1c"])
@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_one_file_forms_end_lines_at_line_feeds_alone(tmp_path: Path, break_: str, form: str) -> None:
    line = {"tsv": f"a{break_}b\tc", "jsonl": json.dumps({"source": f"a{break_}b", "target": "c"}, ensure_ascii=False)}
    corpus = one_file(tmp_path / f"text.{form}", f"\ufeff{line[form]}\r\n{line[form]}")
    assert pairs_of(corpus) == [(f"a{break_}b", "c")] * 2
    assert kept_and_skipped(corpus)[0] == [(1, "a b", "c"), (2, "a b", "c")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a  b ", "a b"),
        ("a\u2028b\x85c\x0cd", "a b c d"),
        ("a\u00a0b\u3000c", "a b c"),
        ("line\n  one\t", "line one"),
        ("\u00a0\t ", ""),
        ("a\u200bb", "a\u200bb"),
    ],
)
def test_a_segment_is_one_line(text: str, expected: str) -> None:
    assert one_line(text) == expected


@given(st.lists(st.tuples(TEXT, TEXT)), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["", ".gz"]))
@STEADILY
def test_aligned_files_give_back_what_was_written(
    tmp_path: Path, pairs: list[tuple[str, str]], end: str, final: bool, gz: str
) -> None:
    sides = ["".join(pair[side] + end for pair in pairs) for side in (0, 1)]
    if not final and pairs and all(pairs[-1]):
        sides = [side.removesuffix(end) for side in sides]
    assert pairs_of(aligned(tmp_path, *sides, gz=gz)) == pairs


@given(st.lists(st.tuples(TEXT, TEXT)))
@STEADILY
def test_every_pair_is_a_segment_or_counted(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    corpus = aligned(tmp_path, *("".join(pair[side] + "\n" for pair in pairs) for side in (0, 1)))
    kept, skipped = kept_and_skipped(corpus)
    full = [n for n, pair in enumerate(pairs, start=1) if all(side.split() for side in pair)]
    assert [number for number, _, _ in kept] == full
    assert sum(skipped.values()) == len(pairs) - len(full)


# Skips are counted


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.tsv", "eins\tone\n\n\tonly\nnur\t\n \t \nzwei\ttwo\n"),
        (
            "text.jsonl",
            '{"source": "eins", "target": "one"}\n\n{"source": "", "target": "only"}\n'
            '{"source": "nur", "target": " "}\n{"source": "", "target": ""}\n{"source": "zwei", "target": "two"}\n',
        ),
        (
            "text.tmx",
            "<tmx><header/><body>"
            '<tu><tuv xml:lang="de"><seg>eins</seg></tuv><tuv xml:lang="en"><seg>one</seg></tuv></tu>'
            "<tu/>"
            '<tu><tuv xml:lang="fr"><seg>un</seg></tuv><tuv xml:lang="en"><seg>only</seg></tuv></tu>'
            '<tu><tuv xml:lang="de"><seg>nur</seg></tuv><tuv xml:lang="en"><seg> </seg></tuv></tu>'
            '<tu><tuv xml:lang="de"/><tuv xml:lang="en"><seg/></tuv></tu>'
            '<tu><tuv xml:lang="de"><seg>zwei</seg></tuv><tuv xml:lang="en"><seg>two</seg></tuv></tu>'
            "</body></tmx>",
        ),
    ],
)
def test_empty_sides_are_skipped_and_counted(tmp_path: Path, name: str, content: str) -> None:
    kept, skipped = kept_and_skipped(one_file(tmp_path / name, content))
    assert kept == [(1, "eins", "one"), (6, "zwei", "two")]
    assert skipped == {"with an empty side": 4}


def test_empty_lines_of_aligned_files_are_skipped_and_counted(tmp_path: Path) -> None:
    kept, skipped = kept_and_skipped(aligned(tmp_path, "eins\n\n\nnur\nzwei\n", "one\n\nonly\n \ntwo\n"))
    assert kept == [(1, "eins", "one"), (5, "zwei", "two")]
    assert skipped == {"with an empty side": 3}


def test_skips_are_reported_in_words() -> None:
    skipped = Skipped({"with an empty side": 1234})
    skipped.add("too long")
    assert str(skipped) == "1,234 with an empty side, 1 too long"
    assert skipped.total == 1235
    assert str(Skipped()) == ""


# Several corpora


def test_segments_of_several_corpora_follow_each_other(tmp_path: Path) -> None:
    first = one_file(tmp_path / "a.tsv", "eins\tone\n\t\n")
    second = one_file(tmp_path / "b.tsv.gz", "\t\nzwei\ttwo\n")
    skipped = Skipped()
    assert list(read_segments([first, second], skipped)) == [
        Segment("eins", "one", "a", 1),
        Segment("zwei", "two", "b", 2),
    ]
    assert skipped.total == 2
    assert survey([first, second]) == 2
    assert survey(iter([first, second]), limit=1) == 1


def test_a_survey_stops_at_the_limit(tmp_path: Path) -> None:
    corpus = one_file(tmp_path / "a.tsv", "eins\tone\nbroken\n")
    assert survey([corpus], limit=1) == 1
    with pytest.raises(CorpusError, match=r"a\.tsv: line 2"):
        survey([corpus])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", ""),
        ("a.tsv.gz", ""),
        ("a.jsonl", "\n"),
        ("a.tsv", "\t\n"),
        ("a.tmx", "<tmx><header/><body/></tmx>"),
        ("a.tmx", '<tmx><body><tu><tuv xml:lang="de"/><tuv xml:lang="en"/></tu></body></tmx>'),
    ],
)
def test_a_corpus_without_pairs_is_an_error_of_the_survey(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(CorpusError, match="no sentence pairs found") as caught:
        survey([one_file(tmp_path / name, content)])
    assert str(caught.value).startswith(f"{tmp_path / name}: ")


def test_an_empty_gz_of_no_bytes_has_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").touch()
    assert pairs_of(Corpus(tmp_path / "a.tsv.gz")) == []


# Files that cannot be used are known before the work


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"missing\.tsv: no such file or directory$"):
        Corpus(tmp_path / "missing.tsv")
    with pytest.raises(CorpusError, match=r"missing\.en: no such file or directory$"):
        Corpus(write(tmp_path / "text.de", "eins\n"), tmp_path / "missing.en")


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder.tmx").mkdir()
    with pytest.raises(CorpusError, match=r"folder\.tmx: is a directory$"):
        Corpus(tmp_path / "folder.tmx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(CorpusError, match=r"pipe\.tsv: not a regular file"):
        Corpus(tmp_path / "pipe.tsv")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_file_without_permission(tmp_path: Path) -> None:
    path = write(tmp_path / "text.tsv", "eins\tone\n")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"text\.tsv: permission denied$"):
        Corpus(path)


@pytest.mark.parametrize("name", ["text", "text.txt", "text.tmx.zip", "text.gz", "text.txt.gz", "tsv", ".gz"])
def test_unknown_ending(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "eins\tone\n")
    with pytest.raises(
        CorpusError, match=r": not one of \.tsv, \.csv, \.jsonl, \.tmx, \.xlf, \.xliff, \.po; .*--source and --target$"
    ) as caught:
        Corpus(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["a.tmx", "a.TMX.gz", "a.jsonl", "a.tsv"])
@pytest.mark.parametrize("first", [True, False])
def test_a_file_of_both_sides_is_not_one_side(tmp_path: Path, name: str, first: bool) -> None:
    paths = [write(tmp_path / name, "x\n"), write(tmp_path / "a.en", "x\n")]
    with pytest.raises(CorpusError, match=r"not plain text; .* goes to --corpus$") as caught:
        Corpus(*(paths if first else reversed(paths)))
    assert str(caught.value).startswith(f"{tmp_path / name}: ")


def test_a_file_that_disappears_after_the_check(tmp_path: Path) -> None:
    corpora = [one_file(tmp_path / f"a.{form}", "eins\tone\n") for form in ("tsv", "tsv.gz", "tmx")]
    for corpus in corpora:
        corpus.source.unlink()
        assert message(corpus) == f"{corpus.source}: cannot be read to its end: no such file or directory"


# Files that are broken inside


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("source", "target", "shorter", "line"),
    [
        ("a\nb\nc\n", "a\nb\n", "text.en", 2),
        ("a\n", "a\nb\nc\n", "text.de", 1),
        ("", "a\n", "text.de", 0),
        ("a\n", "", "text.en", 0),
        ("a\nb", "a\nb\n\n", "text.de", 2),
    ],
)
def test_uneven_files(tmp_path: Path, source: str, target: str, shorter: str, line: int, gz: str) -> None:
    corpus = aligned(tmp_path, source, target, gz=gz)
    longer = "text.de" if shorter == "text.en" else "text.en"
    expected = f"{tmp_path / shorter}{gz}: ends at line {line}, but {tmp_path / longer}{gz} goes on"
    assert message(corpus).startswith(expected)


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("bad", "line"),
    [
        (b"gut\nf\xfcr\n", 2),
        (b"gut\ngut\nende\xe2\x82", 3),
        (b"\xff\xfeg\0u\0t\0\n\0", 1),
        (b"g\0u\0t\0\n\0", 1),
        (b"gut\n\xed\xa0\x80\n", 2),
        (b"\x1f\x8b\x08\x00", 1),
    ],
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_bad_encoding(tmp_path: Path, bad: bytes, line: int, side: str, gz: str) -> None:
    good = "gut\n" * 3
    corpus = aligned(tmp_path, bad, good, gz=gz) if side == "source" else aligned(tmp_path, good, bad, gz=gz)
    path = corpus.paths[side == "target"]
    assert message(corpus).startswith(f"{path}: line {line} is not UTF-8")


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_bad_encoding_in_one_file(tmp_path: Path, form: str) -> None:
    line = {"tsv": "für\tfor\n", "jsonl": '{"source": "für", "target": "for"}\n'}[form]
    corpus = one_file(tmp_path / f"text.{form}", line.encode() + line.encode("latin-1"))
    assert message(corpus).startswith(f"{corpus.source}: line 2 is not UTF-8")


def broken_gzips() -> dict[str, bytes]:
    whole = gzip.compress(b"eins\tone\n" * 100)
    wrong_sum = bytearray(whole)
    wrong_sum[-6] ^= 0xFF
    return {
        "truncated": whole[:-12],
        "truncated header": whole[:5],
        "not gzip": b"eins\tone\n",
        "corrupt": whole[:10] + b"\xff" * 20,  # no such kind of block
        "wrong checksum": bytes(wrong_sum),
        "rubbish after the end": whole + b"rubbish",
    }


@pytest.mark.parametrize("damage", broken_gzips())
@pytest.mark.parametrize("name", ["text.tsv.gz", "text.jsonl.gz", "text.tmx.gz", "text.de.gz"])
def test_broken_gzip(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    path.write_bytes(broken_gzips()[damage])
    corpus = Corpus(path, write(tmp_path / "text.en", "a\n" * 100)) if name == "text.de.gz" else Corpus(path)
    assert message(corpus).startswith(f"{path}: ")


def test_a_broken_end_comes_after_what_is_before_it(tmp_path: Path) -> None:
    lines = "".join(f"{number}\t{number * number}\n" for number in range(20_000))
    path = tmp_path / "text.tsv.gz"
    path.write_bytes(gzip.compress(lines.encode())[:-100])
    pairs = Corpus(path).units()
    assert next(pairs).source == "0"
    with pytest.raises(CorpusError, match=r"text\.tsv\.gz: cannot be read to its end: compressed file ended"):
        list(pairs)


@pytest.mark.parametrize(
    ("line", "columns"), [("only one", 1), ("a\tb\tc", 3), ("a\tb\t", 3), ("\ta\tb", 3), ("a b", 1)]
)
def test_tsv_with_a_wrong_number_of_columns(tmp_path: Path, line: str, columns: int) -> None:
    corpus = one_file(tmp_path / "text.tsv", f"a\tb\n{line}\n")
    expected = f"{corpus.source}: line 2 has {columns} tab-separated columns instead of 2"
    assert message(corpus) == expected


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.jsonl", "PAIRS.TMX"])
def test_other_files_need_no_languages(tmp_path: Path, name: str) -> None:
    assert pairs_of(one_file(tmp_path / name, ONE_FILE[name], (None, None))) == PAIRS


def test_help_texts_list_the_formats_that_there_are() -> None:
    assert set(READERS) == set(READ_AS_MEMORY)
    assert set(WRITERS) == set(WRITTEN_AS_MEMORY)
