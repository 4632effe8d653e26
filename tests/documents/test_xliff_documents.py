"""XLIFF of both generations, translated: tables of units, files of strangers."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rewriting import identity, message, opened, rewritten, sources, texts
from xliff_files import (
    MACHINE,
    NAMESPACE_2,
    STATE_2,
    UNITS_1,
    UNITS_2,
    file_1,
    file_2,
    unit_1,
    with_everything,
)
from xml_readers import peak_memory

from knnmt.documents.content import Limit, Tag, UnitResult, plain_text
from knnmt.documents.xliff_units import MATCHES
from knnmt.text.corpus import Corpus, Skipped

# What is read and written


@pytest.mark.parametrize(("inside", "expected"), UNITS_1)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_units_of_xliff_1(tmp_path: Path, inside: str, expected: str, encoding: str) -> None:
    before, after = (
        file_1(unit_1(text)).replace("UTF-8", "UTF-16" if encoding == "utf-16" else encoding)
        for text in (inside, expected)
    )
    assert rewritten(opened(tmp_path, "a.xlf", before.encode(encoding))) == after.encode(encoding)


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


LIMITS_1 = [
    (' maxwidth="10" size-unit="char"', [Limit(10)]),
    (' maxwidth="10" size-unit="byte" maxbytes="8"', [Limit(10, "utf-8"), Limit(8, "utf-8")]),
    (' maxwidth="10"', []),  # pixels
    (' maxwidth="10" size-unit="pixel" maxbytes="x"', []),
    ("", []),
]
RESTRICTED = 'xmlns:slr="urn:oasis:names:tc:xliff:sizerestriction:2.0" srcLang="de" trgLang="en"'
LIMITS_2 = [
    ("", 'slr:sizeRestriction="10"', [Limit(10)]),
    ("", 'slr:sizeRestriction="2,10" slr:storageRestriction="20"', [Limit(10), Limit(20, "utf-8")]),
    ("", 'slr:sizeRestriction="2,*"', []),
    ("", "", []),
    ('<slr:profiles generalProfile="acme:pixels"/>', 'slr:sizeRestriction="10"', []),
    (
        '<slr:profiles generalProfile="xliff:codepoints" storageProfile="xliff:utf16"/>',
        'slr:sizeRestriction="10" slr:storageRestriction="20"',
        [Limit(10), Limit(20, "utf-16-le")],
    ),
]


@pytest.mark.parametrize(("attributes", "expected"), LIMITS_1)
def test_limits_of_xliff_1(tmp_path: Path, attributes: str, expected: list[Limit]) -> None:
    body = unit_1("<source>a</source>", attributes)
    (unit,) = opened(tmp_path, "a.xlf", file_1(body)).units()
    assert list(unit.limits) == expected


@pytest.mark.parametrize(("profiles", "attributes", "expected"), LIMITS_2)
def test_limits_of_xliff_2(tmp_path: Path, profiles: str, attributes: str, expected: list[Limit]) -> None:
    body = f'{profiles}<unit id="u" {attributes}><segment><source>a</source></segment></unit>'
    (unit,) = opened(tmp_path, "a.xlf", file_2(body, RESTRICTED)).units()
    assert list(unit.limits) == expected


def test_segments_share_the_limit_of_their_unit(tmp_path: Path) -> None:
    """What is finished counts as it is, what is not as long as its source."""
    segments = "<segment><source>eins</source></segment><segment><source>zwei oder</source></segment>"
    done = '<segment state="final"><source>x</source><target>six</target></segment>'
    body = f'<unit id="u" slr:sizeRestriction="20">{segments}{done}</unit>'
    assert [unit.limits for unit in opened(tmp_path, "a.xlf", file_2(body, RESTRICTED)).units()] == [
        (Limit(20 - 9 - 3),),
        (Limit(20 - 4 - 3),),
    ]
    marks = '<mrk mtype="seg" mid="1">eins</mrk> <mrk mtype="seg" mid="2">x</mrk>'
    old = '<target state="translated"><mrk mtype="seg" mid="1"></mrk> <mrk mtype="seg" mid="2">six</mrk></target>'
    inside = f"<source>eins x</source><seg-source>{marks}</seg-source>{old}"
    body = unit_1(inside, ' maxwidth="20" size-unit="char"')
    limits = [unit.limits for unit in opened(tmp_path, "b.xlf", file_1(body)).units()]
    assert limits == [(Limit(17),)]


# States, confidence, matches


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


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        (
            f'<mtc:matches xmlns:mtc="{MATCHES}"><mtc:match/></mtc:matches>',
            "<mtc:match/><mtc:match {0}><source>a &amp; b<",
        ),
        (f'<y:matches xmlns:y="{MATCHES}"/>', f'<y:matches xmlns:y="{MATCHES}"><y:match {{0}}><source>a &amp; b<'),
        (
            f'<matches xmlns="{MATCHES}"><match/></matches>',
            f'<match/><match {{0}}><source xmlns="{NAMESPACE_2}">a &amp; b<',
        ),
    ],
)
def test_a_unit_has_one_list_of_matches(tmp_path: Path, matches: str, expected: str) -> None:
    body = f'<unit id="u">{matches}<segment id="s"><source>a</source></segment></unit>'
    once = rewritten(opened(tmp_path, "a.xlf", file_2(body)), with_everything)
    assert expected.format('ref="#s" type="tm" similarity="81.5" origin="house"') in once.decode()
    assert once.count(b"matches xmlns") == 1
    assert rewritten(opened(tmp_path, "b.xlf", once), with_everything) == once


def test_what_a_machine_wrote_is_not_approved(tmp_path: Path) -> None:
    body = unit_1('<source>a</source><target state="final">b</target>', " approved='yes'")
    after = rewritten(opened(tmp_path, "a.xlf", file_1(body), all_units=True)).decode()
    assert f'<trans-unit id="1" approved="no"><source>a</source><target {MACHINE}>A</target>' in after
    assert rewritten(opened(tmp_path, "a.xlf", file_1(body))).decode() == file_1(body)


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


@settings(max_examples=150, deadline=None)
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


PRESERVE, DEFAULT = 'xml:space="preserve"', ' xml:space="default"'
SPACES = [
    (file_1(unit_1("<source>a</source>")), False),
    (file_1(unit_1("<source>a</source>", f" {PRESERVE}")), True),
    (file_1(f"<group {PRESERVE}>{unit_1('<source>a</source>')}</group>"), True),
    (file_1(f"<group {PRESERVE}>{unit_1('<source>a</source>', DEFAULT)}</group>"), False),
    (file_2(f'<group id="g" {PRESERVE}><unit id="u"><segment><source>a</source></segment></unit></group>'), True),
]


@pytest.mark.parametrize(("document", "expected"), SPACES)
def test_white_space_is_text_where_the_file_says_so(tmp_path: Path, document: str, expected: bool) -> None:
    (unit,) = opened(tmp_path, "a.xlf", document).units()
    assert unit.has_lines is expected


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
