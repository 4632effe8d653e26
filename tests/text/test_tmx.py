"""Translation memories as real tools write them: encodings, languages, markup, and what units say of themselves."""

import io
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tmx_documents import DOCTYPE, STEADILY, message, read, tmx, tuv, unit

from knnmt.text.corpus import Corpus, Skipped
from knnmt.text.tmx import read_tmx
from knnmt.text.units import Unit

# Encodings

TEXTS = [("Grüße, Öl", "Greetings, oil")]
WIDE_TEXTS = [("Grüße 漢字 😀𐍈", "Greetings €")]


@pytest.mark.parametrize("declaration", ["", '<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-8"?>\n'])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_utf8(declaration: str, mark: str) -> None:
    assert read(mark + declaration + tmx(unit(de=WIDE_TEXTS[0][0], en=WIDE_TEXTS[0][1]))) == WIDE_TEXTS


@pytest.mark.parametrize("declaration", ["", '<?xml version="1.0" encoding="UTF-16"?>', '<?xml version="1.0"?>'])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_byte_order_mark(encoding: str, declaration: str) -> None:
    document = "\ufeff" + declaration + DOCTYPE + tmx(unit(de=WIDE_TEXTS[0][0], en=WIDE_TEXTS[0][1]))
    assert read(document.encode(encoding)) == WIDE_TEXTS


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "iso-8859-15", "windows-1252"])
def test_declared_encoding(encoding: str) -> None:
    document = f'<?xml version="1.0" encoding="{encoding}"?>' + tmx(unit(de=TEXTS[0][0], en=TEXTS[0][1]))
    assert read(document.encode(encoding)) == TEXTS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("shift", range(4))
def test_characters_across_the_borders_of_blocks(encoding: str, shift: int) -> None:
    pairs = [("😀漢ü" * 9 + str(number), "🎉") for number in range(900)]
    units = (unit(de=source, en=target) for source, target in pairs)
    document = "\ufeff" + tmx("x" * shift, *units)
    assert read(document.encode(encoding)) == pairs


def test_encoding_that_is_not_the_declared_one() -> None:
    assert "broken TMX after unit 1: " in message(tmx(unit(de="x", en="y"), unit(de="für", en="for")).encode("latin-1"))


def test_unknown_encoding() -> None:
    assert "foo-99" in message('<?xml version="1.0" encoding="foo-99"?>' + tmx(unit(de="x", en="y")))


# Languages


@pytest.mark.parametrize("code", ["de", "DE", "de-DE", "de_AT", "DE-AT", "deu"])
def test_regional_codes_are_read(code: str) -> None:
    assert read(tmx(f"<tu>{tuv('EN-us', 'one')}{tuv(code, 'eins')}</tu>")) == [("eins", "one")]


def test_the_exact_code_is_preferred_wherever_it_stands() -> None:
    document = tmx(unit(de_AT="Jänner", de="Januar", en_GB="British", en="plain"))
    assert read(document) == [("Januar", "plain")]
    assert read(document, "de-AT", "en-GB") == [("Jänner", "British")]
    assert read(document, "de-CH", "en-US") == [("Januar", "plain")]


def test_another_region_is_a_missing_side() -> None:
    document = tmx(unit(de_CH="Velo", en="bicycle"), unit(de_AT="Rad", en="bicycle"))
    assert read(document, "de-AT", "en") == [("", "bicycle"), ("Rad", "bicycle")]


def test_several_languages_in_a_unit() -> None:
    document = tmx(unit(fr="un", en="one", de="eins", it="uno"), unit(it="due", de="zwei", en="two"))
    assert read(document, "de", "it") == [("eins", "uno"), ("zwei", "due")]
    assert read(document, "en", "fr") == [("one", "un"), ("two", "")]


def test_lang_attribute_of_tmx_1_1() -> None:
    document = tmx('<tu><tuv lang="DE-DE"><seg>eins</seg></tuv><tuv lang="EN-US"><seg>one</seg></tuv></tu>')
    assert read(document) == [("eins", "one")]


def test_xml_lang_is_preferred_to_lang() -> None:
    document = tmx(f'<tu><tuv xml:lang="de" lang="fr"><seg>eins</seg></tuv>{tuv("en", "one")}</tu>')
    assert read(document) == [("eins", "one")]


def test_a_variant_without_a_language_is_a_missing_side() -> None:
    document = tmx(f"<tu><tuv><seg>eins</seg></tuv>{tuv('en', 'one')}</tu>", unit(de="zwei", en="two"))
    assert read(document) == [("", "one"), ("zwei", "two")]


def test_of_two_variants_in_one_language_the_first_with_text_is_taken() -> None:
    document = tmx(f"<tu>{tuv('de', ' ')}{tuv('de', 'eins')}{tuv('de', 'ein')}{tuv('en', 'one')}</tu>")
    assert read(document) == [("eins", "one")]


def test_missing_languages_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(tmx(unit(de="eins", en="one"), unit(de="zwei", fr="deux"), unit(en="three")), encoding="utf-8")
    skipped = Skipped()
    segments = list(Corpus(path, languages=("de", "en")).segments(skipped))
    assert [(segment.source, segment.target, segment.number) for segment in segments] == [("eins", "one", 1)]
    assert skipped.counts == {"with an empty side": 2}


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (("fr", "en"), "memory.tmx: has no text in 'fr'; it has de-DE, en-US, it"),
        (("de", "sv"), "memory.tmx: has no text in 'sv'; it has de-DE, en-US, it"),
        (("de-CH", "en"), "memory.tmx: has no text in 'de-CH'; it has de-DE, en-US, it"),
    ],
)
def test_a_language_that_no_unit_has(languages: tuple[str, str], expected: str) -> None:
    document = tmx(unit(de_DE="eins", en_US="one"), unit(de_DE="zwei", it="due"))
    assert message(document, *languages) == expected


def test_no_unit_names_its_languages() -> None:
    document = tmx("<tu><tuv><seg>eins</seg></tuv><tuv><seg>one</seg></tuv></tu>")
    assert message(document) == "memory.tmx: has no text in 'de'; it has no language codes"


@pytest.mark.parametrize(
    ("header", "asked", "expected"),
    [
        ('<header srclang="de"/>', (None, None), ("eins", "one")),
        ('<header srclang="EN-us"/>', (None, None), ("one", "eins")),
        ('<header srclang="en"/>', ("de", None), ("eins", "one")),
        ('<header srclang="en"/>', (None, "en"), ("eins", "one")),
        ('<header srclang="de-DE"/>', (None, "en"), ("eins", "one")),
        ('<header srclang="*all*"/>', (None, "en"), ("eins", "one")),
        ('<header srclang="*all*"/>', ("en", None), ("one", "eins")),
        ("", ("de", None), ("eins", "one")),
    ],
)
def test_languages_that_are_not_named_are_those_that_the_memory_declares(
    header: str, asked: tuple[str | None, str | None], expected: tuple[str, str]
) -> None:
    assert read(tmx(unit(de_DE="eins", en_US="one"), header=header), *asked) == [expected]


def test_a_unit_may_name_another_source_language_than_the_header() -> None:
    document = tmx(f'<tu srclang="en">{tuv("de", "eins")}{tuv("en", "one")}</tu>')
    assert read(document, None, None) == [("one", "eins")]


def test_declared_languages_hold_for_the_whole_memory() -> None:
    document = tmx(unit(de="eins", en="one"), unit(de="zwei", fr="deux"), unit(en="three", de="drei"))
    assert read(document, None, None) == [("eins", "one"), ("zwei", ""), ("drei", "three")]


@pytest.mark.parametrize(
    ("header", "first", "asked"),
    [
        ('<header srclang="*all*"/>', unit(de="eins", en="one"), (None, None)),
        ('<header srclang="*ALL*"/>', unit(de="eins", en="one"), (None, None)),
        ("<header/>", unit(de="eins", en="one"), (None, None)),
        ("", unit(de="eins", en="one"), (None, None)),
        ('<header srclang="de"/>', unit(de="eins", en="one", fr="un"), (None, None)),
        ('<header srclang="de"/>', unit(de="eins", en="one", fr="un"), ("de", None)),
        ('<header srclang="de"/>', unit(de="eins"), (None, None)),
        ('<header srclang="de"/>', "<tu/>", ("de", None)),
    ],
)
def test_languages_that_cannot_be_known(header: str, first: str, asked: tuple[str | None, str | None]) -> None:
    text = message(tmx(first, header=header), *asked)
    assert text.startswith("memory.tmx: name its languages with --source-lang and --target-lang; its first unit has ")


# What is text


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        (" edges ", " edges "),
        ("a &amp; b &lt;c&gt; &quot;d&quot; &#228;&#xE4;", 'a & b <c> "d" ää'),
        ('<bpt i="1">&lt;b></bpt>bold<ept i="1">&lt;/b></ept>', "bold"),
        ('a<ph x="1">{0}</ph>b', "a b"),
        ('a <ph x="1"/> b', "a  b"),
        ("<it pos='begin'>code</it>text", "text"),
        ("text<ut>code</ut>", "text"),
        ("a<ph>code<sub>inner</sub>code</ph>b", "a b"),
        ("a<bpt i='1'>x<sub>y<ph>z</ph>y</sub>x</bpt>b<ept i='1'/>c", "abc"),
        ("a<bpt i='1'><sub>x<hi>y</hi></sub></bpt>b", "ab"),
        ("a <hi>kept</hi> b", "a kept b"),
        ("a <hi>x<hi>y<hi/>z</hi>w</hi> b", "a xyzw b"),
        ("<hi>a<ph>code</ph>b</hi>c", "a bc"),
        ("<hi><bpt i='1'>x</bpt>a<hi>b<ept i='1'>y</ept>c</hi></hi>d", "abcd"),
        ("a<!-- comment -->b", "ab"),
        ("a<?tool instruction?>b", "ab"),
        ("<!-- c --><?p i?>a<hi><!-- c -->b<?p i?></hi>", "ab"),
        ("<!-- only -->", ""),
        ("<ph>only</ph>", ""),
        ("<![CDATA[a < b & c]]>", "a < b & c"),
        ("x<![CDATA[<ph>]]>y<ph><![CDATA[gone]]></ph>z", "x<ph>y z"),
        ("two\n  lines", "two\n  lines"),
        ("a<unknown>b</unknown>c", "abc"),
    ],
)
def test_text_of_a_segment(segment: str, expected: str) -> None:
    document = tmx(unit(de=segment, en="x"))
    assert read(document) == [(expected if expected.strip() else "", "x")]
    assert read(document.replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')) == read(document)


def test_a_prefix_of_the_namespace() -> None:
    body = f"<t:body><t:tu>{tuv('de', 'a<ph>b</ph>c')}{tuv('en', 'd')}</t:tu></t:body>"
    prefixed = body.replace("<tuv", "<t:tuv").replace("</tuv", "</t:tuv").replace("<seg", "<t:seg")
    prefixed = prefixed.replace("</seg", "</t:seg").replace("<ph", "<t:ph").replace("</ph", "</t:ph")
    assert read(f'<t:tmx xmlns:t="urn:tmx">{prefixed}</t:tmx>') == [("a c", "d")]


def test_what_surrounds_segments_is_not_text() -> None:
    document = (
        '<?xml version="1.0"?><!-- made by a tool --><?tool x?>'
        '<tmx version="1.4"><header srclang="de"><note>n</note><prop type="x">p</prop></header><body><!-- c -->'
        '<tu tuid="1"><note>n</note><prop type="x">p</prop><!-- c -->'
        '<tuv xml:lang="de"><note>n</note><prop type="x">p</prop><seg>eins</seg></tuv>'
        '<tuv xml:lang="en"><seg>one</seg></tuv></tu>text between</body></tmx><!-- end -->'
    )
    assert read(document) == [("eins", "one")]


# What a unit says of itself

TIME = "2024-05-01T12:00:00Z"


def facts(attributes: str, inside: str = "", variants: tuple[str, str] = ("", ""), inner: str = "") -> Unit:
    """The unit with attributes and elements of its own and of its variants."""
    sides = "".join(
        f'<tuv xml:lang="{code}"{variant}>{inner}<seg>{code}</seg></tuv>'
        for code, variant in zip(("de", "en"), variants, strict=True)
    )
    document = tmx(f"<tu{attributes}>{inside}{sides}</tu>")
    [found] = read_tmx(io.BytesIO(document.encode()), "memory.tmx", "de", "en")
    assert (found.source, found.target) == ("de", "en")
    return found


@pytest.mark.parametrize(
    ("attributes", "variants", "created", "metadata"),
    [
        ("", ("", ""), "", {}),
        (' creationdate="20240501T120000Z"', ("", ""), TIME, {}),
        (' creationdate="2024-05-01T14:00:00+02:00"', ("", ""), TIME, {}),
        (' changedate="20240501T120000Z"', ("", ""), TIME, {"changedate": "20240501T120000Z"}),
        (
            ' creationdate="20240501T120000Z" changedate="20250101T000000Z"',
            ("", ""),
            TIME,
            {"changedate": "20250101T000000Z"},
        ),
        ("", (' creationdate="20200101T000000Z"', ' creationdate="20240501T120000Z"'), TIME, {}),
        ("", (' creationdate="20240501T120000Z"', ""), TIME, {}),
        (' creationdate="gestern"', ("", ""), "", {"creationdate": "gestern"}),
        (' creationdate="20241301T120000Z"', ("", ""), "", {"creationdate": "20241301T120000Z"}),
        (
            ' tuid="7" creationid="ANNA" usagecount="3"',
            ("", ""),
            "",
            {"tuid": "7", "creationid": "ANNA", "usagecount": "3"},
        ),
        (
            ' creationid="ANNA"',
            (' creationid="B"', ' creationid="C" changeid="D"'),
            "",
            {"creationid": "ANNA", "changeid": "D"},
        ),
        ("", (' creationid="B"', ' creationid="C"'), "", {"creationid": "C"}),
        (' srclang="*all*"', ("", ""), "", {}),
    ],
)
def test_times_and_attributes(
    attributes: str, variants: tuple[str, str], created: str, metadata: dict[str, str]
) -> None:
    found = facts(attributes, variants=variants)
    assert (found.created, found.metadata) == (created, metadata)


@pytest.mark.parametrize(
    ("inside", "inner", "metadata"),
    [
        ("<note>n</note>", "", {"note": "n"}),
        ("<note>n</note><note>m</note>", "", {"note": "n\nm"}),
        ('<prop type="x">a &amp; b</prop>', "", {"x": "a & b"}),
        ('<prop type="x">a</prop><prop type="y"/><prop type="x">b</prop>', "", {"x": "a\nb", "y": ""}),
        ("<prop>a</prop>", "", {"prop": "a"}),
        ('<prop type="x">a</prop>', '<prop type="x">a</prop>', {"x": "a"}),
        ('<prop type="x">a</prop>', '<prop type="x">b</prop>', {"x": "a\nb\nb"}),
        ("", "<note>n</note>", {"note": "n"}),
        ('<prop type="corpus">house</prop>', "", {}),
    ],
)
def test_notes_and_properties(inside: str, inner: str, metadata: dict[str, str]) -> None:
    assert facts("", inside, inner=inner).metadata == metadata


def test_only_the_chosen_variants_speak() -> None:
    other = '<tuv xml:lang="fr" creationid="F"><note>french</note><seg>un</seg></tuv>'
    assert facts("", other).metadata == {}


def test_duplicate_ids_are_units_of_their_own() -> None:
    """Ids are kept, not trusted: to hold all of them would take memory that grows with the file."""
    same = unit(de="eins", en="one").replace("<tu>", '<tu tuid="1">')
    assert read(tmx(same, same)) == [("eins", "one")] * 2


PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=12)


def tagged(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    """Markup and the text in it."""
    code = st.tuples(st.sampled_from(["bpt", "ept", "ph", "it", "ut"]), inner)
    parts = st.one_of(
        code.map(lambda part: (f"<{part[0]}>{part[1][0]}</{part[0]}>", "")),
        inner.map(lambda part: (f"<hi>{part[0]}</hi>", part[1])),
        st.just(("<!-- c -->", "")),
        st.just(("<?p i?>", "")),
        inner,
    )
    return st.lists(parts, max_size=4).map(lambda some: ("".join(m for m, _ in some), "".join(t for _, t in some)))


MARKUP = st.recursive(PLAIN.map(lambda text: (escape(text), text)), tagged, max_leaves=12)


@given(st.lists(st.tuples(MARKUP, MARKUP), min_size=1, max_size=5), st.sampled_from(["utf-8", "utf-16"]))
@STEADILY
def test_any_markup_leaves_its_text(pairs: list[tuple[tuple[str, str], tuple[str, str]]], encoding: str) -> None:
    document = tmx(*(unit(de=source[0], en=target[0]) for source, target in pairs))
    expected = [tuple(side[1] if side[1].strip() else "" for side in pair) for pair in pairs]
    found = read(document.encode(encoding))
    assert [tuple("".join(side.split()) for side in pair) for pair in found] == [
        tuple("".join(side.split()) for side in pair) for pair in expected
    ]
