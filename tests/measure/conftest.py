"""A store on which tuning is tried, and the text that it is tried with."""

import pytest

from knnmt import Store, Translator
from knnmt.cli.demo import read_demo

LINES = 6
BEAM = 2


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str]]:
    pairs = read_demo("test")[:LINES]
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


@pytest.fixture(scope="module")
def translator(store: Store) -> Translator:
    return Translator.from_store(store.path, beam=BEAM)
