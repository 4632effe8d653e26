"""A store written anew: the same memory in less space, and nothing of the past."""

from pathlib import Path

import numpy as np
import pytest
from living import MODEL, PAIRS, add, everywhere, found_pairs, key_of, made, pairs_in

from knnmt import Store, StoreError
from knnmt.errors import SettingsError
from knnmt.store.compacting import compact_store
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.store.versions import roll_back, versions_of

pytestmark = pytest.mark.usefixtures("hash_keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS)


def test_no_going_back_even_if_it_was_killed_just_after(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_from_store(store.path, source_texts=["eins"])
    monkeypatch.setattr("knnmt.store.versions.clear", lambda _: None)
    after = compact_store(store.path)
    monkeypatch.undo()
    assert [m.version for m in versions_of(after)] == [3]
    with pytest.raises(SettingsError, match="no earlier version 1"):
        roll_back(store.path, 1)
    assert b"eins" not in b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())


def test_the_name_of_a_removed_corpus_goes_too(store: Store) -> None:
    add(store, [("geheim", "secret")], name="client")
    remove_from_store(store.path, corpora=["client"])
    assert [corpus["name"] for corpus in compact_store(store.path).manifest.corpora] == ["memory"]
    assert b"client" not in b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())


def test_too_few_left_for_the_chosen_clusters(tmp_path: Path) -> None:
    store = made(tmp_path / "store", [(f"satz {n}", "x") for n in range(20)], index="IVF16,Flat")
    remove_from_store(store.path, segments=list(range(15)))
    assert compact_store(store.path).manifest.index.factory == "Flat"


def test_the_same_memory_in_less_space(store: Store) -> None:
    add(store, [("fünf", "five")])
    before, _ = remove_from_store(store.path, source_texts=["zwei"])
    after = compact_store(store.path)
    assert pairs_in(after) == [PAIRS[0], PAIRS[2], ("fünf", "five")]
    assert [s.corpus for s in after.all_segments()] == ["memory", "memory", "more"]
    assert after.bytes < before.bytes
    assert (len(after.manifest.parts), len(after.manifest.indexes), after.manifest.removed) == (1, 1, None)
    assert list(problems_of(after)) == []
    assert b"zwei" not in b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())


def test_keys_and_tokens_stay_with_their_pairs(store: Store) -> None:
    add(store, [("fünf", "five")])
    remove_from_store(store.path, source_texts=["eins"])
    after = compact_store(store.path, part_entries=4)
    assert len(after.manifest.parts) == 2
    for number, (source, target) in enumerate(pairs_in(after)):
        entries = after.entries_of(np.array([number]))
        expected = [key_of(source, target, at) for at in range(len(entries))]
        np.testing.assert_array_equal(after.gather("keys", entries), np.stack(expected).astype(np.float16))
        assert after.values[entries].tolist() == MODEL.encode_targets([target])[0]
        assert after.gather("positions", entries).tolist() == list(range(len(entries)))


def test_without_keys(tmp_path: Path) -> None:
    pairs = [(f"satz {n}", f"sentence {n}") for n in range(200)]
    store = made(tmp_path / "store", pairs, index="IVF4,PQ8")
    after = compact_store(store.path, drop_keys=True)
    assert not list(store.path.rglob("keys.npy"))
    assert list(problems_of(after)) == []
    assert len(found_pairs(after, everywhere(pairs), 1, nprobe=4) & set(pairs)) > 150
    with pytest.raises(StoreError, match="keys were dropped"):
        compact_store(store.path)
    assert add(after, [("neu", "new")]).segments == 1
    assert ("neu", "new") in found_pairs(Store.open(store.path), everywhere([("neu", "new")]), 1)


def test_frequent_tokens_can_be_thinned_out(tmp_path: Path) -> None:
    store = made(tmp_path / "store", [(f"satz {n}", f"sentence {n}") for n in range(30)])
    remove_from_store(store.path, segments=[0])
    after = compact_store(store.path, cap=4)
    counts = np.unique(after.values, return_counts=True)[1]
    assert (after.entries, counts.max()) == (4 + 4 + 29, 4)
    assert after.manifest.downsampling == {"cap": 4, "dropped": 50}
    assert len(pairs_in(after)) == 29
    for entry in range(after.entries):
        pair = after.segment(int(after.segment_numbers(np.array([entry]))[0]))
        position = int(after.gather("positions", np.array([entry]))[0])
        key = key_of(pair.source, pair.target, position).astype(np.float16)
        np.testing.assert_array_equal(after.gather("keys", np.array([entry]))[0], key)
        assert after.values[entry] == MODEL.encode_targets([pair.target])[0][position]
    again = compact_store(store.path, cap=2)
    assert (again.entries, again.manifest.downsampling) == (2 + 2 + 29, {"cap": 2, "dropped": 54})


def test_an_index_that_was_chosen_stays(tmp_path: Path) -> None:
    store = made(tmp_path / "store", [(f"satz {n}", f"sentence {n}") for n in range(100)], index="SQ8")
    assert compact_store(store.path).manifest.index.factory == "SQ8"
    assert compact_store(store.path, index="Flat").manifest.index.factory == "Flat"


@pytest.mark.parametrize("factory", ["IVF64,PQ4x4fs", "IVF64_HNSW32,PQ4x4fs", "Flat"])
def test_an_index_that_was_chosen_by_size_is_chosen_anew(
    tmp_path: Path, factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the rule of an earlier version, with other clusters or with a graph over them."""
    monkeypatch.setattr("knnmt.search.factories.EXACT_ENTRIES", 450)
    monkeypatch.setattr("knnmt.search.factories.UNCODED_ENTRIES", 450)
    store = made(tmp_path / "store", [(f"satz {n}", f"sentence {n}") for n in range(150)], index=factory)
    assert compact_store(store.path).manifest.index.factory == "Flat"
    add(store, [("neu", "new")])
    assert compact_store(store.path).manifest.index.factory == "IVF128,PQ4x4fs"


def test_exact_search_of_many_entries_was_chosen_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.search.factories.EXACT_ENTRIES", 100)
    monkeypatch.setattr("knnmt.search.factories.UNCODED_ENTRIES", 100)
    store = made(tmp_path / "store", [(f"satz {n}", f"sentence {n}") for n in range(100)], index="Flat")
    assert compact_store(store.path).manifest.index.factory == "Flat"
