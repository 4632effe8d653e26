"""The past of a store: what can be gone back to, and who may change what is now."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from living import PAIRS, add, everywhere, made, pairs_in

from knnmt import Store, StoreError
from knnmt.errors import KnnmtError, SettingsError
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.compacting import compact_store
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.store.versions import VERSIONS_KEPT, locked, roll_back, versions_of

pytestmark = pytest.mark.usefixtures("hash_keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS)


def test_each_change_is_a_version(store: Store) -> None:
    add(store, [("a", "b")])
    remove_from_store(store.path, segments=[0])
    assert [(m.version, m.change) for m in versions_of(Store.open(store.path))] == [
        (1, "built"), (2, "added 1 segment"), (3, "removed 1 segment"),
    ]  # fmt: skip


def test_going_back_and_forth(store: Store) -> None:
    add(store, [("a", "b")])
    remove_from_store(store.path, segments=[0])
    assert pairs_in(roll_back(store.path, 1)) == PAIRS
    assert pairs_in(roll_back(store.path, 3)) == [*PAIRS[1:], ("a", "b")]
    assert Store.open(store.path).manifest.version == 5
    assert list(problems_of(Store.open(store.path))) == []


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_version_that_is_not_there(store: Store, version: int) -> None:
    with pytest.raises(SettingsError, match=f"no earlier version {version}"):
        roll_back(store.path, version)


def test_old_versions_and_their_files_go(store: Store) -> None:
    for number in range(VERSIONS_KEPT + 3):
        add(store, [(f"satz {number}", "x")])
    after = Store.open(store.path)
    assert len(versions_of(after)) == VERSIONS_KEPT
    assert len(list(store.path.glob("index*.faiss"))) <= VERSIONS_KEPT + 1


def test_a_reader_keeps_its_version(store: Store) -> None:
    """Even when another process compacts the store and the files leave the folder."""
    reader = LocalRetriever([store])
    before = reader.search(everywhere(PAIRS), 3)
    remove_from_store(store.path, segments=[0, 1])
    compact_store(store.path)
    after = reader.search(everywhere(PAIRS), 3)
    np.testing.assert_array_equal(before.entries, after.entries)
    assert store.segment(0).source == "eins"


def test_opened_while_it_is_compacted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest was read just before the files that it names went."""
    remove_from_store(store.path, segments=[0])
    whole, calls = Store.hold, []

    def compact_first(self: Store) -> None:
        if not calls:
            calls.append(1)
            compact_store(store.path)
        whole(self)

    monkeypatch.setattr(Store, "hold", compact_first)
    assert pairs_in(Store.open(store.path)) == PAIRS[1:]


def test_one_writer_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.store.versions.PATIENCE", 0.0)
    with locked(store.path):
        for change in (
            lambda: add(store, [("a", "b")]),
            lambda: remove_from_store(store.path, segments=[0]),
            lambda: compact_store(store.path),
            lambda: roll_back(store.path, 1),
        ):
            with pytest.raises(StoreError, match="being changed by another process"):
                change()
    assert add(store, [("a", "b")]).segments == 1


def test_a_writer_waits_for_one_who_is_soon_done(store: Store) -> None:
    """As joining in the background is, on a machine that does much else."""
    begun = threading.Event()

    def hold() -> None:
        with locked(store.path):
            begun.set()
            time.sleep(1.5)

    other = threading.Thread(target=hold)
    other.start()
    assert begun.wait(30)
    assert add(store, [("a", "b")]).segments == 1
    other.join()


def test_a_store_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(KnnmtError, match="not a datastore"):
        remove_from_store(tmp_path, segments=[0])
    assert list(tmp_path.iterdir()) == []
