"""Documents of a test, translated by a function."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from knnmt.documents.content import Content, DocumentUnit, Tag, UnitResult, plain_text
from knnmt.documents.document import Document, DocumentOptions
from knnmt.documents.kinds import open_document
from knnmt.errors import KnnmtError

Translate = Callable[[DocumentUnit], UnitResult]


def capitals(unit: DocumentUnit) -> UnitResult:
    """Every text in capital letters, tags where they are."""
    return UnitResult(tuple(piece if isinstance(piece, Tag) else piece.upper() for piece in unit.source))


def identity(unit: DocumentUnit) -> UnitResult:
    return UnitResult(unit.source)


def opened(folder: Path, name: str, document: str | bytes, **options: Any) -> Document:
    path = folder / name
    path.write_bytes(document.encode() if isinstance(document, str) else document)
    return open_document(path, options=DocumentOptions(**options))


def rewritten(document: Document, translate: Translate = capitals) -> bytes:
    out = io.BytesIO()
    document.write((translate(unit) for unit in document.units()), out)
    return out.getvalue()


def sources(document: Document) -> list[Content]:
    return [unit.source for unit in document.units()]


def texts(document: Document) -> list[str]:
    return [plain_text(unit.source) for unit in document.units()]


def message(folder: Path, name: str, document: str | bytes, **options: Any) -> str:
    """The one line that says what is wrong, without the folder."""
    with pytest.raises(KnnmtError) as caught:
        rewritten(opened(folder, name, document, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")
