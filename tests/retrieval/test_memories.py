"""What `--store` may name."""

from pathlib import Path

import pytest

from knnmt import Store
from knnmt.errors import KnnmtError, SettingsError
from knnmt.retrieval.memories import open_memories, open_memory


@pytest.fixture
def folder(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("house", "a=b", "x:0.5"):
        (tmp_path / name).symlink_to(store.path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "name", "weight"),
    [
        ("house", "house", 1.0),
        ("./house", "./house", 1.0),
        ("house:0.7", "house", 0.7),
        ("own=house", "own", 1.0),
        ("own=./house:0.7", "own", 0.7),
        ("own=./house:2", "own", 2.0),
        ("a=b", "a=b", 1.0),
        ("x:0.5", "x:0.5", 1.0),
        ("own=x:0.5:0.25", "own", 0.25),
        (Path("house"), "house", 1.0),
    ],
)
def test_names_and_weights(folder: Path, given: str, name: str, weight: float) -> None:
    memory = open_memory(given)
    assert (memory.name, memory.weight) == (name, weight)
    assert memory.store.entries


@pytest.mark.parametrize("given", ["house:", "house:x", "house:-1", "house:0", "house:inf", "house:nan"])
def test_bad_weights(folder: Path, given: str) -> None:
    with pytest.raises(SettingsError, match="--store"):
        open_memory(given)


def test_no_store_there(folder: Path) -> None:
    with pytest.raises(KnnmtError, match="nothing: not a datastore"):
        open_memories(["house", "own=./nothing:0.5"])
