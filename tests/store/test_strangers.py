"""What others put into a store's folder or its manifest: it is refused, or left alone, and never followed."""

import json
from pathlib import Path
from typing import Any

import pytest
from living import MODEL, PAIRS, add, corpus_of, made, pairs_in

import knnmt.store.building as building
from knnmt import Store, StoreError, build_store
from knnmt.store.merging import merge_stores
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.store.versions import roll_back, versions_of

pytestmark = pytest.mark.usefixtures("hash_keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS)


def change_manifest(store: Store, change: Any) -> None:
    file = store.path / "manifest.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


NAMES = ["../../../planted.txt", "/etc/passwd", "..", "", "a/b", "a\\b", "C:x"]
PLACES: dict[str, Any] = {
    "part": lambda record: record["parts"][0],
    "index": lambda record: record["indexes"][0],
    "removed": lambda record: record["removed"],
}


@pytest.mark.parametrize("name", [*NAMES, None, 3], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_leaves_the_folder_is_refused(
    store: Store, tmp_path: Path, name: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knnmt.store.removing.RECENT", 0)
    remove_from_store(store.path, segments=[0])
    change_manifest(store, lambda record: PLACES[place](record).update(name=name))
    check_refused(store, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_a_part_that_leaves_its_folder_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    def plant(record: dict[str, Any]) -> None:
        files = record["parts"][0]["files"]
        files[name] = files.pop("keys.npy")

    change_manifest(store, plant)
    check_refused(store, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_mixing_that_leaves_the_folder_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    file = {"bytes": 1, "sha256": "", "head": None}
    mixing = {"kind": "learned", "covered": 0, "variance": 1.0, "files": {name: file}, "how": {}}
    change_manifest(store, lambda record: record.update(mixing=mixing))
    check_refused(store, tmp_path)


def check_refused(store: Store, tmp_path: Path) -> None:
    other = made(tmp_path / "other", [("x", "y")])
    for use in (lambda: Store.open(store.path), lambda: merge_stores(other.path, [store.path])):
        with pytest.raises(StoreError, match=r"manifest\.json"):
            use()
    assert pairs_in(Store.open(other.path)) == [("x", "y")]


def test_merged_stores_share_no_file(store: Store, tmp_path: Path) -> None:
    other = made(tmp_path / "other", [("x", "y")])
    merge_stores(store.path, [other.path])
    inodes = [{file.stat().st_ino for file in path.rglob("*") if file.is_file()} for path in (store.path, other.path)]
    assert not inodes[0] & inodes[1]


def test_what_is_not_ours_is_neither_read_nor_removed(store: Store) -> None:
    (store.path / "versions").mkdir(exist_ok=True)
    strays = [store.path / name for name in ("parts/.DS_Store", "versions/1x.json", "index-notes.faiss", "notes.txt")]
    for stray in strays:
        stray.write_text("mine")
    backup = store.path / "parts" / "backup" / "file"
    backup.parent.mkdir()
    backup.write_text("mine")
    add(store, [("a", "b")])
    remove_from_store(store.path, segments=[0])
    roll_back(store.path, 1)
    now = Store.open(store.path)
    assert [manifest.version for manifest in versions_of(now)] == [1, 2, 3, 4]
    assert list(problems_of(now)) == []
    assert [stray.read_text() for stray in [*strays, backup]] == ["mine"] * 5


def test_fields_of_a_later_version_are_kept(store: Store) -> None:
    def extend(record: dict[str, Any]) -> None:
        record["colour"] = {"house": "blue"}
        for inner in (record["parts"][0], record["indexes"][0], record["model"]):
            inner["colour"] = 1
        record["parts"][0]["files"]["keys.npy"]["colour"] = 2

    change_manifest(store, extend)
    add(Store.open(store.path), [("a", "b")])
    remove_from_store(store.path, segments=[0])
    roll_back(store.path, 2)
    now = json.loads((store.path / "manifest.json").read_text())
    assert now["colour"] == {"house": "blue"}
    assert [now[name][0]["colour"] for name in ("parts", "indexes")] == [1, 1]
    assert now["model"]["colour"] == 1
    assert now["parts"][0]["files"]["keys.npy"]["colour"] == 2
    assert list(problems_of(Store.open(store.path))) == []


def test_a_newer_format_is_refused_with_the_version_that_wrote_it(store: Store) -> None:
    change_manifest(store, lambda record: record.update(format=99, knnmt="7.5"))
    with pytest.raises(StoreError, match=r"newer knnmt \(7\.5\)"):
        Store.open(store.path)


DAMAGE: dict[str, Any] = {
    "segments": lambda record: record.update(segments=2**40),
    "entries": lambda record: record.update(entries=1),
    "tuned": lambda record: record.update(tuned=True),
    "bytes": lambda record: record["parts"][0]["files"]["keys.npy"].update(bytes=None),
    "version": lambda record: record.update(version="1"),
    "negative": lambda record: record["parts"][0].update(segments=-1),
    "list": lambda record: record.update(parts=3),
    "both": lambda record: (record.update(segments=2**40), record["parts"][0].update(segments=2**40)),
    "tuned k": lambda record: record.update(tuned={"k": "many"}),
    "tuned weight": lambda record: record.update(tuned={"weight": None}),
    "flag": lambda record: record["parts"][0].update(entries=True),
    "recall": lambda record: record["indexes"][0].update(recall={"k": None}),
    "no index": lambda record: record.update(indexes=[]),
    "null file": lambda record: record["indexes"][0].update(file=None),
    "corpora": lambda record: record.update(corpora=[3]),
    "part": lambda record: record.update(parts=[None]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_manifest_that_cannot_be_true_is_refused(store: Store, name: str) -> None:
    change_manifest(store, DAMAGE[name])
    with pytest.raises(StoreError, match=r"manifest\.json"):
        Store.open(store.path)


def test_a_build_that_died_in_between_is_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second build finds the folder empty; before it has the lock, a first one begins there and dies."""
    model: Any = MODEL
    path, survey = tmp_path / "store", building.survey
    first, second = (corpus_of(tmp_path, [(name, name)], name) for name in ("first", "second"))

    def overtaken(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(building, "survey", survey)
        with monkeypatch.context() as dying:
            dying.setattr(building, "make_store_index", fail)
            with pytest.raises(RuntimeError):
                build_store(path, model, [first])
        return survey(*given, **options)

    monkeypatch.setattr(building, "survey", overtaken)
    with pytest.raises(StoreError, match="unfinished build"):
        build_store(path, model, [second])


def fail(*_: Any, **__: Any) -> None:
    raise RuntimeError("killed")
