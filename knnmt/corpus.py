"""Parallel text in, segments out: aligned plain text, TSV, JSONL and TMX, each also gzipped.

Every reader is a generator, so memory does not grow with the corpus.
"""

import gzip
import json
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, cast

from knnmt.errors import CorpusError
from knnmt.tmx import best_first, read_tmx

Pair = tuple[str, str]
Languages = tuple[str | None, str | None]


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
    """One file of pairs, or two aligned files, with the name its segments carry."""

    source: Path
    target: Path | None = None  # None: `source` holds both sides
    languages: Languages = (None, None)
    name: str = ""

    def __post_init__(self) -> None:
        for path in self.paths:
            check_readable(path)
        if self.target is None:
            reader_for(self.source)
        else:
            check_plain(self.source, self.target)
        if not self.name:
            object.__setattr__(self, "name", default_name(self.source))

    @property
    def paths(self) -> list[Path]:
        return [self.source] if self.target is None else [self.source, self.target]

    def pairs(self) -> Iterator[Pair]:
        """All pairs as they stand in the file, empty ones too."""
        if self.target is not None:
            return read_aligned(self.source, self.target)
        return reader_for(self.source)(self.source, self.languages)

    def segments(self, skipped: Skipped) -> Iterator[Segment]:
        """The pairs that have text on both sides; the others are counted in `skipped`."""
        for number, (source, target) in enumerate(self.pairs(), start=1):
            source, target = one_line(source), one_line(target)
            if source and target:
                yield Segment(source, target, self.name, number)
            else:
                skipped.add("with an empty side")


def read_segments(corpora: Iterable[Corpus], skipped: Skipped) -> Iterator[Segment]:
    """The segments of several corpora, one after another."""
    for corpus in corpora:
        yield from corpus.segments(skipped)


def survey(corpora: Iterable[Corpus], *, limit: int | None = None) -> int:
    """Read everything once and count the segments, so that a bad file is known before hours of work."""
    corpora = list(corpora)
    total = 0
    for _ in read_segments(corpora, Skipped()):
        total += 1
        if limit is not None and total >= limit:
            break
    if not total:
        names = ", ".join(str(path) for corpus in corpora for path in corpus.paths)
        raise CorpusError(f"{names}: no sentence pairs found")
    return total


def one_line(text: str) -> str:
    """A segment is one line: runs of white space, line breaks among them, become one space."""
    return " ".join(text.split())


def default_name(path: Path) -> str:
    """`memory.tmx.gz` is called `memory`."""
    return without_gz(path).rsplit(".", 1)[0] or path.name


def without_gz(path: Path) -> str:
    return path.name[:-3] if is_gzipped(path) else path.name


def is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def check_readable(path: Path) -> None:
    """A regular file that may be read: a corpus is read more than once, so a pipe will not do."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CorpusError(f"{path}: not a regular file, and it must be read more than once")
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise CorpusError(f"{path}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """What the system says, without the file's name."""
    return (getattr(error, "strerror", None) or str(error)).lower()


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked where its name ends in .gz."""
    try:
        with cast(BinaryIO, gzip.open(path, "rb")) if is_gzipped(path) else path.open("rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read to its end: {reason_of(error)}") from error


def read_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 text without their line ends."""
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise CorpusError(f"{path}: line {number} is not UTF-8 ({error.reason})") from error
            if "\0" in text:
                raise CorpusError(f"{path}: line {number} is not UTF-8 text (it holds a zero byte)")
            yield text


def read_aligned(source: Path, target: Path) -> Iterator[Pair]:
    """Two files of the same number of lines."""
    for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if left is None or right is None:
            shorter, longer = (source, target) if left is None else (target, source)
            raise CorpusError(f"{shorter}: ends at line {number - 1}, but {longer} goes on; lines must be aligned")
        yield left, right


def read_tsv(path: Path, languages: Languages) -> Iterator[Pair]:  # noqa: ARG001
    """Source and target, separated by a tab."""
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if line.strip() and len(columns) != 2:
            raise CorpusError(f"{path}: line {number} has {len(columns)} tab-separated columns instead of 2")
        yield (columns[0], columns[1]) if line.strip() else ("", "")


def read_jsonl(path: Path, languages: Languages) -> Iterator[Pair]:
    """Objects with `source` and `target`, or with `translation` by language code as in Hugging Face data sets."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield pair_of_object(json.loads(line), languages) if line.strip() else ("", "")
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}: line {number}, column {error.colno} is not JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{path}: line {number}: {error}") from error


def pair_of_object(record: Any, languages: Languages) -> Pair:
    """The two sides of one JSON object; ValueError says what is wrong with it."""
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        return texts_by_language(record["translation"], languages)
    if not isinstance(record, dict):
        raise ValueError("not an object with 'source' and 'target'")
    return text_under(record.get("source"), "source"), text_under(record.get("target"), "target")


def texts_by_language(record: dict[str, Any], languages: Languages) -> Pair:
    """The texts under two language codes; `zh` finds `zh_CN`."""
    source, target = languages
    if source is None or target is None:
        raise ValueError("name the languages with --source-lang and --target-lang")
    sources, targets = best_first(record.items(), source, target), best_first(record.items(), target, source)
    return text_under(next(iter(sources), None), source), text_under(next(iter(targets), None), target)


def text_under(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"no text under {name!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise ValueError(f"the text under {name!r} holds half a character") from error
    return value


def read_tmx_pairs(path: Path, languages: Languages) -> Iterator[Pair]:
    """The units of a translation memory."""
    with open_binary(path) as file:
        yield from read_tmx(file, str(path), *languages)


READERS = {".tsv": read_tsv, ".jsonl": read_jsonl, ".tmx": read_tmx_pairs}


def reader_for(path: Path) -> Callable[[Path, Languages], Iterator[Pair]]:
    """The reader that the file's ending asks for."""
    if ending_of(path) not in READERS:
        raise CorpusError(f"{path}: not one of {', '.join(READERS)}; for two aligned files use --source and --target")
    return READERS[ending_of(path)]


def check_plain(*paths: Path) -> None:
    """Aligned files hold one side each; the lines of a TMX file are not sentences."""
    for path in paths:
        if ending_of(path) in READERS:
            raise CorpusError(f"{path}: not plain text; a {ending_of(path)} file goes to --corpus")


def ending_of(path: Path) -> str:
    return Path(without_gz(path)).suffix.lower()
