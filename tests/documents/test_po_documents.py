"""Catalogues of gettext, translated; msgfmt checks every one that is written here."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting import capitals, identity, message, opened, rewritten, texts

from knnmt.documents.content import DocumentUnit, UnitResult, plain_text
from knnmt.text.plurals import RULES

POLISH = "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"


def header(language: str = "en", plural: str = "nplurals=2; plural=(n != 1);", charset: str = "UTF-8") -> str:
    fields = [
        "Project-Id-Version: x 1", "PO-Revision-Date: 2024-01-01 00:00+0000", "Last-Translator: a <a@b.c>",
        "Language-Team: none", f"Language: {language}", "MIME-Version: 1.0",
        f"Content-Type: text/plain; charset={charset}", "Content-Transfer-Encoding: 8bit", f"Plural-Forms: {plural}",
    ]  # fmt: skip
    return 'msgid ""\nmsgstr ""\n' + "".join(f'"{field}\\n"\n' for field in fields)


def check(folder: Path, written: bytes) -> None:
    """What msgfmt says of it; without msgfmt, that polib reads it."""
    path = folder / "checked.po"
    path.write_bytes(written)
    if shutil.which("msgfmt") is None:
        import polib

        polib.pofile(str(path))
        return
    command = ["msgfmt", "--check", "--use-fuzzy", "-o", str(folder / "checked.mo"), str(path)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr + written.decode(errors="replace")


ENTRIES = [
    ('msgid "a"\nmsgstr ""\n', '#, fuzzy\nmsgid "a"\nmsgstr "A"\n'),
    ('msgid "a"\nmsgstr "b"\n', 'msgid "a"\nmsgstr "b"\n'),
    ('#, fuzzy\nmsgid "a"\nmsgstr "b"\n', '#, fuzzy\nmsgid "a"\nmsgstr "b"\n'),
    (
        '# note\n#. extracted\n#: a.c:1\n#, c-format\n#| msgid "old"\nmsgctxt "menu"\nmsgid "a %d"\nmsgstr ""',
        '# note\n#. extracted\n#: a.c:1\n#, fuzzy, c-format\n#| msgid "old"\nmsgctxt "menu"\nmsgid "a %d"\nmsgstr "A %d"',
    ),
    (
        'msgid ""\n"eins\\n"\n"zwei \\"drei\\"\\t\\n"\nmsgstr ""\n',
        '#, fuzzy\nmsgid ""\n"eins\\n"\n"zwei \\"drei\\"\\t\\n"\nmsgstr ""\n"EINS\\n"\n"ZWEI \\"DREI\\"\\t\\n"\n',
    ),
    ('msgid "\\n a\\n"\nmsgstr ""\n', '#, fuzzy\nmsgid "\\n a\\n"\nmsgstr "\\n A\\n"\n'),
    (
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "da"\nmsgstr[1] ""\n',
        '#, fuzzy\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "da"\nmsgstr[1] "B"\n',
    ),
    ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] "da"\n', '#, fuzzy\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "da"\nmsgstr[1] "B"\n'),
    ('#~ msgid "a"\n#~ msgstr ""\n', '#~ msgid "a"\n#~ msgstr ""\n'),
    ('msgid "a"\r\nmsgstr ""\r\n\r\n# end\r\n', '#, fuzzy\r\nmsgid "a"\r\nmsgstr "A"\r\n\r\n# end\r\n'),
    ('msgid "שלום"\nmsgstr ""\n\n\nmsgid "b"\nmsgstr ""\n', '#, fuzzy\nmsgid "שלום"\nmsgstr "שלום"\n\n\n#, fuzzy\nmsgid "b"\nmsgstr "B"\n'),
    (
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n',
        '#, fuzzy\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d FILE"\nmsgstr[1] "%d FILES"\n',
    ),
]  # fmt: skip


def shouting(unit: DocumentUnit) -> UnitResult:
    """Capitals, but for placeholders."""
    parts = re.split(r"(%\d?\$?[a-z])", plain_text(unit.source))
    return UnitResult(("".join(part if part.startswith("%") else part.upper() for part in parts),))


def test_lines_of_a_message_are_text(tmp_path: Path) -> None:
    (unit,) = opened(tmp_path, "a.po", f'{header()}\nmsgid "a\\n b"\nmsgstr ""\n').units()
    assert (unit.source, unit.has_lines) == (("a\n b",), True)


@pytest.mark.parametrize(("entry", "expected"), ENTRIES)
def test_entries(tmp_path: Path, entry: str, expected: str) -> None:
    written = rewritten(opened(tmp_path, "a.po", f"{header()}\n{entry}"), shouting)
    assert written.decode() == f"{header()}\n{expected}"
    check(tmp_path, written)


def test_all_takes_fuzzy_ones_and_keeps_what_they_said(tmp_path: Path) -> None:
    entry = '# n\n#, fuzzy, c-format\n#| msgid "x"\nmsgid "a"\nmsgstr ""\n"old\\n"\n"text"\n'
    document = opened(tmp_path, "a.po", f"{header()}\n{entry}", all_units=True)
    assert [unit.existing for unit in document.units()] == [("old\ntext",)]
    written = rewritten(document)
    expected = (
        '# n\n# previous msgstr ""\n# previous "old\\n"\n# previous "text"\n#, fuzzy, c-format\n#| msgid "x"\n'
        'msgid "a"\nmsgstr "A"\n'
    )
    assert written.decode() == f"{header()}\n{expected}"
    check(tmp_path, written)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('#, fuzzy\nmsgid "a"\nmsgstr ""\n', 'msgid "a"\nmsgstr "A"\n'),
        ('#, fuzzy, c-format\nmsgid "a"\nmsgstr ""\n', '#, c-format\nmsgid "a"\nmsgstr "A"\n'),
        (
            '#, c-format\nmsgid "a %s and %d b"\nmsgstr ""\n',
            '#, c-format\nmsgid "a %s and %d b"\nmsgstr "A %s AND %d B"\n',
        ),
    ],
)
def test_without_the_mark(tmp_path: Path, entry: str, expected: str) -> None:
    written = rewritten(opened(tmp_path, "a.po", f"{header()}\n{entry}", fuzzy=False, all_units=True), shouting)
    assert written.decode() == f"{header()}\n{expected}"
    check(tmp_path, written)


def test_arguments_in_another_order_are_marked_in_any_case(tmp_path: Path) -> None:
    entry = '#, c-format\nmsgid "a %s %d"\nmsgstr ""\n'
    document = opened(tmp_path, "a.po", f"{header()}\n{entry}", fuzzy=False)
    assert "#, fuzzy, c-format" in rewritten(document, lambda _: UnitResult(("%d %s",))).decode()


# Plural forms


PLURALS = [
    # language, header's rule, singular, plural, units, which unit each form is
    ("pl", POLISH, "%d file", "%d files", ["%d file", "%d files"], [0, 1, 1]),
    ("pl", POLISH, "one file", "%d files", ["one file", "%d files"], [0, 1, 1]),
    ("ar", RULES["ar"], "%d file", "%d files", ["%d file", "%d files"], [1, 0, 1, 1, 1, 1]),
    ("ru", RULES["ru"], "%d file", "%d files", ["%d file", "%d files"], [0, 1, 1]),
    ("ru", RULES["ru"], "one file", "%d files", ["%d files"], [0, 0, 0]),  # the first form is for 21 too
    ("ja", RULES["ja"], "%d file", "%d files", ["%d files"], [0]),
    ("pl", "nplurals=INTEGER; plural=EXPRESSION;", "%d file", "%d files", ["%d file", "%d files"], [0, 1, 1]),
]


@pytest.mark.parametrize(("language", "rule", "one", "many", "units", "which"), PLURALS)
def test_plural_forms_follow_the_rule(
    tmp_path: Path, language: str, rule: str, one: str, many: str, units: list[str], which: list[int]
) -> None:
    entry = f'\n#, c-format\nmsgid "{one}"\nmsgid_plural "{many}"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    document = opened(tmp_path, "a.po", header(language, rule) + entry)
    assert texts(document) == units
    written = rewritten(document, shouting)
    said = [shouting(unit).target[0] for unit in document.units()]
    forms = "".join(f'msgstr[{form}] "{said[unit]}"\n' for form, unit in enumerate(which))
    assert written.decode().endswith(f'msgid_plural "{many}"\n{forms}')
    check(tmp_path, written)


# The header


def test_a_template_becomes_a_catalogue(tmp_path: Path) -> None:
    template = header("", "nplurals=INTEGER; plural=EXPRESSION;", "CHARSET").replace(
        "2024-01-01 00:00+0000", "YEAR-MO-DA"
    )
    document = opened(tmp_path, "a.pot", f'# title\n#, fuzzy\n{template}\nmsgid "ä"\nmsgstr ""\n', target_lang="pl")
    written = rewritten(document)
    expected = f'# title\n{header("pl", POLISH)}\n#, fuzzy\nmsgid "ä"\nmsgstr "Ä"\n'
    assert re.sub(r"Date: [-\d]{10} \d\d:\d\d\+0000", "Date: 2024-01-01 00:00+0000", written.decode()) == expected
    check(tmp_path, written)


def test_a_missing_header_is_written(tmp_path: Path) -> None:
    written = rewritten(opened(tmp_path, "a.po", 'msgid "a"\nmsgstr ""\n', target_lang="de_AT"))
    assert written.decode().startswith('msgid ""\nmsgstr ""\n"PO-Revision-Date: 20')
    assert '"Language: de_AT\\n"' in written.decode()
    check(tmp_path, written)


def test_the_encoding_is_the_headers(tmp_path: Path) -> None:
    document = header("pl", charset="ISO-8859-2") + '\nmsgid "żółw"\nmsgstr ""\n'
    file = opened(tmp_path, "a.po", document.encode("iso-8859-2"))
    written = rewritten(file)
    assert 'msgstr "ŻÓŁW"' in written.decode("iso-8859-2")
    check(tmp_path, written)
    with pytest.raises(Exception, match="its encoding iso8859-2 has no '猫'"):
        rewritten(file, lambda _: UnitResult(("猫",)))


WRONG = [
    ("hello\n", {}, "a.po: line 1 is not PO"),
    ('"a"\n', {}, "a.po: line 1 is not PO"),
    ('msgid "a"\n', {}, "a.po: the entry at line 1 has no msgstr; is the file cut off?"),
    ('msgid "a\nmsgstr ""\n', {}, "a.po: line 1 is not PO"),
    ('msgid "a"\nmsgid "b"\nmsgstr ""\n', {}, "a.po: line 2 has msgid a second time"),
    ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n', {}, "a.po: line 1 has plural forms, but the header has no Plural-Forms; fill it in, or give --target-lang"),
    ('msgid "a"\nmsgstr[0] ""\n', {}, "a.po: the entry at line 1 has no msgid, or msgstr without its form"),
    ('msgstr "a"\n', {}, "a.po: the entry at line 1 has no msgid, or msgstr without its form"),
    (header("fr"), {"target_lang": "en"}, "a.po: has no text in 'en'; its header says 'fr'"),
    (header(charset="nope"), {}, "a.po: its header names the encoding 'nope', which cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "options", "expected"), WRONG)
def test_wrong_files_are_one_line(tmp_path: Path, document: str, options: dict[str, str], expected: str) -> None:
    assert message(tmp_path, "a.po", document, **options) == expected


# Everything else stays


COMMENT = st.sampled_from(
    ["# x\n", "#. y\n", "#: z:1\n", "#, c-format\n", "\n", "#\n", '#~ msgid "g"\n#~ msgstr "h"\n\n']
)
TEXT = st.text(st.sampled_from('ab \\n"\t%é\\'), min_size=1, max_size=12).filter(str.strip)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.lists(COMMENT, max_size=3).map("".join), TEXT, st.booleans()), max_size=5))
def test_with_the_identity_only_msgstr_changes(tmp_path: Path, items: list[tuple[str, str, bool]]) -> None:
    given = [f"{comments}msgid {quoted(text)}\nmsgstr {quoted('da') if done else ''}" for comments, text, done in items]
    before = "".join(
        [header(), "\n", *(f"{entry}{'' if items[at][2] else quoted('')}\n" for at, entry in enumerate(given))]
    )
    expected = "".join(
        [
            header(),
            "\n",
            *(f"{entry}{'' if items[at][2] else quoted(items[at][1])}\n" for at, entry in enumerate(given)),
        ]
    )
    document = opened(tmp_path, "a.po", before, fuzzy=False)
    assert rewritten(document, identity).decode() == expected
    assert texts(document) == [text.strip() for _, text, done in items if not done]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    from xml_readers import peak_memory

    peaks = []
    for count in (200, 2_000):
        entries = "".join(f'#: a.c:{number}\nmsgid "Text {number}"\nmsgstr ""\n\n' for number in range(count))
        document = opened(tmp_path, "a.po", f"{header()}\n{entries}")
        with peak_memory() as peak, (tmp_path / "out.po").open("wb") as out:
            document.write((capitals(unit) for unit in document.units()), out)
        peaks.append(peak[0])
    assert peaks[1] < peaks[0] * 1.5 + 100_000


@pytest.mark.parametrize(
    ("field", "signs"), [("", "&_"), ("X-Accelerator-Marker: ~\\n", "~"), ("X-Accelerator-Marker: \\n", "")]
)
def test_the_header_may_name_the_mark_of_accelerators(tmp_path: Path, field: str, signs: str) -> None:
    document = f'msgid ""\nmsgstr "Language: en\\n{field}"\n\nmsgid "_Datei"\nmsgstr ""\n'
    assert [unit.accelerators for unit in opened(tmp_path, "a.po", document).units()] == [signs]
