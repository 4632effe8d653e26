"""Stores that become one: every pair once, each part as it was."""

import shutil
from pathlib import Path

import pytest
from living import PAIRS, HashModel, add, corpus_of, everywhere, found_pairs, made, pairs_in

from knnmt import Store, StoreError, build_store
from knnmt.cli.store_view import capped_line
from knnmt.store.compacting import compact_store
from knnmt.store.merging import merge_stores
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of

pytestmark = pytest.mark.usefixtures("hash_keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS)


def test_pairs_of_all_and_each_once(store: Store, tmp_path: Path) -> None:
    other = made(tmp_path / "other", [("neu", "new"), PAIRS[1], ("eins", "1")], "other")
    third = made(tmp_path / "third", [("neu", "new"), ("last", "last")], "third")
    remove_from_store(other.path, source_texts=["eins"])
    remove_from_store(store.path, source_texts=["eins"])
    merged = merge_stores(store.path, [other.path, third.path])
    assert pairs_in(merged) == [*PAIRS[1:], ("neu", "new"), ("last", "last")]
    assert list(problems_of(merged)) == []
    assert pairs_in(Store.open(other.path)) == [("neu", "new"), PAIRS[1]]
    assert ("last", "last") in found_pairs(merged, everywhere([("last", "last")]), 1)
    assert [corpus["name"] for corpus in merged.manifest.corpora] == ["memory", "other", "third"]


def test_the_others_may_be_deleted_afterwards(store: Store, tmp_path: Path) -> None:
    other = made(tmp_path / "other", [("neu", "new")], "other")
    merged = merge_stores(store.path, [other.path])
    shutil.rmtree(other.path)
    assert pairs_in(Store.open(merged.path)) == [*PAIRS, ("neu", "new")]
    assert list(problems_of(Store.open(merged.path))) == []


def test_each_keeps_its_own_cap(store: Store, tmp_path: Path) -> None:
    """Two stores of at most four entries a token have up to eight together, so that no cap holds for all."""
    other, third = (
        made(tmp_path / name, [(f"{name} {n}", f"{name} {n}") for n in range(30)], name, cap=cap)
        for name, cap in (("other", 4), ("third", 10))
    )
    merged = merge_stores(store.path, [other.path])
    thinned = [{"corpora": ["other"], "cap": 4, "dropped": 52}]
    assert merged.manifest.downsampling == {"cap": None, "dropped": 52, "merged": thinned}
    merged = merge_stores(store.path, [third.path])
    thinned.append({"corpora": ["third"], "cap": 10, "dropped": 40})
    assert merged.manifest.downsampling == {"cap": None, "dropped": 92, "merged": thinned}
    assert merged.manifest.downsampling is not None
    assert capped_line(merged.manifest.downsampling) == (
        "at most 4 (other), 10 (third) entries of each target token: 92 left out"
    )


def test_a_cap_goes_with_the_last_of_its_text(store: Store, tmp_path: Path) -> None:
    pairs = [(f"satz {n}", f"sentence {n}") for n in range(30)]
    merge_stores(store.path, [made(tmp_path / "other", pairs, "other", cap=4).path])
    assert compact_store(store.path).manifest.downsampling == {
        "cap": None, "dropped": 52, "merged": [{"corpora": ["other"], "cap": 4, "dropped": 52}],
    }  # fmt: skip
    remove_from_store(store.path, corpora=["other"])
    assert compact_store(store.path).manifest.downsampling is None


def test_one_cap_takes_the_place_of_several(store: Store, tmp_path: Path) -> None:
    pairs = [(f"satz {n}", f"sentence {n}") for n in range(30)]
    merge_stores(store.path, [made(tmp_path / "other", pairs, "other", cap=4).path])
    assert compact_store(store.path, cap=2).manifest.downsampling == {"cap": 2, "dropped": 52 + 5 + 2}


def test_not_with_itself(store: Store) -> None:
    with pytest.raises(StoreError, match="with itself"):
        merge_stores(store.path, [store.path])


def test_not_with_another_model(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    other = build_store(tmp_path / "other", HashModel(fingerprint="0" * 16), [corpus_of(folder, PAIRS)])  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="another model"):
        merge_stores(store.path, [other.path])
    assert pairs_in(Store.open(store.path)) == PAIRS


def test_a_store_without_keys_can_be_merged_and_grow(tmp_path: Path) -> None:
    store = made(tmp_path / "store", [(f"satz {n}", f"sentence {n}") for n in range(300)], index="IVF4,PQ8x4")
    other = made(tmp_path / "other", [(f"fremd {n}", f"foreign {n}") for n in range(20)], "other")
    compact_store(other.path, drop_keys=True)
    merge_stores(store.path, [other.path])
    after = add(store, [(f"neu {n}", f"new {n}") for n in range(100)]).store
    assert list(problems_of(after)) == []
    assert ("neu 5", "new 5") in found_pairs(after, everywhere([("neu 5", "new 5")]), 1, nprobe=4)
