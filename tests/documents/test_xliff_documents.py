"""XLIFF of both generations, translated: tables of units, files of strangers, and the official schemas."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rewriting import capitals, identity, message, opened, rewritten, sources, texts
from xml_readers import peak_memory

from knnmt.documents.content import DocumentUnit, Match, Tag, UnitResult, plain_text
from knnmt.text.corpus import Corpus, Skipped

NAMESPACE_1 = "urn:oasis:names:tc:xliff:document:1.2"
NAMESPACE_2 = "urn:oasis:names:tc:xliff:document:2.0"
MACHINE = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
STATE_2 = 'state="initial" subState="knnmt:machine"'


def file_1(body: str, attributes: str = 'source-language="de" target-language="en"') -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="{NAMESPACE_1}">'
        f'<file original="a.html" datatype="html" {attributes}><body>{body}</body></file></xliff>\n'
    )


def file_2(body: str, attributes: str = 'srcLang="de" trgLang="en"', version: str = "2.0") -> str:
    return f'<xliff xmlns="{NAMESPACE_2}" version="{version}" {attributes}>\n<file id="f">{body}</file>\n</xliff>'


def unit_1(inside: str, attributes: str = "") -> str:
    return f'<trans-unit id="1"{attributes}>{inside}</trans-unit>'


# What is read and written


UNITS_1 = [
    # no target, an empty one, an unfinished one, a finished one
    ("<source>eins</source>", f"<source>eins</source><target {MACHINE}>EINS</target>"),
    ("\n  <source>eins</source>\n", f"\n  <source>eins</source>\n  <target {MACHINE}>EINS</target>\n"),
    ("<source>eins</source><target/>", f"<source>eins</source><target {MACHINE}>EINS</target>"),
    (
        "<source>eins</source><target xml:lang='en' state='new' >alt</target><note>n</note>",
        "<source>eins</source><target xml:lang='en' state=\"needs-review-translation\" "
        'state-qualifier="mt-suggestion">EINS</target><note>n</note>',
    ),
    ("<source>eins</source><target>one</target>", "<source>eins</source><target>one</target>"),
    ('<source>a</source><target state="final">b</target>', '<source>a</source><target state="final">b</target>'),
    # nothing to translate
    ("<source/>", "<source/>"),
    ("<source> \n </source>", "<source> \n </source>"),
    ("<note>n</note>", "<note>n</note>"),
    # inline elements
    (
        '<source>a <g id="1">b <g id="2">c</g></g><x id="3"/> d</source>',
        f'<source>a <g id="1">b <g id="2">c</g></g><x id="3"/> d</source><target {MACHINE}>'
        'A <g id="1">B <g id="2">C</g></g><x id="3"/> D</target>',
    ),
    (
        '<source>a<bpt id="1">&lt;a t="<sub>der <x id="9"/> Titel</sub>"></bpt>b<ept id="1">&lt;/a></ept></source>',
        '<source>a<bpt id="1">&lt;a t="<sub>der <x id="9"/> Titel</sub>"></bpt>b<ept id="1">&lt;/a></ept></source>'
        f'<target {MACHINE}>A<bpt id="1">&lt;a t="<sub>DER <x id="9"/> TITEL</sub>"></bpt>B<ept id="1">&lt;/a></ept>'
        "</target>",
    ),
    (
        '<source>a <mrk mtype="protected">Foo</mrk> <mrk mtype="term">b</mrk> <ph id="1">%s</ph></source>',
        '<source>a <mrk mtype="protected">Foo</mrk> <mrk mtype="term">b</mrk> <ph id="1">%s</ph></source>'
        f'<target {MACHINE}>A <mrk mtype="protected">Foo</mrk> <mrk mtype="term">B</mrk> <ph id="1">%s</ph></target>',
    ),
    # references, CDATA, processing instructions, comments, line ends
    (
        "<source>a &amp; b &lt; c&#160;d &quot;e&quot;</source>",
        "<source>a &amp; b &lt; c&#160;d &quot;e&quot;</source>"
        f"<target {MACHINE}>A &amp; B &lt; C&#160;D &quot;E&quot;</target>",
    ),
    (
        "<source><![CDATA[a < b & c]]></source>",
        f"<source><![CDATA[a < b & c]]></source><target {MACHINE}><![CDATA[A < B & C]]></target>",
    ),
    (
        "<source>a<?br here?>b<!-- c -->d</source>",
        f"<source>a<?br here?>b<!-- c -->d</source><target {MACHINE}>A<?br here?>BD</target>",
    ),
    ("<source>a\r\nb</source>", f"<source>a\r\nb</source><target {MACHINE}>A\r\nB</target>"),
    # segments
    (
        '<source>a. b.</source><seg-source><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        "</seg-source>",
        '<source>a. b.</source><seg-source><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        f'</seg-source><target {MACHINE}><mrk mtype="seg" mid="0">A.</mrk> <mrk mtype="seg" mid="1">B.</mrk></target>',
    ),
    (
        '<source>a. b.</source><seg-source><g id="1"><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        '</g></seg-source><target><g id="1"><mrk mtype="seg" mid="0">one.</mrk> <mrk mtype="seg" mid="1"/></g></target>',
        '<source>a. b.</source><seg-source><g id="1"><mrk mtype="seg" mid="0">a.</mrk> <mrk mtype="seg" mid="1">b.</mrk>'
        f'</g></seg-source><target {MACHINE}><g id="1"><mrk mtype="seg" mid="0">one.</mrk> '
        '<mrk mtype="seg" mid="1">B.</mrk></g></target>',
    ),
    # an alternative is no target, and another namespace is no unit's
    (
        '<source>a</source><alt-trans><source>x</source><target>y</target></alt-trans><o:target xmlns:o="o">z</o:target>',
        f"<source>a</source><target {MACHINE}>A</target><alt-trans><source>x</source><target>y</target></alt-trans>"
        '<o:target xmlns:o="o">z</o:target>',
    ),
]


@pytest.mark.parametrize(("inside", "expected"), UNITS_1)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_units_of_xliff_1(tmp_path: Path, inside: str, expected: str, encoding: str) -> None:
    before, after = (
        file_1(unit_1(text)).replace("UTF-8", "UTF-16" if encoding == "utf-16" else encoding)
        for text in (inside, expected)
    )
    assert rewritten(opened(tmp_path, "a.xlf", before.encode(encoding))) == after.encode(encoding)


UNITS_2 = [
    ("<segment><source>a</source></segment>", f"<segment {STATE_2}><source>a</source><target>A</target></segment>"),
    (
        '<segment id="s" state="translated"><source>a</source><target/></segment>',
        '<segment id="s" state="initial" subState="knnmt:machine"><source>a</source><target>A</target></segment>',
    ),
    (
        '<segment state="final"><source>a</source><target>b</target></segment>',
        '<segment state="final"><source>a</source><target>b</target></segment>',
    ),
    (
        '<segment><source>a</source><target order="2">b</target></segment><ignorable><source> x </source></ignorable>',
        f'<segment {STATE_2}><source>a</source><target order="2">A</target></segment>'
        "<ignorable><source> x </source></ignorable>",
    ),
    (
        '<segment><source>a <pc id="1">b <mrk id="m" translate="no">c</mrk></pc> <ph id="2"/><cp hex="0001"/></source>'
        "</segment>",
        f'<segment {STATE_2}><source>a <pc id="1">b <mrk id="m" translate="no">c</mrk></pc> <ph id="2"/>'
        '<cp hex="0001"/></source><target>A <pc id="1">B <mrk id="m" translate="no">c</mrk></pc> <ph id="2"/>'
        '<cp hex="0001"/></target></segment>',
    ),
    (
        '<segment><source>a <sm id="m" translate="no"/>b <ph id="1"/> c<em startRef="m"/> d</source></segment>',
        f'<segment {STATE_2}><source>a <sm id="m" translate="no"/>b <ph id="1"/> c<em startRef="m"/> d</source>'
        '<target>A <sm id="m" translate="no"/>b <ph id="1"/> c<em startRef="m"/> D</target></segment>',
    ),
]


@pytest.mark.parametrize(("inside", "expected"), UNITS_2)
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_units_of_xliff_2(tmp_path: Path, inside: str, expected: str, version: str) -> None:
    before, after = (file_2(f'<unit id="u">{text}</unit>', version=version) for text in (inside, expected))
    document = opened(tmp_path, "a.xliff", before)
    assert document.kind == f"XLIFF {version}"
    assert rewritten(document) == after.encode()


PAIRS = [
    ('a<bx id="1"/>b<ex id="1"/>', ["open 1", "close 1"]),
    ('a<bpt id="1" rid="7">x</bpt>b<ept id="2" rid="7">x</ept>', ["open 1", "close 1"]),
    ('<ept id="1">x</ept>a<bpt id="1">x</bpt>', ["close None", "open None"]),
    ('a<bx id="1"/>b<bx id="2"/>c<ex id="1"/>d<ex id="2"/>', ["open 1", "open None", "close 1", "close None"]),
    ('<g id="1">a<bx id="1"/></g>b<ex id="1"/>', ["open 1", "open None", "close 1", "close None"]),
    ('<g id="1"/>a<it id="1" pos="open">x</it>', ["empty None", "empty None"]),
]


@pytest.mark.parametrize(("source", "expected"), PAIRS)
def test_tags_are_pairs_where_they_nest(tmp_path: Path, source: str, expected: list[str]) -> None:
    (content,) = sources(opened(tmp_path, "a.xlf", file_1(unit_1(f"<source>{source}</source>"))))
    assert [f"{piece.kind} {piece.pair}" for piece in content if isinstance(piece, Tag)] == expected


TRANSLATED = [
    ('<group translate="no"><trans-unit id="1"><source>a</source></trans-unit></group>', []),
    ('<group translate="no"><trans-unit id="1" translate="yes"><source>a</source></trans-unit></group>', ["a"]),
    ('<group translate="no"><group><trans-unit id="1"><source>a</source></trans-unit></group></group>', []),
    ('<group><group translate="no"/><trans-unit id="1"><source>a</source></trans-unit></group>', ["a"]),
    ('<trans-unit id="1" translate="no"><source>a</source></trans-unit>', []),
]


@pytest.mark.parametrize(("body", "expected"), TRANSLATED)
def test_what_is_not_to_be_translated_is_left_alone(tmp_path: Path, body: str, expected: list[str]) -> None:
    document = opened(tmp_path, "a.xlf", file_1(body))
    assert texts(document) == expected
    twin = body.replace("<trans-unit", "<unit").replace("</trans-unit", "</unit")
    twin = re.sub("<source>a</source>", "<segment><source>a</source></segment>", twin)
    assert texts(opened(tmp_path, "b.xlf", file_2(twin))) == expected


def test_all_units_may_be_asked_for(tmp_path: Path) -> None:
    body = unit_1('<source>eins</source><target state="final">one</target>')
    document = opened(tmp_path, "a.xlf", file_1(body), all_units=True)
    assert [(unit.source, unit.existing) for unit in document.units()] == [(("eins",), ("one",))]


def test_the_unit_knows_its_place_and_name(tmp_path: Path) -> None:
    body = '<trans-unit id="7" resname="menu.open"><source>a</source></trans-unit><trans-unit id="8"><source>b</source>'
    first, second = opened(tmp_path, "a.xlf", file_1(f"{body}</trans-unit>")).units()
    assert (first.number, first.context, first.place) == (1, "menu.open", f"{tmp_path}/a.xlf: unit 7")
    assert (second.number, second.context) == (2, "8")


# States, confidence, matches


def with_everything(unit: DocumentUnit) -> UnitResult:
    match = Match("a & b", "c < d", 81.5, "house")
    return UnitResult(capitals(unit).target, "machine", 0.75, (match,))


def test_confidence_and_matches_of_xliff_1(tmp_path: Path) -> None:
    its = 'xmlns:its="http://www.w3.org/2005/11/its" its:mtConfidence="0.7500" its:annotatorsRef="mt-confidence|knnmt"'
    alternative = (
        '<alt-trans match-quality="82%" origin="house"><source>a &amp; b</source><target>c &lt; d</target></alt-trans>'
    )
    document = opened(tmp_path, "a.xlf", file_1(unit_1("<source>a</source>")))
    once = rewritten(document, with_everything)
    expected = file_1(unit_1(f"<source>a</source><target {MACHINE} {its}>A</target>{alternative}"))
    assert once.decode() == expected
    assert rewritten(opened(tmp_path, "b.xlf", once), with_everything) == once


def test_confidence_and_matches_of_xliff_2(tmp_path: Path) -> None:
    declared = 'xmlns:i="http://www.w3.org/2005/11/its" srcLang="de" trgLang="en"'
    document = opened(tmp_path, "a.xlf", file_2('<unit id="u"><segment><source>a</source></segment></unit>', declared))
    once = rewritten(document, with_everything)
    expected = file_2(
        '<unit id="u"><mtc:matches xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"><mtc:match ref="#knnmt-segment1" '
        'type="tm" similarity="81.5" origin="house"><source>a &amp; b</source><target>c &lt; d</target></mtc:match>'
        f'</mtc:matches><segment id="knnmt-segment1" {STATE_2}><source>a</source><target><mrk id="knnmt-mt1" '
        'type="its:any" i:mtConfidence="0.7500" i:annotatorsRef="mt-confidence|knnmt">A</mrk></target></segment></unit>',
        declared,
    )
    assert once.decode() == expected
    assert rewritten(opened(tmp_path, "b.xlf", once), with_everything) == once


STATES = [
    ({}, "exact", "needs-review-translation", "exact-match", "initial", "exact-match"),
    ({}, "machine", "needs-review-translation", "mt-suggestion", "initial", "machine"),
    ({"state": "initial"}, "machine", "needs-review-translation", "mt-suggestion", "initial", "machine"),
    ({"state": "translated"}, "machine", "translated", "mt-suggestion", "translated", "machine"),
]


@pytest.mark.parametrize(("options", "origin", "state_1", "qualifier", "state_2", "sub_state"), STATES)
def test_states(
    tmp_path: Path, options: dict[str, str], origin: Any, state_1: str, qualifier: str, state_2: str, sub_state: str
) -> None:
    one = opened(tmp_path, "a.xlf", file_1(unit_1("<source>a</source>")), **options)
    two = opened(tmp_path, "b.xlf", file_2('<unit id="u"><segment><source>a</source></segment></unit>'), **options)
    first, second = (rewritten(document, lambda _: UnitResult(("b",), origin)).decode() for document in (one, two))
    assert f'<target state="{state_1}" state-qualifier="{qualifier}">b</target>' in first
    assert f'<segment state="{state_2}" subState="knnmt:{sub_state}">' in second


# Languages


def test_a_missing_target_language_is_added(tmp_path: Path) -> None:
    one = opened(tmp_path, "a.xlf", file_1(unit_1("<source>a</source>"), 'source-language="de"'), target_lang="en")
    assert b'source-language="de" target-language="en">' in rewritten(one)
    body = '<unit id="u"><segment><source>a</source></segment></unit>'
    two = opened(tmp_path, "b.xlf", file_2(body, 'srcLang="de"'), target_lang="en")
    assert b'srcLang="de" trgLang="en">' in rewritten(two)


def test_of_several_files_those_in_other_languages_are_left_alone(tmp_path: Path) -> None:
    document = file_1(unit_1("<source>a</source>"))
    other = '<file original="b" datatype="x" source-language="fr"><body>' + unit_1("<source>b</source>")
    document = document.replace("</xliff>", f"{other}</body></file></xliff>")
    assert texts(opened(tmp_path, "a.xlf", document, source_lang="de", target_lang="en")) == ["a"]


WRONG = [
    ("<xliff version='1.2'><file", {}, "a.xlf: broken XML: unclosed token (line 1)"),
    ("<tmx/>", {}, "a.xlf: not an XLIFF file: its first element is <tmx>, not <xliff>"),
    ("<xliff version='3.0'/>", {}, "a.xlf: XLIFF of version '3.0'; 1.0 to 1.2 and 2.x can be read"),
    ("", {}, "a.xlf: broken XML: no element found (line 1)"),
    (file_1(unit_1("<source>&x;</source>")), {}, "a.xlf: broken XML: undefined entity (line 2)"),
    ('<!DOCTYPE x [<!ENTITY a "b">]><xliff version="1.2"/>', {}, "a.xlf: declares the entity 'a'; entities are not resolved"),
    ('<!DOCTYPE xliff SYSTEM "x.dtd">' + file_1(unit_1("<source>&x;</source>"))[39:], {}, "a.xlf: unit 1 uses the entity 'x'; entities are not resolved"),
    ("<xliff version='1.2'>" + "<a>" * 300, {}, "a.xlf: more than 200 elements inside each other"),
    (file_1(unit_1("<source>a" + "<x/>" * 70_000 + "</source>")), {}, "a.xlf: more than 65,536 tags in one unit"),
    (b'<?xml version="1.0" encoding="nope"?><xliff/>', {}, "a.xlf: declares the encoding 'nope', which cannot be read"),
    (b"<xliff version='1.2'>\n\xff</xliff>", {}, "a.xlf: line 2 is not utf-8 (invalid start byte)"),
    (file_1("", 'target-language="en"'), {}, "a.xlf: names no source language; give it with --source-lang"),
    (file_2("", 'srcLang="de"'), {}, "a.xlf: names no target language; give it with --target-lang"),
    (file_1(""), {"source_lang": "fr"}, "a.xlf: has no text from fr to any language; it has de to en"),
    (file_1(""), {"state": "done"}, "--state done: must be one of initial, translated, needs-review-translation"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "options", "expected"), WRONG)
def test_wrong_files_are_one_line(
    tmp_path: Path, document: str | bytes, options: dict[str, str], expected: str
) -> None:
    assert message(tmp_path, "a.xlf", document, **options) == expected


def test_a_character_that_xml_cannot_hold_is_refused(tmp_path: Path) -> None:
    document = opened(tmp_path, "a.xlf", file_1(unit_1("<source>a</source>")))
    with pytest.raises(Exception, match="which XML cannot hold"):
        rewritten(document, lambda _: UnitResult(("\x01",)))


# Everything else stays


INLINE = st.recursive(
    st.sampled_from(["Wort ", "a &amp; b", "&#xE4;", "שלום", "<![CDATA[<x>]]>", "<?pi x?>", "<!-- c -->", '<x id="1"/>',
                     '<bx id="2"/>', '<ex id="2"/>', '<ph id="3">%s<sub>drin</sub></ph>', "\r\n ", "<it id='4' pos='open'>b</it>"]),
    lambda inside: st.one_of(
        st.lists(inside, max_size=4).map("".join),
        inside.map(lambda text: f"<g id='5' o=\"1\">{text}</g >"),
        inside.map(lambda text: f'<mrk mtype="term">{text}</mrk>'),
        inside.map(lambda text: f'<mrk mtype="protected">{text}</mrk>'),
    ),
    max_leaves=8,
)  # fmt: skip
UNIT = st.tuples(INLINE, st.sampled_from(["", "<target/>", "<target state='new'>x</target>", "<target>da</target>"]))
GROUP = "<group id='g'  xml:space=\"preserve\"/>"
OUTSIDE = ["", "\n\t", "<!-- <trans-unit> -->", "<?x <source>?>", GROUP, "<o:x xmlns:o='o'/>"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(UNIT, st.sampled_from(OUTSIDE)), max_size=5))
@example([(('<mrk mtype="term">Wort <mrk mtype="protected">Wort </mrk></mrk>', ""), "")])
def test_with_the_identity_only_targets_change(tmp_path: Path, items: list[tuple[tuple[str, str], str]]) -> None:
    expected = []
    for (source, target), outside in items:
        needed = target != "<target>da</target>" and said(source).strip()
        new = f"<target {MACHINE}>{source}</target>" if needed else target
        expected.append(unit_1(f"<source>{source}</source>{new}") + outside)
    given = [unit_1(f"<source>{source}</source>{target}") + outside for (source, target), outside in items]
    before = file_1("".join(given))
    document = opened(tmp_path, "a.xlf", before)
    assert rewritten(document, identity).decode() == file_1("".join(expected))


def said(source: str) -> str:
    """The text that a unit gives to translators, by an independent reading."""
    from lxml import etree

    tree = etree.fromstring(f"<s>{source}</s>")
    plain = tree.xpath("//text()[not(ancestor::mrk[@mtype='protected'] or ancestor::it or ancestor::ph)]")
    subs = tree.xpath("//sub[not(ancestor::mrk[@mtype='protected'])]//text()")
    return "".join([*plain, *subs])


def test_memory_stays_below_ten_times_the_file(tmp_path: Path) -> None:
    line = '<trans-unit id="{}">\n<source>Ein <g id="1">langer Satz</g> der Zahl {}, auch &amp; 🙂.</source>\n'
    body = "".join(line.format(number, number) + f"<note>{'n' * 60}</note></trans-unit>\n" for number in range(2_000))
    data = file_1(body).encode()
    with peak_memory() as peak:
        document = opened(tmp_path, "a.xlf", data)
        written = rewritten(document, identity)
    assert peak[0] < 10 * len(data)
    assert re.sub(rb"\n<target[^>]*>.*?</target>", b"", written) == data


def test_what_was_written_is_read_by_build(tmp_path: Path) -> None:
    body = unit_1('<source>a <g id="1">b</g><x id="2"/></source>')
    written = rewritten(opened(tmp_path, "a.xlf", file_1(body), state="translated"))
    (tmp_path / "b.xlf").write_bytes(written)
    units = list(Corpus(tmp_path / "b.xlf", languages=("de", "en")).segments(Skipped()))
    assert [(unit.source, unit.target) for unit in units] == [("a b", "A B")]
    (unit,) = opened(tmp_path, "c.xlf", file_1(body)).units()
    assert plain_text(unit.source) == "a b"


# The official schemas, which are not part of this project


SCHEMAS = os.environ.get("KNNMT_XLIFF_SCHEMAS", "")


@pytest.mark.skipif(not SCHEMAS, reason="KNNMT_XLIFF_SCHEMAS names no folder with the schemas of OASIS")
@pytest.mark.skipif(shutil.which("xmllint") is None, reason="xmllint is not installed")
@pytest.mark.parametrize("generation", [1, 2])
def test_what_is_written_meets_the_schema(tmp_path: Path, generation: int) -> None:
    """The folder has `1.2/xliff-core-1.2-transitional.xsd` and `2.1/all.xsd`, which imports core, matches and ITS."""
    schema = Path(SCHEMAS) / ("1.2/xliff-core-1.2-transitional.xsd" if generation == 1 else "2.1/all.xsd")
    table = UNITS_1 if generation == 1 else UNITS_2
    checked = 0
    for inside, _ in table:
        before = file_1(unit_1(inside)) if generation == 1 else file_2(f'<unit id="u">{inside}</unit>', version="2.1")
        if "<source" not in inside or not is_valid(schema, before, tmp_path):
            continue  # a table's rows also hold what the schema has not
        after = rewritten(opened(tmp_path, "a.xlf", before), with_everything).decode()
        assert is_valid(schema, after, tmp_path), after
        checked += 1
    assert checked > len(table) // 2


def is_valid(schema: Path, document: str, folder: Path) -> bool:
    (folder / "checked.xlf").write_bytes(document.encode())
    command = ["xmllint", "--noout", "--nonet", "--schema", str(schema), str(folder / "checked.xlf")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
