"""Reads parallel text into segments: aligned plain text, tables, JSONL, TMX, XLIFF and PO, each also gzipped.

Every reader is a generator, so memory use does not depend on the size of the corpus.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from knnmt.errors import CorpusError
from knnmt.text.inputs import check_readable, ending_of, read_lines, without_gz
from knnmt.text.jsonl import read_jsonl
from knnmt.text.po import read_po
from knnmt.text.tables import TABLES, Columns, read_table
from knnmt.text.tmx import read_tmx_file
from knnmt.text.units import Languages, Unit
from knnmt.text.xliff import read_xliff_file

Reader = Callable[[Path, Languages], Iterator[Unit]]

READERS: dict[str, Reader] = {
    ".tsv": read_table,
    ".csv": read_table,
    ".jsonl": read_jsonl,
    ".tmx": read_tmx_file,
    ".xlf": read_xliff_file,
    ".xliff": read_xliff_file,
    ".po": read_po,
}


@dataclass(frozen=True, slots=True)
class Segment:
    """One sentence pair and where it came from."""

    source: str
    target: str
    corpus: str
    number: int  # line or unit of its file, from 1
    created: str = ""  # when the pair was made, ISO 8601 in UTC; empty where its file does not say
    metadata: dict[str, str] = field(default_factory=dict)  # whatever else its file says of the pair


@dataclass(slots=True)
class Skipped:
    """Pairs that were left out, by reason; always reported."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file of sentence pairs, or two aligned text files, and the corpus name of its segments."""

    source: Path
    target: Path | None = None  # None: `source` holds both sides
    languages: Languages = (None, None)
    name: str = ""
    columns: Columns = None  # of a table: the names of the source's and the target's column; None: as its header says
    unfinished: bool = False  # also take what the file itself calls unfinished: XLIFF by state, PO by mark

    def __post_init__(self) -> None:
        for path in self.paths:
            check_readable(path)
        if self.target is None:
            reader_for(self.source)
        else:
            check_plain(self.source, self.target)
        if self.columns is not None and not self.is_table:
            raise CorpusError(f"{self.source}: --columns is only for {' and '.join(TABLES)} files")
        if not self.name:
            object.__setattr__(self, "name", default_name(self.source))

    @property
    def paths(self) -> list[Path]:
        return [self.source] if self.target is None else [self.source, self.target]

    @property
    def is_table(self) -> bool:
        return self.target is None and ending_of(self.source) in TABLES

    def units(self) -> Iterator[Unit]:
        """All pairs of the file, including empty and unfinished ones."""
        if self.target is not None:
            return read_aligned(self.source, self.target)
        if self.is_table:
            return read_table(self.source, self.languages, self.columns)
        return reader_for(self.source)(self.source, self.languages)

    def segments(self, skipped: Skipped) -> Iterator[Segment]:
        """The finished pairs with text on both sides. `skipped` counts the others."""
        for number, unit in enumerate(self.units(), start=1):
            source, target = one_line(unit.source), one_line(unit.target)
            if unit.unfinished and not (self.unfinished and target):
                skipped.add(unit.unfinished)
            elif source and target:
                yield Segment(source, target, self.name, number, unit.created, unit.metadata)
            else:
                skipped.add("with an empty side")


def read_segments(corpora: Iterable[Corpus], skipped: Skipped) -> Iterator[Segment]:
    """The segments of several corpora, one after another."""
    for corpus in corpora:
        yield from corpus.segments(skipped)


def survey(corpora: Iterable[Corpus], *, limit: int | None = None) -> int:
    """Read everything once and count the segments, so that a bad file is found before hours of work."""
    corpora = list(corpora)
    skipped = Skipped()
    total = 0
    for _ in read_segments(corpora, skipped):
        total += 1
        if limit is not None and total >= limit:
            break
    if not total:
        names = ", ".join(str(path) for corpus in corpora for path in corpus.paths)
        raise CorpusError(f"{names}: no sentence pairs found" + (f" ({skipped})" if skipped.total else ""))
    return total


def one_line(text: str) -> str:
    """The text on one line: runs of white space, including line breaks, become one space."""
    return " ".join(text.split())


def default_name(path: Path) -> str:
    """`memory.tmx.gz` is called `memory`."""
    return without_gz(path).rsplit(".", 1)[0] or path.name


def read_aligned(source: Path, target: Path) -> Iterator[Unit]:
    """Two files of the same number of lines."""
    for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if left is None or right is None:
            shorter, longer = (source, target) if left is None else (target, source)
            raise CorpusError(f"{shorter}: ends at line {number - 1}, but {longer} goes on; lines must be aligned")
        yield Unit(left, right)


def reader_for(path: Path) -> Reader:
    """The reader for the file's ending."""
    if ending_of(path) not in READERS:
        raise CorpusError(f"{path}: not one of {', '.join(READERS)}; for two aligned files use --source and --target")
    return READERS[ending_of(path)]


def check_plain(*paths: Path) -> None:
    """Refuse files that are not plain text: the lines of a TMX file are not sentences."""
    for path in paths:
        if ending_of(path) in READERS:
            raise CorpusError(f"{path}: not plain text; a {ending_of(path)} file goes to --corpus")
