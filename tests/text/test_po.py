"""Catalogues of gettext: what is a translation, what is kept beside it, and how files are broken."""

from contextlib import suppress
from pathlib import Path

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.errors import CorpusError
from knnmt.text.corpus import Corpus, Skipped
from knnmt.text.po import read_po
from knnmt.text.units import Unit

HEADER = r"""msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset={charset}\n"
"Plural-Forms: {plural}\n"

"""
GERMAN = "nplurals=2; plural=(n != 1);"


def po(entries: str, *, charset: str = "UTF-8", plural: str = GERMAN) -> str:
    return HEADER.replace("{charset}", charset).replace("{plural}", plural) + entries


def units(folder: Path, document: str | bytes, languages: tuple[str | None, str | None] = ("en", "de")) -> list[Unit]:
    path = folder / "a.po"
    path.write_bytes(document.encode() if isinstance(document, str) else document)
    return list(read_po(path, languages))


def message(folder: Path, document: str | bytes, languages: tuple[str | None, str | None] = ("en", "de")) -> str:
    with pytest.raises(CorpusError) as caught:
        units(folder, document, languages)
    assert str(caught.value).startswith(f"{folder / 'a.po'}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder / 'a.po'}: ")


def test_what_is_no_translation_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    entries = (
        'msgid "one"\nmsgstr "eins"\n\n'
        '#, fuzzy\nmsgid "two"\nmsgstr "zwo"\n\n'
        'msgid "three"\nmsgstr ""\n\n'
        '#~ msgid "old"\n#~ msgstr "alt"\n'
    )
    path.write_text(po(entries), encoding="utf-8")
    skipped = Skipped()
    assert [s.target for s in Corpus(path, languages=("en", "de")).segments(skipped)] == ["eins"]
    assert skipped.counts == {"marked fuzzy": 1, "without a translation": 1, "marked obsolete": 1}
    taken = Corpus(path, languages=("en", "de"), unfinished=True).segments(Skipped())
    assert [segment.target for segment in taken] == ["eins", "zwo", "alt"]


@pytest.mark.parametrize("blank", ["", "\n", "\n\n"])
def test_context_and_comments_are_metadata(tmp_path: Path, blank: str) -> None:
    entries = (
        '# first note\n# second\n#. extracted\n#: a.c:1 b.c\n#, c-format\n#| msgid "Opened"\nmsgctxt "menu"\n'
        'msgid "Open %1$s"\nmsgstr "%1$s öffnen"\n'
        f'{blank}msgid "a"\nmsgstr ""\n"zwei "\n"Zeilen\\n"\n'
        f'{blank}# of b\nmsgid "b"\nmsgstr "B"\n{blank}#. trailing\n'
    )
    metadata = {
        "msgctxt": "menu",
        "note": "first note\nsecond",
        "extracted": "extracted",
        "reference": "a.c:1 b.c",
        "flags": "c-format",
    }
    assert units(tmp_path, po(entries)) == [
        Unit("Open %1$s", "%1$s öffnen", "", metadata),
        Unit("a", "zwei Zeilen\n"),
        Unit("b", "B", "", {"note": "of b"}),
    ]


@pytest.mark.parametrize(
    ("plural", "targets", "expected"),
    [
        (GERMAN, ["Datei", "Dateien"], [("file", "Datei"), ("files", "Dateien")]),
        ("nplurals=1; plural=0;", ["Dateien"], [("file", "Dateien"), ("files", "Dateien")]),
        ("nplurals=2; plural=(n == 1);", ["Dateien", "Datei"], [("files", "Dateien"), ("file", "Datei")]),
        ("", ["Datei", "Dateien"], [("file", "Datei"), ("files", "Dateien")]),
        ("nplurals=2; plural=n%0;", ["Datei", "Dateien"], [("file", "Datei"), ("files", "Dateien")]),
        ("nplurals=2; plural=" + "(" * 500, ["Datei", "Dateien"], [("file", "Datei"), ("files", "Dateien")]),
        ("nplurals=2; plural=rubbish(", ["Datei", "Dateien"], [("file", "Datei"), ("files", "Dateien")]),
        (
            "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);",
            ["a", "b", "c"],
            [("file", "a"), ("files", "b"), ("files", "c")],
        ),
    ],
)
def test_plural_forms(tmp_path: Path, plural: str, targets: list[str], expected: list[tuple[str, str]]) -> None:
    forms = "".join(f'msgstr[{number}] "{text}"\n' for number, text in enumerate(targets))
    found = units(tmp_path, po(f'msgid "file"\nmsgid_plural "files"\n{forms}', plural=plural))
    assert [(unit.source, unit.target) for unit in found] == expected
    assert [unit.metadata["plural"] for unit in found] == [str(min(n, len(targets) - 1)) for n in range(len(found))]


def test_no_header_is_needed(tmp_path: Path) -> None:
    assert units(tmp_path, 'msgid "one"\nmsgstr "eins"\n') == [Unit("one", "eins")]
    assert units(tmp_path, "") == []
    assert units(tmp_path, "# nothing\n") == []


@pytest.mark.parametrize("charset", ["ISO-8859-1", "windows-1252", "utf-8", "CHARSET"])
def test_the_encoding_is_the_header_s(tmp_path: Path, charset: str) -> None:
    document = po('msgid "for"\nmsgstr "für"\n', charset=charset)
    assert units(tmp_path, document.encode("utf-8" if charset == "CHARSET" else charset)) == [Unit("for", "für")]


@pytest.mark.parametrize("languages", [("en", "de"), ("en", "de-AT"), ("en", "deu"), ("en", None), (None, None)])
def test_languages_that_fit(tmp_path: Path, languages: tuple[str | None, str | None]) -> None:
    assert units(tmp_path, po('msgid "one"\nmsgstr "eins"\n'), languages) == [Unit("one", "eins")]


def test_another_language(tmp_path: Path) -> None:
    text = message(tmp_path, po('msgid "one"\nmsgstr "eins"\n'), ("en", "fr"))
    assert text == "has no text in 'fr'; its header says 'de'"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('msgid "a"\nmsgstr "b\n', "line 2 is not PO"),
        ('msgid "a"\nmsgstr "b', "line 2 is not PO"),
        ('msgid "a"\nmsgstr "b"c"\n', "line 2 is not PO"),
        ("<xliff/>\n", "line 1 is not PO"),
        ("eins\tone\n", "line 1 is not PO"),
        ('msgid "a"\nmsgstr "b"\n\nmsgid "c"\n', "the entry at line 4 has no msgstr; is the file cut off?"),
        ('msgstr "b"\n', "the entry at line 1 is not PO"),
        ('"a"\nmsgid "a"\nmsgstr "b"\n', "line 1 is not PO"),
        ('msgid "a"\nmsgstr "b"\n\n"c"\n', "line 4 is not PO"),
        ('msgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgid "d"\nmsgstr "e"\n', "the entry at line 4 is not PO"),
        ('msgid "a"\nmsgid "b"\nmsgstr "c"\n', "the entry at line 1 is not PO"),
        ('msgid "a"\nmsgstr "f\xfcr"\n'.encode("latin-1"), "line 2 is not UTF-8 (invalid start byte)"),
        ('msgid "a"\nmsgstr "b"\n'.encode("utf-16"), "line 1 is not UTF-8"),
        (po("", charset="foo-99"), "its header names the encoding 'foo-99', which cannot be read"),
        (po("", charset="UTF-16"), "its header names the encoding 'UTF-16', which cannot be read"),
    ],
)
def test_broken_files(tmp_path: Path, document: str | bytes, expected: str) -> None:
    assert message(tmp_path, document).startswith(expected)


def test_duplicate_messages_are_units_of_their_own(tmp_path: Path) -> None:
    assert units(tmp_path, 'msgid "a"\nmsgstr "b"\n\n' * 2) == [Unit("a", "b")] * 2


def test_entries_are_parsed_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = po("".join(f'# note {n}\nmsgid "{n}"\nmsgstr "-{n}"\n\n' for n in range(50)))
    expected = [Unit(str(n), f"-{n}", "", {"note": f"note {n}"}) for n in range(50)]
    for size in (1, 100, 1_000_000):
        monkeypatch.setattr("knnmt.text.po.BLOCK", size)
        assert units(tmp_path, document) == expected


@given(st.text('msgidtr[]_plural"#~,|.: \\n\n0ax', max_size=60))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_any_text_gives_pairs_or_one_line(tmp_path: Path, text: str) -> None:
    for document in (text, f'msgid "a"\nmsgstr "b"\n{text}', f'msgid "a"\n{text}\nmsgstr "b"\n'):
        with suppress(CorpusError):
            assert all(isinstance(unit, Unit) for unit in units(tmp_path, document))


def test_an_endless_entry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.text.po.LONGEST", 1 << 20)
    document = 'msgid "a"\nmsgstr ""\n' + '"0123456789"\n' * 100_000
    assert message(tmp_path, document) == "the entry at line 1 is longer than 1 MB"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
ENTRY = st.tuples(TEXT, TEXT, st.one_of(st.none(), TEXT))


def visible(text: str | None) -> str:
    return " ".join((text or "").split())


@given(st.lists(ENTRY, max_size=4))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_what_polib_writes_is_read(tmp_path: Path, entries: list[tuple[str, str, str | None]]) -> None:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "de"}
    for source, target, context in entries:
        catalogue.append(polib.POEntry(msgid=source, msgstr=target, msgctxt=context))
    found = units(tmp_path, str(catalogue))
    assert [(visible(u.source), visible(u.target), visible(u.metadata.get("msgctxt"))) for u in found] == [
        (visible(source), visible(target), visible(context)) for source, target, context in entries
    ]


def test_a_header_longer_than_any_header(tmp_path: Path) -> None:
    """polib would add its lines one by one to the value before them."""
    document = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n' + '"more\\n"\n' * 20_000
    assert message(tmp_path, document) == "the header at line 1 is longer than 64 KB"
    licence = "# all rights reserved\n" * 10_000
    assert units(tmp_path, licence + po('msgid "a"\nmsgstr "b"\n')) == [Unit("a", "b")]


def test_the_language_is_the_first_line_of_its_field(tmp_path: Path) -> None:
    document = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"more\\n"\n'
    assert message(tmp_path, document, ("en", "fr")) == "has no text in 'fr'; its header says 'de'"


@pytest.mark.parametrize("line", ["# note\n", "#. extracted\n", "## note\n", '#| "before"\n', "# a\n#. b\n"])
def test_the_work_of_polib_does_not_grow_with_the_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """It adds comment to comment, so that its time is the square of their number."""
    given = lines_given_to_polib(monkeypatch)
    found = units(tmp_path, line * 2_000 + 'msgid "a"\nmsgstr "b"\n')
    assert [(unit.source, unit.target) for unit in found] == [("a", "b")]
    assert all(value.count("\n") == 1_999 for value in found[0].metadata.values())
    assert max(given) <= 6


def test_the_work_of_polib_does_not_grow_with_the_lines_of_a_string(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lines_given_to_polib(monkeypatch)
    document = '#~ msgid "a"\n#~ "b"\n#~ msgstr ""\n' + '#~ "c\\n"\n' * 2_000
    assert units(tmp_path, document) == [Unit("ab", "c\n" * 2_000, unfinished="marked obsolete")]
    assert max(given) <= 4


def lines_given_to_polib(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each call, how many lines its text has."""
    given: list[int] = []
    parse = polib.pofile

    def counted(text: str, **options: str) -> polib.POFile:
        given.append(text.count("\n"))
        return parse(text, **options)

    monkeypatch.setattr(polib, "pofile", counted)
    return given
