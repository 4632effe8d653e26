"""The interface of a document, which yields units and takes results, and its implementation for all kinds: splicing."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from knnmt.documents.content import DocumentUnit, UnitResult
from knnmt.errors import DocumentError, SettingsError

# What `--state` may be: XLIFF 1.2 has more states than 2.x, but only these say how far a machine's translation is.
STATES = ("initial", "translated", "needs-review-translation")
ATTRIBUTES = ("alt", "title", "placeholder")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOptions:
    """How a document is read and written; an option of another kind has no effect."""

    source_lang: str | None = None  # the wanted languages; a document in others is refused
    target_lang: str | None = None
    all_units: bool = False  # also what the document calls finished
    state: str | None = None  # XLIFF: of what is written; None: the kind's own for "a person must look at it"
    fuzzy: bool = True  # PO: mark what is written
    paragraphs: bool = False  # TXT: units are paragraphs, not lines
    columns: tuple[str, str] | None = None  # CSV, TSV, JSONL: source and target by name; None: as the header says
    attributes: tuple[str, ...] = ATTRIBUTES  # HTML: those that are translated

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in STATES:
            raise SettingsError(f"--state {self.state}: must be one of {', '.join(STATES)}")


class Document(Protocol):
    """A file that can be translated. Each call reads the file again."""

    @property
    def path(self) -> Path: ...
    @property
    def kind(self) -> str: ...  # "XLIFF 1.2", "PO", …
    @property
    def source_lang(self) -> str | None: ...  # as the document names it; None: it does not
    @property
    def target_lang(self) -> str | None: ...
    def units(self) -> Iterator[DocumentUnit]:
        """What is to be translated, in order."""
        ...

    def write(self, results: Iterable[UnitResult], out: BinaryIO) -> None:
        """The document with one result for each unit, in the order of `units()`. Results are taken one by one."""
        ...


@dataclass(frozen=True, slots=True)
class Slot:
    """A stretch of the file that results replace; `units` are numbered by the document."""

    units: tuple[DocumentUnit, ...]
    written: Callable[[tuple[UnitResult, ...]], str]


Piece = str | Slot  # the file's own text, or what results replace


@dataclass(frozen=True, slots=True)
class SplicedDocument:
    """A document as the sequence of its pieces: its own text goes through as it is, results fill the slots."""

    path: Path
    kind: str
    encoding: str  # of Python's codecs, without a byte order mark of its own
    pieces: Callable[[], Iterator[Piece]]  # the text with its byte order mark
    source_lang: str | None = None
    target_lang: str | None = None
    errors: str = "strict"  # of encoding: "xmlcharrefreplace" where the kind can spell every character

    def units(self) -> Iterator[DocumentUnit]:
        number = 0
        for piece in self.pieces():
            if isinstance(piece, Slot):
                for number, unit in enumerate(piece.units, start=number + 1):  # noqa: B020
                    yield replace(unit, number=number)

    def write(self, results: Iterable[UnitResult], out: BinaryIO) -> None:
        given = iter(results)
        for piece in self.pieces():
            text = piece if isinstance(piece, str) else piece.written(tuple(self.results_for(piece, given)))
            out.write(self.encoded(text))
        if next(given, None) is not None:
            raise ValueError(f"{self.path}: more results than units")

    def results_for(self, slot: Slot, given: Iterator[UnitResult]) -> Iterator[UnitResult]:
        for unit in slot.units:
            result = next(given, None)
            if result is None:
                raise ValueError(f"{self.path}: no result for {unit.place}")
            yield result

    def encoded(self, text: str) -> bytes:
        try:
            return text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise DocumentError(f"{self.path}: its encoding {self.encoding} has no {wrong!r}") from error
