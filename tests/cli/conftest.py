"""A tiny model, and a store made with it."""

from pathlib import Path

import pytest
from tiny_models import tiny_folder


@pytest.fixture(scope="session")
def marian() -> Path:
    return tiny_folder("marian")


@pytest.fixture(scope="session")
def tiny_store(marian: Path, memory_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from knnmt import Corpus, build_store, load_model

    path = tmp_path_factory.mktemp("tiny") / "store"
    build_store(path, load_model(str(marian)), [Corpus(memory_file)])
    return path
