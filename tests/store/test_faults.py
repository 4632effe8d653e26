"""A writer that is killed at any point leaves exactly the store before its change or exactly the one after it."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import duration, killed_at_random, one_thread
from living import HashModel, corpus_of, pairs_in, use_hash_keys

from knnmt import BuildSettings, Store, StoreError, build_store
from knnmt.store.adding import add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.merging import merge_stores
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.store.versions import locked

MODEL = HashModel()
PAIRS = [(f"satz {number}", f"sentence number {number}") for number in range(60)]
NEW = [(f"neu {number}", f"new number {number}") for number in range(30)]
SETTINGS = {"part_entries": 60}

Change = Callable[[Path], object]


@pytest.fixture(autouse=True)
def ready_to_fork(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_hash_keys(monkeypatch)
    with one_thread():
        yield


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    corpus_of(folder, PAIRS, "memory")
    corpus_of(folder, NEW, "new")
    return folder


def build(path: Path, texts: Path, name: str = "memory", *, resume: bool = False) -> Store:
    corpus = corpus_of(texts, PAIRS if name == "memory" else NEW, name)
    return build_store(path, MODEL, [corpus], BuildSettings(**SETTINGS, resume=resume))  # type: ignore[arg-type]


def changes(texts: Path, other: Path) -> dict[str, Change]:
    new = corpus_of(texts, NEW, "new")
    return {
        "add": lambda path: add_to_store(path, MODEL, [new]),  # type: ignore[arg-type]
        "remove": lambda path: remove_from_store(path, source_texts=["satz 3", "satz 40"]),
        "merge": lambda path: merge_stores(path, [other]),
        "compact": compact_store,
    }


@pytest.mark.parametrize("name", ["add", "remove", "merge", "compact"])
def test_killed_at_random_points(texts: Path, tmp_path: Path, name: str) -> None:
    other, before, after = tmp_path / "other", tmp_path / "before", tmp_path / "after"
    build(other, texts, "new")
    build(before, texts)
    remove_from_store(before, segments=[7])  # so that compacting has something to do
    shutil.copytree(before, after)
    change = changes(texts, other)[name]
    seconds = duration(lambda: change(after))
    old, new = pairs_in(Store.open(before)), pairs_in(Store.open(after))
    seen = set()
    for path in killed_at_random(change, seconds, tmp_path, before=before, seed=name):
        store = Store.open(path)
        assert list(problems_of(store)) == []
        assert pairs_in(store) in (old, new)
        seen.add(store.manifest.version)
        with locked(path):  # the dead hold no lock
            pass
        if store.manifest.version == 2:
            change(path)
            assert pairs_in(Store.open(path)) == new
            assert not list(path.rglob("*.partial"))
    assert 2 in seen


def test_build_killed_at_random_points(texts: Path, tmp_path: Path) -> None:
    seconds = duration(lambda: build(tmp_path / "whole", texts))
    for path in killed_at_random(lambda path: build(path, texts), seconds, tmp_path):
        if not (path / "manifest.json").exists() or (path / "building.json").exists():
            build(path, texts, resume=True)
        store = Store.open(path)
        assert pairs_in(store) == PAIRS
        assert list(problems_of(store)) == []


@pytest.mark.parametrize("name", ["add", "remove", "merge", "compact"])
def test_a_full_disk_changes_nothing(texts: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever flush to disk is the one that fails."""
    build(tmp_path / "other", texts, "new")
    build(tmp_path / "before", texts)
    before = pairs_in(Store.open(tmp_path / "before"))
    change, whole = changes(texts, tmp_path / "other")[name], os.fsync
    for allowed in range(100):
        path = Path(shutil.copytree(tmp_path / "before", tmp_path / f"full-{allowed}"))
        left = iter(range(allowed))

        def full(handle: int, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise OSError(errno.ENOSPC, "No space left on device")
            whole(handle)

        monkeypatch.setattr(os, "fsync", full)
        try:
            change(path)
            break
        except OSError:
            monkeypatch.setattr(os, "fsync", whole)
        finally:
            monkeypatch.setattr(os, "fsync", whole)
        store = Store.open(path)
        assert list(problems_of(store)) == []
        assert store.manifest.version > 1 or pairs_in(store) == before
    assert allowed > 2


def test_a_folder_that_may_not_be_written(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the superuser may write everywhere, the lock's own error stands for it."""
    build(tmp_path / "store", texts)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    for change in changes(texts, tmp_path / "store").values():
        with pytest.raises(StoreError, match=r"cannot be written \(permission denied\)"):
            change(tmp_path / "store")
