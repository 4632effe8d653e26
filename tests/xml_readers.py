"""A reader of XML, asked about whole documents."""

import io
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import pytest

from knnmt.errors import CorpusError
from knnmt.text.units import Unit

Document = str | bytes
Language = str | None


@dataclass(frozen=True)
class Documents:
    reader: Callable[[BinaryIO, str, Language, Language], Iterator[Unit]]
    name: str  # of the file, as errors say it

    def units(self, document: Document, source_lang: Language = "de", target_lang: Language = "en") -> list[Unit]:
        data = document.encode() if isinstance(document, str) else document
        return list(self.reader(io.BytesIO(data), self.name, source_lang, target_lang))

    def read(
        self, document: Document, source_lang: Language = "de", target_lang: Language = "en"
    ) -> list[tuple[str, str]]:
        return [(unit.source, unit.target) for unit in self.units(document, source_lang, target_lang)]

    def message(self, document: Document, source_lang: Language = "de", target_lang: Language = "en") -> str:
        with pytest.raises(CorpusError) as caught:
            self.units(document, source_lang, target_lang)
        assert str(caught.value).startswith(f"{self.name}: ")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def said(self, document: Document) -> str:
        """Whatever comes out: the pairs or the error."""
        try:
            return str(self.read(document))
        except CorpusError as error:
            return str(error)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Afterwards the list holds the most bytes that Python had at once."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
