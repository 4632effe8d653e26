"""XLIFF of both generations, as tools write it, as it is broken, and as an attacker would write it."""

import io
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xml_readers import Documents, peak_memory

from knnmt.errors import CorpusError
from knnmt.text.corpus import Corpus, Skipped
from knnmt.text.units import Unit
from knnmt.text.xliff import XLIFF_1, read_xliff
from knnmt.text.xml_units import read_root

STEADILY = settings(deadline=None, derandomize=True, max_examples=50)


def xliff_1(*units: str, languages: str = 'source-language="de" target-language="en"', around: str = "{}") -> str:
    body = around.format("".join(units))
    return (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
        f'<file original="a.html" datatype="html" {languages}><header><note>of the file</note></header>'
        f"<body>{body}</body></file></xliff>"
    )


def xliff_2(*units: str, languages: str = 'srcLang="de" trgLang="en"', version: str = "2.0") -> str:
    return (
        f'<xliff version="{version}" xmlns="urn:oasis:names:tc:xliff:document:2.0" {languages}>'
        f'<file id="f1" original="a.html"><group id="g">{"".join(units)}</group></file></xliff>'
    )


def unit_1(source: str, target: str | None, *, unit: str = "", attributes: str = "", more: str = "") -> str:
    inner = "" if target is None else f"<target{attributes}>{target}</target>"
    return f'<trans-unit id="1"{unit}><source>{source}</source>{inner}{more}</trans-unit>'


def unit_2(source: str, target: str | None, *, state: str = ' state="final"') -> str:
    inner = "" if target is None else f"<target>{target}</target>"
    return f'<unit id="u1"><segment{state}><source>{source}</source>{inner}</segment></unit>'


XLIFF = Documents(read_xliff, "a.xlf")
units, read, message, said = XLIFF.units, XLIFF.read, XLIFF.message, XLIFF.said


# What is finished


@pytest.mark.parametrize(
    ("unit", "attributes", "expected"),
    [
        ("", "", ""),
        ("", ' state="translated"', ""),
        ("", ' state="signed-off"', ""),
        ("", ' state="final"', ""),
        (' approved="no"', ' state="translated"', ""),
        (' approved="yes"', "", ""),
        (' approved="yes"', ' state-qualifier="exact-match"', ""),
        (' approved="no"', "", "not approved"),
        ("", ' state-qualifier="mt-suggestion"', "that are suggestions"),
        ("", ' state="new"', "in the state new"),
        ("", ' state="needs-translation"', "in the state needs-translation"),
        (' approved="yes"', ' state="needs-review-translation"', "in the state needs-review-translation"),
        ("", ' state="x-strange"', "in a state that XLIFF does not know"),
    ],
)
def test_what_version_1_calls_finished(unit: str, attributes: str, expected: str) -> None:
    [found] = units(xliff_1(unit_1("eins", "one", unit=unit, attributes=attributes)))
    assert (found.source, found.target, found.unfinished) == ("eins", "one", expected)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (' state="translated"', ""),
        (' state="reviewed"', ""),
        (' state="final"', ""),
        (' state="initial"', "in the state initial"),
        ("", "in the state initial"),
        (' state="strange"', "in a state that XLIFF does not know"),
    ],
)
def test_what_version_2_calls_finished(state: str, expected: str) -> None:
    [found] = units(xliff_2(unit_2("eins", "one", state=state)))
    assert (found.source, found.target, found.unfinished) == ("eins", "one", expected)


@pytest.mark.parametrize("ending", ["xlf", "xliff", "XLF"])
def test_the_unfinished_is_counted_or_taken_on_request(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    document = xliff_1(
        unit_1("eins", "one"),
        unit_1("zwei", "two", attributes=' state="new"'),
        unit_1("drei", None),
        unit_1("vier", " "),
        unit_1("fünf", "", attributes=' state="needs-translation"'),
    )
    path.write_text(document, encoding="utf-8")
    for unfinished, expected, counts in [
        (False, ["eins"], {"in the state new": 1, "in the state needs-translation": 1}),
        (True, ["eins", "zwei"], {"in the state needs-translation": 1}),
    ]:
        skipped = Skipped()
        corpus = Corpus(path, languages=("de", "en"), unfinished=unfinished)
        assert [segment.source for segment in corpus.segments(skipped)] == expected
        assert skipped.counts == counts | {"without a translation": 1, "with an empty side": 1}


# Text and tags


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("plain &amp; &lt;b>", "plain & <b>"),
        ('a <x id="1"/> b', "a  b"),
        ('a.<x id="1"/>B 3.<x id="2"/>5', "a. B 3.5"),
        ('<g id="1" ctype="bold">fett <x id="2"/></g>!', "fett !"),
        ('<bx id="1"/>a<ex id="1"/>', "a"),
        ('<ph id="1">{code}</ph>a', "a"),
        ('a <mrk mtype="protected">Foo</mrk>b', "a b"),
        ('<bpt id="1">[b]</bpt>a<ept id="1">[/b]</ept><it id="2" pos="open">x</it>', "a"),
        ('a <mrk mtype="term">b</mrk> c', "a b c"),
        ("a<!-- c --><?p i?>b", "ab"),
        ('<g id="&quot;&lt;">a</g>', "a"),
        ("<![CDATA[<b> & %1$s]]>", "<b> & %1$s"),
    ],
)
def test_tags_of_version_1(inner: str, expected: str) -> None:
    assert read(xliff_1(unit_1(inner, inner))) == [(expected, expected)]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ('a <ph id="1" equiv="x"/> b', "a  b"),
        ('<pc id="1">fett <ph id="2"/></pc>', "fett "),
        ('<sc id="1"/>a<ec startRef="1"/>', "a"),
        ('a <mrk id="m" translate="no">b</mrk>c', "a c"),
        ('a <mrk id="m" type="term">b</mrk><sm id="n"/> c<em startRef="n"/>', "a b c"),
        ('a<cp hex="0001"/>b', "a\x01b"),
    ],
)
def test_tags_of_version_2(inner: str, expected: str) -> None:
    assert read(xliff_2(unit_2(inner, inner))) == [(expected, expected)]


PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=12)


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5), st.sampled_from(["utf-8", "utf-16"]), st.booleans())
@STEADILY
def test_any_text_comes_through(pairs: list[tuple[str, str]], encoding: str, second: bool) -> None:
    unit, document = (unit_2, xliff_2) if second else (unit_1, xliff_1)
    text = document(*(unit(escape(source), escape(target)) for source, target in pairs))
    assert read(text.encode(encoding)) == pairs


# Segments, languages, metadata


def test_segments_of_a_unit_of_version_1() -> None:
    segments = [("1", "Eins.", "One."), ("2", "Zwei.", "Two.")]
    sides = [" ".join(f'<mrk mtype="seg" mid="{row[0]}">{row[at]}</mrk>' for row in segments) for at in (1, 2)]
    document = xliff_1(unit_1("Eins. Zwei.", sides[1], more=f"<seg-source>{sides[0]}</seg-source>"))
    assert [(unit.source, unit.target, unit.metadata["segment"]) for unit in units(document)] == [
        ("Eins.", "One.", "1"),
        ("Zwei.", "Two.", "2"),
    ]


def test_a_segment_on_one_side_only_is_an_empty_side() -> None:
    marks = ['<mrk mtype="seg" mid="1">a</mrk>', '<mrk mtype="seg" mid="2">b</mrk>']
    document = xliff_1(unit_1("a", marks[1], more=f"<seg-source>{marks[0]}</seg-source>"))
    assert read(document) == [("a", ""), ("", "b")]


def test_alternatives_are_no_translations() -> None:
    more = '<alt-trans><source>eins</source><target state="final">uno</target></alt-trans>'
    assert read(xliff_1(unit_1("eins", None, more=more))) == [("eins", "")]


def test_several_segments_of_version_2() -> None:
    inner = "".join(
        f'<segment id="{s}" state="final"><source>{s}</source><target>{s}!</target></segment>' for s in "ab"
    )
    document = xliff_2(
        f'<unit id="1"><notes><note>n</note></notes>{inner}<ignorable><source> </source></ignorable></unit>'
    )
    facts = {"original": "a.html", "id": "1", "state": "final", "note": "n"}
    assert units(document) == [Unit(s, f"{s}!", "", facts | {"segment": s}) for s in "ab"]


def test_metadata_of_version_1() -> None:
    document = xliff_1(
        unit_1("eins", "one", unit=' resname="menu"', attributes=' state="final"', more="<note>a</note><note>b</note>")
    )
    facts = {"original": "a.html", "id": "1", "resname": "menu", "state": "final", "note": "a\nb"}
    assert units(document) == [Unit("eins", "one", "", facts)]


@pytest.mark.parametrize("languages", [("de", "en"), ("de-AT", "EN"), ("deu", None), (None, None)])
def test_languages_that_fit(languages: tuple[str | None, str | None]) -> None:
    assert read(xliff_1(unit_1("eins", "one")), *languages) == [("eins", "one")]
    assert read(xliff_2(unit_2("eins", "one")), *languages) == [("eins", "one")]


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (("fr", "en"), "a.xlf: has no text from fr to en; it has de to en"),
        (("en", "de"), "a.xlf: has no text from en to de; it has de to en"),
        ((None, "it"), "a.xlf: has no text from any language to it; it has de to en"),
    ],
)
def test_languages_that_do_not_fit(languages: tuple[str | None, str | None], expected: str) -> None:
    assert message(xliff_1(unit_1("eins", "one")), *languages) == expected
    assert message(xliff_2(unit_2("eins", "one")), *languages) == expected


def test_a_file_of_another_language_is_an_empty_side() -> None:
    other = '<file source-language="de" target-language="fr"><body>' + unit_1("zwei", "deux") + "</body></file>"
    document = xliff_1(unit_1("eins", "one")).replace("</xliff>", f"{other}</xliff>")
    assert read(document) == [("eins", "one"), ("", "")]


def test_the_language_of_a_text_comes_before_that_of_its_file() -> None:
    document = xliff_1(unit_1("eins", "one", attributes=' xml:lang="en-GB"'), languages='source-language="de"')
    assert read(document, "de", "en") == [("eins", "one")]
    assert "it has de to en-GB" in message(document, "de", "fr")


def test_duplicate_ids_are_units_of_their_own() -> None:
    """Ids are kept, not trusted: to hold all of them would take memory that grows with the file."""
    assert read(xliff_1(unit_1("eins", "one"), unit_1("zwei", "two"))) == [("eins", "one"), ("zwei", "two")]


# Broken files


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", "not an XLIFF file: "),
        ("msgid", "not an XLIFF file: "),
        ("<tmx/>", "not an XLIFF file: its first element is <tmx>, not <xliff>"),
        ("<xliff/>", "XLIFF of version '' cannot be read"),
        ('<xliff version="3.0"/>', "XLIFF of version '3.0' cannot be read; 1.0 to 1.2 and 2.x can"),
        (xliff_1(unit_1("a", "b"), unit_1("c", "d"))[:-60], "broken XLIFF after unit 1: "),
        (xliff_2(unit_2("a", "b"))[:-9], "broken XLIFF after unit 1: "),
        (xliff_1(unit_1("f\xfcr", "for")).encode("latin-1"), "broken XLIFF after unit 0: "),
        (xliff_2(unit_2('a<cp hex="zz"/>', "b")), "unit 1 has no character 'zz'"),
        (xliff_2(unit_2('a<cp hex="D800"/>', "b")), "unit 1 has no character 'D800'"),
        ('<!DOCTYPE xliff [<!ENTITY e "x">]>' + xliff_1(unit_1("&e;", "b")), "unit 1 uses the entity &e;"),
        (
            xliff_1(unit_1("a", '<mrk mtype="seg" mid="1">b</mrk><mrk mtype="seg" mid="1">c</mrk>')),
            "unit 1 has the segment '1' twice",
        ),
    ],
)
def test_broken_files(document: str | bytes, expected: str) -> None:
    assert message(document).startswith(f"a.xlf: {expected}")


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("place", ["text", "tag", "note", "attribute"])
def test_nested_entities_do_not_expand(place: str, second: bool) -> None:
    levels = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
    unit, document = (unit_2, xliff_2) if second else (unit_1, xliff_1)
    body = {"text": "&l9;", "tag": '<ph id="1">&l9;</ph>', "note": "a", "attribute": '<x id="&l9;"/>'}[place]
    text = unit(body, "y")
    if place == "note":
        text = text.replace("<segment", "<notes><note>&l9;</note></notes><segment").replace(
            "</trans-unit>", "<note>&l9;</note></trans-unit>"
        )
    with peak_memory() as peak, pytest.raises(CorpusError) as caught:
        read(f'<!DOCTYPE xliff [<!ENTITY l0 "lol">{levels}]>{document(text)}')
    assert peak[0] < 1_000_000
    assert "lollol" not in str(caught.value)


def test_other_files_are_never_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim", encoding="utf-8")
    doctype = f'<!DOCTYPE xliff [<!ENTITY e SYSTEM "{secret.as_uri()}">]>'
    assert "geheim" not in message(doctype + xliff_1(unit_1("a&e;", "b")))


@given(st.binary(max_size=100))
@STEADILY
def test_any_bytes_give_pairs_or_one_line(data: bytes) -> None:
    for document in (data, xliff_1(unit_1("a", "{}")).encode().replace(b"{}", data)):
        assert "\n" not in said(document)


def test_memory_does_not_grow_with_groups_and_units() -> None:
    group = "<group>" + unit_1("Satz " * 10, "Sentence " * 10) * 5 + "</group>"
    sizes = []
    for count in (200, 2_000):
        document = io.BytesIO(xliff_1(group * count).encode())
        with peak_memory() as peak:
            assert sum(1 for _ in read_xliff(document, "a.xlf", "de", "en")) == 5 * count
        sizes += peak
    assert sizes[1] < 2 * sizes[0]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('<x:xliff version="1.2"/>', "not an XLIFF file: its first element is <x:xliff>, not <xliff>"),
        (
            '<xliff version="1.2"><file><x:trans-unit/></file></xliff>',
            "broken XLIFF after unit 0: Namespace prefix x on trans-unit is not defined",
        ),
    ],
)
def test_a_prefix_that_is_not_declared(document: str, expected: str) -> None:
    assert message(document).startswith(f"a.xlf: {expected}")


def test_only_known_attributes_of_the_root_are_looked_up() -> None:
    assert set(read_root(io.BytesIO(b'<xliff version="1.2" a="1" b="2"/>'), "a.xlf", XLIFF_1)) == {"version"}
