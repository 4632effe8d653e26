"""Translation memories as real tools write them, as they are broken, and as an attacker would write them."""

import gzip
import io
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from documents import Documents, peak_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from knnmt.corpus import Corpus, Skipped, survey
from knnmt.errors import CorpusError
from knnmt.tmx import read_tmx
from knnmt.units import Unit

DOCTYPE = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
STEADILY = settings(deadline=None, derandomize=True, max_examples=50)


def tuv(code: str, segment: str) -> str:
    return f'<tuv xml:lang="{code}"><seg>{segment}</seg></tuv>'


def unit(**segments: str) -> str:
    """A unit by language; `de_AT` stands for `de-AT`."""
    return f"<tu>{''.join(tuv(code.replace('_', '-'), text) for code, text in segments.items())}</tu>"


def tmx(*units: str, header: str = '<header srclang="de"/>', root: str = 'tmx version="1.4"') -> str:
    return f"<{root}>{header}<body>{''.join(units)}</body></tmx>"


TMX = Documents(read_tmx, "memory.tmx")
read, message, said = TMX.read, TMX.message, TMX.said


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
        ('a<ph x="1">{0}</ph>b', "ab"),
        ('a <ph x="1"/> b', "a  b"),
        ("<it pos='begin'>code</it>text", "text"),
        ("text<ut>code</ut>", "text"),
        ("a<ph>code<sub>inner</sub>code</ph>b", "ab"),
        ("a<bpt i='1'>x<sub>y<ph>z</ph>y</sub>x</bpt>b<ept i='1'/>c", "abc"),
        ("a<bpt i='1'><sub>x<hi>y</hi></sub></bpt>b", "ab"),
        ("a <hi>kept</hi> b", "a kept b"),
        ("a <hi>x<hi>y<hi/>z</hi>w</hi> b", "a xyzw b"),
        ("<hi>a<ph>code</ph>b</hi>c", "abc"),
        ("<hi><bpt i='1'>x</bpt>a<hi>b<ept i='1'>y</ept>c</hi></hi>d", "abcd"),
        ("a<!-- comment -->b", "ab"),
        ("a<?tool instruction?>b", "ab"),
        ("<!-- c --><?p i?>a<hi><!-- c -->b<?p i?></hi>", "ab"),
        ("<!-- only -->", ""),
        ("<ph>only</ph>", ""),
        ("<![CDATA[a < b & c]]>", "a < b & c"),
        ("x<![CDATA[<ph>]]>y<ph><![CDATA[gone]]></ph>z", "x<ph>yz"),
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
    assert read(f'<t:tmx xmlns:t="urn:tmx">{prefixed}</t:tmx>') == [("ac", "d")]


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
    assert read(document.encode(encoding)) == expected


# Document types and entities


@pytest.mark.parametrize(
    "doctype",
    [
        DOCTYPE,
        '<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">',
        '<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for Translation Memory eXchange//EN" "tmx14.dtd">',
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ENTITY unused "x">]>',
    ],
)
def test_the_document_type_is_not_needed(doctype: str) -> None:
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}\n' + tmx(unit(de="eins", en="one"))
    assert read(document) == [("eins", "one")]


def test_entities_are_not_resolved() -> None:
    document = '<!DOCTYPE tmx [<!ENTITY company "ACME">]>' + tmx(unit(de="a", en="b"), unit(de="x &company;", en="y"))
    assert message(document) == "memory.tmx: unit 2 uses the entity &company;; entities are not resolved"


@pytest.mark.parametrize("doctype", ["", DOCTYPE])
def test_an_undefined_entity_is_named(doctype: str) -> None:
    assert "nbsp" in message(doctype + tmx(unit(de="a&nbsp;b", en="y")))


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{url}">]>' + tmx(unit(de="a&x;b", en="y")),
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{url}">]>' + tmx(unit(de="<hi>a&x;b</hi>", en="y")),
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{url}">]>' + tmx(unit(de="<ph>a&x;b</ph>", en="y")),
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{url}">]>' + tmx("&x;", unit(de="a", en="y")),
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{url}">]>' + tmx("<tu>&x;</tu>", unit(de="a", en="y")),
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "{url}">]>' + tmx(f"<tu>{tuv('&x;', 'a')}{tuv('en', 'b')}</tu>"),
        '<!DOCTYPE tmx [<!ENTITY % x SYSTEM "{url}"> %x;]>' + tmx(unit(de="a", en="y")),
        '<!DOCTYPE tmx SYSTEM "{url}">' + tmx(unit(de="a", en="y")),
        '<!DOCTYPE tmx SYSTEM "{url}">' + tmx(unit(de="a&secret;", en="y")),
        tmx('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{url}"/>', unit(de="a", en="y")),
    ],
)
def test_other_files_are_never_read(tmp_path: Path, document: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text('<!ENTITY secret "geheim"> geheim', encoding="utf-8")
    answer = said(document.replace("{url}", secret.as_uri()))
    assert "geheim" not in answer
    assert "\n" not in answer


@pytest.mark.parametrize("place", ["text", "attribute", "code", "body"])
def test_nested_entities_do_not_expand(place: str) -> None:
    levels = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
    where = {
        "text": unit(de="&l9;", en="y"),
        "attribute": f"<tu>{tuv('&l9;', 'x')}{tuv('en', 'y')}</tu>",
        "code": unit(de="a<ph>&l9;</ph>", en="y"),
        "body": f"&l9;{unit(de='a', en='y')}",
    }
    with peak_memory() as peak:
        answer = said(f'<!DOCTYPE tmx [<!ENTITY l0 "lol">{levels}]>' + tmx(where[place]))
    assert "lollol" not in answer
    assert peak[0] < 1_000_000


# Files that are no memories


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", "not a TMX file: no element found"),
        ("  \n", "not a TMX file: "),
        ("eins\tone\nzwei\ttwo\n", "not a TMX file: "),
        ('{"source": "a"}', "not a TMX file: "),
        ("\x1f\x8b\x08", "not a TMX file: "),
        ("<html><body>\n<p>x</p>\n</body></html>", "not a TMX file: its first element is <html>, not <tmx>"),
        ('<xliff xmlns="urn:x"/>', "not a TMX file: its first element is <xliff>, not <tmx>"),
        ("<!-- c --><tu/>", "not a TMX file: its first element is <tu>, not <tmx>"),
        ('<?xml version="1.0"?>', "not a TMX file: "),
        ("<tmx><body><tu>\n<tuv></seg>\n</tu></body></tmx>", "broken TMX after unit 0: "),
        (tmx(unit(de="a", en="b"))[:-20], "broken TMX after unit 0: "),
        (tmx(unit(de="a", en="b"), unit(de="a", en="b"))[:-20], "broken TMX after unit 1: "),
        (tmx(unit(de="a", en="b"))[:-6], "broken TMX after unit 1: "),
        (tmx(unit(de="a", en="b")) + "<more/>", "broken TMX after unit 1: "),
        (tmx(unit(de="a", en="b"), unit(de="a & b", en="b")), "broken TMX after unit 1: "),
        (tmx(unit(de="a", en="b"), unit(de="&#x1F;", en="b")), "broken TMX after unit 1: "),
        (tmx(unit(de="<hi>" * 5000 + "</hi>" * 5000, en="b")), "broken TMX after unit 0: "),
    ],
)
def test_broken_files(document: str, expected: str) -> None:
    assert message(document).startswith(f"memory.tmx: {expected}")


def test_a_file_that_is_no_memory_is_known_by_its_first_element() -> None:
    block = b"<p>text</p>" * 1000

    class Page(io.BytesIO):
        blocks = 0

        def read(self, _size: int | None = -1, /) -> bytes:
            self.blocks += 1
            return block if self.blocks > 1 else b"<html>" + block

    page = Page()
    with pytest.raises(CorpusError, match="its first element is <html>"):
        list(read_tmx(page, "page.tmx", "de", "en"))
    assert page.blocks <= 4


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize("cut", [1, 40, 100, 200])
def test_truncated_files(tmp_path: Path, cut: int, gz: str) -> None:
    data = tmx(unit(de="eins", en="one"), unit(de="zwei", en="two")).encode()
    path = tmp_path / f"memory.tmx{gz}"
    path.write_bytes(gzip.compress(data)[:-cut] if gz else data[:-cut])
    with pytest.raises(CorpusError) as caught:
        survey([Corpus(path, languages=("de", "en"))])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
@STEADILY
def test_any_bytes_give_pairs_or_one_line(data: bytes) -> None:
    for document in (data, b"<tmx>" + data + b"</tmx>", tmx(unit(de="a", en="{}")).encode().replace(b"{}", data)):
        assert "\n" not in said(document)


# Streaming

BLOCK = "".join(
    f"<!-- {number} -->{unit(de=f'Satz {number}<ph>x</ph>', en=f'Sentence {number}')}\n" for number in range(100)
).encode()


class Memory(io.BytesIO):
    """A memory of many units that is made while it is read."""

    def __init__(self, blocks: int, end: bytes = b"</body></tmx>") -> None:
        super().__init__()
        self.blocks, self.end = blocks, end
        self.reads = 0

    def read(self, _size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads == 1:
            return b'<tmx version="1.4"><header srclang="de"/><body>'
        return BLOCK if self.reads <= self.blocks + 1 else self.end if self.reads == self.blocks + 2 else b""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.reads = 0
        return super().seek(offset, whence)


def test_the_tree_keeps_no_units(monkeypatch: pytest.MonkeyPatch) -> None:
    parsers: list[Any] = []
    iterparse = etree.iterparse

    def kept(*arguments: Any, **options: Any) -> Any:
        parsers.append(iterparse(*arguments, **options))
        return parsers[-1]

    monkeypatch.setattr(etree, "iterparse", kept)
    assert sum(1 for _ in read_tmx(Memory(300), "memory.tmx", "de", "en")) == 30_000
    body = parsers[-1].root.find("body")
    assert len(body) <= 1
    assert sum(1 for _ in body.iter()) <= 2


def test_memory_does_not_grow_with_the_units() -> None:
    with peak_memory() as peak:
        assert sum(1 for _ in read_tmx(Memory(20), "memory.tmx", "de", "en")) == 2_000
    assert peak[0] < 20 * len(BLOCK) / 4


def test_units_come_while_the_file_is_read() -> None:
    memory = Memory(50, end=b"<broken")
    pairs = read_tmx(memory, "memory.tmx", "de", "en")
    assert next(pairs) == Unit("Satz 0", "Sentence 0")
    assert memory.reads <= 4
    assert next(pairs) == Unit("Satz 1", "Sentence 1")
    with pytest.raises(CorpusError, match="broken TMX after unit 5000: "):
        list(pairs)


def test_nothing_is_read_before_the_first_pair_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text("not xml", encoding="utf-8")
    units = Corpus(path, languages=("de", "en")).units()
    with pytest.raises(CorpusError):
        next(units)
