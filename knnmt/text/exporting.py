"""Writes segments as TMX, TSV, CSV or JSONL, each also gzipped. Reading the file gives the same segments."""

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from lxml import etree

from knnmt.errors import CorpusError
from knnmt.files import write_durably
from knnmt.release import __version__
from knnmt.text.corpus import Segment, one_line
from knnmt.text.inputs import ending_of, is_gzipped, reason_of
from knnmt.text.languages import normal_code
from knnmt.text.tables import guarded
from knnmt.text.tmx import ATTRIBUTES
from knnmt.text.units import Languages, utc_time
from knnmt.text.xml_units import LANG

# Names that mean something at the top of a JSON line; metadata that is called so stands under `metadata`.
RESERVED = ("source", "target", "translation", "corpus", "created", "metadata")

# What a format cannot hold. Leaving it out would change the text unseen, so such a segment is refused.
NOT_UNICODE = re.compile("[\ud800-\udfff]")
NOT_TABLE = re.compile("[\0\ud800-\udfff]")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Writer = Callable[[BinaryIO, Iterable[Segment], Languages], None]


def write_memory(path: Path, segments: Iterable[Segment], languages: Languages) -> int:
    """Write a memory in the format that the file ending selects; return the number of segments.

    The file gets its name only when it is complete. A character that the format cannot contain is an error.
    """
    check_exportable(path, languages)
    write, illegal = WRITERS[ending_of(path)]
    counter = Counter(path, segments, illegal)
    try:
        write_durably(path, lambda file: write_gzipped(file, path, write, counter, languages))
    except OSError as error:
        raise CorpusError(f"{path}: cannot be written: {reason_of(error)}") from error
    return counter.count


def check_exportable(path: Path, languages: Languages) -> None:
    """Raise before the work begins if the ending is unknown or, for TMX, if both languages are the same."""
    if ending_of(path) not in WRITERS:
        raise CorpusError(f"{path}: not one of {', '.join(WRITERS)}, so it cannot be written")
    if ending_of(path) != ".tmx":
        return
    if None in languages:
        raise CorpusError(f"{path}: TMX names its languages; give them with --source-lang and --target-lang")
    if len({normal_code(code or "") for code in languages}) < 2:
        raise CorpusError(f"{path}: TMX tells its sides apart by language, but both are {languages[0]!r}")


class Counter:
    """Segments that are counted, and checked, while they are written."""

    def __init__(self, path: Path, segments: Iterable[Segment], illegal: re.Pattern[str]) -> None:
        self.path, self.segments, self.illegal = path, segments, illegal
        self.count = 0

    def __iter__(self) -> Iterator[Segment]:
        for segment in self.segments:
            self.check(segment)
            yield segment
            self.count += 1

    def check(self, segment: Segment) -> None:
        texts = (segment.source, segment.target, segment.corpus, segment.created)
        for text in (*texts, *segment.metadata, *segment.metadata.values()):
            if found := self.illegal.search(text):
                where = f"segment {self.count + 1} (number {segment.number} of {segment.corpus!r})"
                what = f"U+{ord(found.group()):04X}, which {ending_of(self.path)} cannot hold"
                hint = "" if self.illegal is NOT_UNICODE else "; .jsonl can"
                raise CorpusError(f"{self.path}: {where} has the character {what}{hint}")


def write_gzipped(file: BinaryIO, path: Path, write: Writer, segments: Iterable[Segment], languages: Languages) -> None:
    if not is_gzipped(path):
        write(file, segments, languages)
        return
    # No name and no time in the header: the same memory gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        write(cast(BinaryIO, packed), segments, languages)


# Lines


def write_tsv(file: BinaryIO, segments: Iterable[Segment], languages: Languages) -> None:  # noqa: ARG001
    for cells in table_of(segments):
        file.write(("\t".join(cells) + "\n").encode())


def write_csv(file: BinaryIO, segments: Iterable[Segment], languages: Languages) -> None:  # noqa: ARG001
    rows = csv.writer(TextAsBytes(file), lineterminator="\n")
    rows.writerows([guarded(cell) for cell in cells] for cells in table_of(segments))


class TextAsBytes:
    """The text file that the csv module needs. A TextIOWrapper would close the file below it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, text: str) -> int:
        return self.file.write(text.encode())


def table_of(segments: Iterable[Segment]) -> Iterator[list[str]]:
    """A header, then one row per segment. Metadata is one JSON cell: a stream cannot know all names in advance."""
    yield ["source", "target", "corpus", "created", "metadata"]
    for segment in segments:
        cells = [one_line(text) for text in (segment.source, segment.target, segment.corpus, segment.created)]
        yield [*cells, json.dumps(segment.metadata, ensure_ascii=False) if segment.metadata else ""]


def write_json_lines(file: BinaryIO, segments: Iterable[Segment], languages: Languages) -> None:  # noqa: ARG001
    for segment in segments:
        file.write((json.dumps(record_of(segment), ensure_ascii=False) + "\n").encode())


def record_of(segment: Segment) -> dict[str, Any]:
    """A JSON object with texts and metadata."""
    taken = {name: value for name, value in segment.metadata.items() if name in RESERVED}
    own = {name: value for name, value in segment.metadata.items() if name not in RESERVED}
    record = {"source": segment.source, "target": segment.target, "corpus": segment.corpus}
    created = {"created": segment.created} if segment.created else {}
    return record | created | own | ({"metadata": taken} if taken else {})


# TMX


def write_tmx(file: BinaryIO, segments: Iterable[Segment], languages: Languages) -> None:
    source, target = (str(code).replace("_", "-") for code in languages)
    header = {
        "creationtool": "knnmt", "creationtoolversion": __version__, "segtype": "sentence", "o-tmf": "knnmt",
        "adminlang": "en", "srclang": source, "datatype": "plaintext",
    }  # fmt: skip
    with etree.xmlfile(file, encoding="utf-8") as document:
        document.write_declaration()
        with document.element("tmx", version="1.4"):
            document.write("\n", etree.Element("header", header), "\n")
            with document.element("body"):
                for segment in segments:
                    document.write("\n", unit_of(segment, source, target))
                document.write("\n")


def unit_of(segment: Segment, source: str, target: str) -> Any:
    unit = etree.Element("tu", unit_attributes(segment))
    for name, value in properties_of(segment):
        for line in value.split("\n"):
            note = etree.SubElement(unit, "note") if name == "note" else etree.SubElement(unit, "prop", type=name)
            note.text = line
    for code, text in ((source, segment.source), (target, segment.target)):
        etree.SubElement(etree.SubElement(unit, "tuv", {LANG: code}), "seg").text = text
    return unit


def unit_attributes(segment: Segment) -> dict[str, str]:
    time = utc_time(segment.created).replace("-", "").replace(":", "") or segment.created
    created = {"creationdate": time} if time else {}
    return created | {name: value for name, value in segment.metadata.items() if is_attribute(name, segment)}


def properties_of(segment: Segment) -> list[tuple[str, str]]:
    others = [(name, value) for name, value in segment.metadata.items() if not is_attribute(name, segment)]
    return [("corpus", segment.corpus), *others]


def is_attribute(name: str, segment: Segment) -> bool:
    """Whether metadata becomes an attribute. `changedate` would be read as the creation time if there is none."""
    return name in ATTRIBUTES and (name != "changedate" or bool(segment.created))


WRITERS: dict[str, tuple[Writer, re.Pattern[str]]] = {
    ".tmx": (write_tmx, NOT_XML),
    ".tsv": (write_tsv, NOT_TABLE),
    ".csv": (write_csv, NOT_TABLE),
    ".jsonl": (write_json_lines, NOT_UNICODE),
}
