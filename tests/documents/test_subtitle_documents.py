"""SRT and WebVTT, translated."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting import identity, message, opened, rewritten, texts

from knnmt.documents.content import UnitResult

TIME = "00:00:01,000 --> 00:00:02,500"
SRT = [
    (f"1\n{TIME}\nHallo\n\n2\n{TIME}\nWelt", ["Hallo", "Welt"], f"1\n{TIME}\nHALLO\n\n2\n{TIME}\nWELT"),
    (
        f"\ufeff1\r\n{TIME} X1:40\r\nEin langer Satz,\r\nder weitergeht.\r\n\r\n",
        ["Ein langer Satz, der weitergeht."],
        f"\ufeff1\r\n{TIME} X1:40\r\nEIN LANGER SATZ,\r\nDER WEITERGEHT.\r\n\r\n",
    ),
    (f"1\n{TIME}\n- Hallo!\n- Ja?\n", ["- Hallo!", "- Ja?"], f"1\n{TIME}\n- HALLO!\n- JA?\n"),
    (
        f"1\n{TIME}\n{{\\an8}}<i>Hallo</i> du & <b>ich\nbin</b>\n",
        ["Hallo du & ich bin"],
        f"1\n{TIME}\n{{\\an8}}<i>HALLO</i> DU\n& <b>ICH BIN</b>\n",
    ),
    (f"1\n{TIME}\nein \n zwei <i>drei</i>\n", ["ein zwei drei"], f"1\n{TIME}\nEIN ZWEI\n<i>DREI</i>\n"),
    (f"1\n{TIME}\n\n2\n{TIME}\n<i></i>\n", [], f"1\n{TIME}\n\n2\n{TIME}\n<i></i>\n"),
    (f"{TIME}\nkein Zähler\n", ["kein Zähler"], f"{TIME}\nKEIN ZÄHLER\n"),
    ("", [], ""),
]
VTT_TIME = "01:02.000 --> 00:01:03.000 align:start"
VTT = [
    (
        f"WEBVTT - title\nKind: captions\n\nNOTE\nnicht\n\nSTYLE\n::cue {{}}\n\nid-1\n{VTT_TIME}\n"
        "<v Anna><c.loud>Hallo</c> &amp; <00:01:02.500>Welt</v>\n",
        ["Hallo & Welt"],
        f"WEBVTT - title\nKind: captions\n\nNOTE\nnicht\n\nSTYLE\n::cue {{}}\n\nid-1\n{VTT_TIME}\n"
        "<v Anna><c.loud>HALLO</c> &amp; <00:01:02.500>WELT</v>\n",
    ),
    ("WEBVTT\n", [], "WEBVTT\n"),
]
CUES = [(name, *row) for name, rows in (("a.srt", SRT), ("a.vtt", VTT)) for row in rows]


@pytest.mark.parametrize(("name", "document", "units", "expected"), CUES)
def test_cues(tmp_path: Path, name: str, document: str, units: list[str], expected: str) -> None:
    file = opened(tmp_path, name, document)
    assert texts(file) == units
    assert rewritten(file).decode() == expected


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("a\nb", "one two three four", "one two\nthree four"),
        ("a\nb\nc", "one two three", "one\ntwo\nthree"),
        ("a\nb", "word", "word"),
        ("a", "one\ntwo", "one two"),
    ],
)
def test_a_translation_has_as_many_lines(tmp_path: Path, source: str, translation: str, expected: str) -> None:
    file = opened(tmp_path, "a.srt", f"1\n{TIME}\n{source}\n")
    assert rewritten(file, lambda _: UnitResult((translation,))).decode() == f"1\n{TIME}\n{expected}\n"


def test_a_translation_ends_no_cue_and_opens_no_tag(tmp_path: Path) -> None:
    file = opened(tmp_path, "a.vtt", f"WEBVTT\n\n{VTT_TIME}\na\n")
    assert rewritten(file, lambda _: UnitResult(("<b> & c",))).decode().endswith("\n&lt;b&gt; &amp; c\n")
    assert rewritten(file, lambda _: UnitResult(("b\n\nc",))).decode().endswith("\nb  c\n")


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from(["1", TIME, VTT_TIME, "Hallo", "- a", "<i>x", "</i>", "&lt;", "{\\an8}", "", " ", "\r"]),
        max_size=12,
    )
)
def test_the_identity_changes_nothing(tmp_path: Path, lines: list[str]) -> None:
    document = "\n".join([f"1\n{TIME}", *lines])
    assert rewritten(opened(tmp_path, "a.srt", document), identity).decode() == document
    assert rewritten(opened(tmp_path, "a.vtt", f"WEBVTT\n\n{document}"), identity).decode() == f"WEBVTT\n\n{document}"


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    expected = "a.srt: not SRT: it has no line of times such as 00:00:01,000 --> 00:00:02,000"
    assert message(tmp_path, "a.srt", "Hallo\n") == expected
    assert message(tmp_path, "a.vtt", "Hallo\n") == "a.vtt: not WebVTT: its first line is not WEBVTT"
