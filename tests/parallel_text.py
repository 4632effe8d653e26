"""Files of parallel text, written for a test and read again."""

import gzip
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from knnmt.errors import CorpusError
from knnmt.text.corpus import Corpus, Skipped


def write(path: Path, content: str | bytes) -> Path:
    """Gzipped where the name says so."""
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix.lower() == ".gz" else data)
    return path


def one_file(path: Path, content: str | bytes, languages: tuple[str | None, str | None] = ("de", "en")) -> Corpus:
    return Corpus(write(path, content), languages=languages)


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return [(unit.source, unit.target) for unit in corpus.units()]


def message(corpus: Corpus) -> str:
    """The error that reading everything ends with."""
    with pytest.raises(CorpusError) as caught:
        list(corpus.segments(Skipped()))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The folder of a test is shared by its examples: each writes its files anew.
STEADILY = settings(deadline=None, derandomize=True, max_examples=50)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0\ufeff"), max_size=20)
