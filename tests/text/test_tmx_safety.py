"""TMX of strangers: entities that are not resolved, files that are broken, and files of any size."""

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from tmx_documents import DOCTYPE, STEADILY, message, read, said, tmx, tuv, unit
from xml_readers import peak_memory

from knnmt.errors import CorpusError
from knnmt.text import xml_units
from knnmt.text.corpus import Corpus, survey
from knnmt.text.tmx import facts_of, read_tmx
from knnmt.text.units import Unit

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


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<x:tmx><body/></x:tmx>", "not a TMX file: its first element is <x:tmx>, not <tmx>"),
        (tmx(f"<x:tu>{tuv('de', 'a')}</x:tu>"), "broken TMX after unit 0: Namespace prefix x on tu is not defined"),
        (tmx(unit(de="<x:hi>a</x:hi>", en="b")), "broken TMX after unit 1: Namespace prefix x on hi is not defined"),
    ],
)
def test_a_prefix_that_is_not_declared(document: str, expected: str) -> None:
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


# Work and memory of one unit


class Attributes:
    """An element of many attributes that counts how many values it was asked for."""

    asked = 0

    def keys(self) -> list[str]:
        return ["tuid", *(f"a{number}" for number in range(1_000))]

    def get(self, name: str, default: str | None = None) -> str | None:
        self.asked += 1
        return name if name in self.keys() else default

    def items(self) -> list[tuple[str, str]]:
        return [(name, str(self.get(name))) for name in self.keys()]

    def iterchildren(self, _tag: str) -> list[Any]:
        return []


def test_only_known_attributes_are_looked_up() -> None:
    """libxml2 looks for a value among all attributes, so asking for each takes quadratic time."""
    element = Attributes()
    assert facts_of(element, "memory.tmx", 1) == {"tuid": "tuid"}
    assert element.asked <= 3


def test_the_text_beside_many_codes_is_taken_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking codes out of the tree joins the texts around them again and again."""
    monkeypatch.delattr(etree, "strip_elements")
    assert read(tmx(unit(de="<ph>c</ph>x" * 1_000, en="<hi>y<it>c</it></hi>z"))) == [(" ".join("x" * 1_000), "y z")]


def test_a_unit_of_millions_of_tags_is_refused_before_it_is_read() -> None:
    """A tag of six bytes takes forty times as much memory."""
    before, after = tmx(unit(de="MIDDLE", en="y")).encode().split(b"MIDDLE")
    document = io.BytesIO(before + b"<hi/>x" * ((14 << 20) // 6) + after)
    with pytest.raises(CorpusError, match="more than 524,288 tags without the end of a unit"):
        list(read_tmx(document, "memory.tmx", "de", "en"))
    assert document.tell() < 5 << 20


def test_tags_of_units_that_ended_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_units, "MOST_TAGS", 4 * BLOCK.count(b"<"))
    assert sum(1 for _ in read_tmx(Memory(20), "memory.tmx", "de", "en")) == 2_000
