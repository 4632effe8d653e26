"""Two documents of one kind as parallel text: unit N of one translates unit N of the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from knnmt.documents.document import DocumentOptions
from knnmt.documents.kinds import KINDS, open_document
from knnmt.errors import CorpusError, DocumentError
from knnmt.text.corpus import READERS, Corpus
from knnmt.text.inputs import ending_of
from knnmt.text.units import Unit
from knnmt.units.flat import flattened

ONE_SIDED = tuple(ending for ending in KINDS if ending not in READERS and ending != ".txt")  # .html, .md, .srt, …


@dataclass(frozen=True, slots=True)
class DocumentPair(Corpus):
    """Aligned documents such as `manual.de.html` and `manual.en.html`."""

    def units(self) -> Iterator[Unit]:
        assert self.target is not None
        sides = [unit_texts(self.source), unit_texts(self.target)]
        for number, (left, right) in enumerate(zip_longest(*sides), start=1):
            if left is None or right is None:
                shorter, longer = (self.source, self.target) if left is None else (self.target, self.source)
                raise CorpusError(f"{shorter}: ends at unit {number - 1}, but {longer} goes on; units must be aligned")
            yield Unit(left, right)


def unit_texts(file: Path) -> Iterator[str]:
    """The units of a document as a model sees them."""
    try:
        for unit in open_document(file, options=DocumentOptions(all_units=True)).units():
            yield flattened(unit.source).text()
    except DocumentError as error:
        raise CorpusError(str(error)) from error


def is_document_pair(source: Path, target: Path | None) -> bool:
    return target is not None and ending_of(source) in ONE_SIDED and ending_of(source) == ending_of(target)
