"""A store that changes: what is added is found, what is removed is not, and nothing else moves."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
from living import HashModel, corpus_of, key_of, pairs_in, use_hash_keys

from knnmt import BuildSettings, Store, StoreError, build_store
from knnmt.adding import AddSettings, Conflict, add_to_store
from knnmt.compacting import compact_store
from knnmt.errors import CorpusError, KnnmtError, SettingsError
from knnmt.indexing import split_indexes
from knnmt.manifest import FileRecord, IndexRecord, PartRecord
from knnmt.merging import merge_stores
from knnmt.removing import remove_from_store
from knnmt.retrieval import Retriever
from knnmt.selection import Condition
from knnmt.verification import problems_of
from knnmt.versions import VERSIONS_KEPT, locked, roll_back, versions_of
from knnmt.views import capped_line

MODEL = HashModel()
PAIRS = [("eins", "one"), ("zwei", "two"), ("drei vier", "three four")]


@pytest.fixture(autouse=True)
def hash_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_hash_keys(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS)


def made(path: Path, pairs: list[tuple[str, str]], name: str = "memory", **settings: object) -> Store:
    folder = path.with_name(f"{path.name}-text")
    folder.mkdir()
    corpus = corpus_of(folder, pairs, name)
    return build_store(path, MODEL, [corpus], BuildSettings(**settings))  # type: ignore[arg-type]


def add(store: Store, pairs: list[tuple[str, str]], name: str = "more", **settings: object) -> object:
    folder = store.path.with_name("added-text")
    folder.mkdir(exist_ok=True)
    return add_to_store(store.path, MODEL, [corpus_of(folder, pairs, name)], AddSettings(**settings))  # type: ignore[arg-type]


def found_pairs(store: Store, queries: np.ndarray, k: int, **options: object) -> set[tuple[str, str]]:
    """Every pair that is a neighbour of some query."""
    found = Retriever([store], **options).search(queries.astype(np.float32), k)  # type: ignore[arg-type]
    segments = store.segment_numbers(np.unique(found.entries[found.entries >= 0]))
    return {(store.segment(int(n)).source, store.segment(int(n)).target) for n in segments}


def everywhere(pairs: list[tuple[str, str]]) -> np.ndarray:
    return np.stack([key_of(source, target, 0) for source, target in pairs])


class TestAdding:
    def test_what_is_added_is_found_beside_what_was_there(self, store: Store) -> None:
        added = add(store, [("fünf", "five"), ("sechs sieben", "six seven")])
        after = Store.open(store.path)
        assert (added.segments, added.entries, added.duplicates) == (2, 5, 0)
        assert pairs_in(after) == [*PAIRS, ("fünf", "five"), ("sechs sieben", "six seven")]
        assert ("fünf", "five") in found_pairs(after, everywhere([("fünf", "five")]), 1)
        assert ("eins", "one") in found_pairs(after, everywhere([("eins", "one")]), 1)
        assert list(problems_of(after)) == []

    def test_the_same_pair_is_stored_once(self, store: Store) -> None:
        added = add(store, [PAIRS[0], ("neu", "new"), ("neu", "new")])
        assert (added.segments, added.duplicates, added.conflicts) == (1, 2, [])
        assert pairs_in(Store.open(store.path)) == [*PAIRS, ("neu", "new")]

    def test_nothing_new_is_no_new_version(self, store: Store) -> None:
        assert add(store, PAIRS).segments == 0
        assert Store.open(store.path).manifest.version == 1

    def test_another_translation_is_kept_and_reported(self, store: Store) -> None:
        added = add(store, [("eins", "1"), ("eins", "I")])
        assert added.conflicts == [Conflict("eins", "one", "1"), Conflict("eins", "1", "I")]
        assert pairs_in(Store.open(store.path)) == [*PAIRS, ("eins", "1"), ("eins", "I")]

    @pytest.mark.parametrize(
        ("pairs", "expected", "replaced"),
        [
            ([("eins", "1")], [*PAIRS[1:], ("eins", "1")], 1),
            ([("eins", "1"), ("eins", "I")], [*PAIRS[1:], ("eins", "I")], 2),
            ([("eins", "1"), ("eins", "one")], PAIRS, 1),
            ([("neu", "new"), ("neu", "newer")], [*PAIRS, ("neu", "newer")], 1),
        ],
    )
    def test_with_replace_the_newest_wins(
        self, store: Store, pairs: list[tuple[str, str]], expected: list[tuple[str, str]], replaced: int
    ) -> None:
        added = add(store, pairs, replace=True)
        assert sorted(pairs_in(Store.open(store.path))) == sorted(expected)
        assert added.replaced == replaced
        assert list(problems_of(Store.open(store.path))) == []

    def test_a_removed_pair_can_come_back(self, store: Store) -> None:
        remove_from_store(store.path, source_texts=["eins"])
        assert add(store, [("eins", "one")]).segments == 1
        assert sorted(pairs_in(Store.open(store.path))) == sorted(PAIRS)

    def test_another_model_is_refused(self, store: Store) -> None:
        corpus = corpus_of(store.path.with_name("store-text"), [("x", "y")], "other")
        with pytest.raises(StoreError, match="another model"):
            add_to_store(store.path, HashModel(fingerprint="0" * 16), [corpus])

    def test_only_overlong_pairs_are_an_error(self, store: Store) -> None:
        with pytest.raises(CorpusError, match="no pair is short enough"):
            add(store, [("lang " * 100, "long")])
        assert Store.open(store.path).manifest.version == 1

    @pytest.mark.parametrize("pairs", [[("eins", "long " * 100)], [("eins", "uno"), ("eins", "long " * 100)]])
    def test_a_pair_that_is_too_long_replaces_nothing(self, store: Store, pairs: list[tuple[str, str]]) -> None:
        try:
            add(store, pairs, replace=True)
        except CorpusError:
            assert len(pairs) == 1
        expected = [*PAIRS[1:], ("eins", "uno")] if len(pairs) == 2 else PAIRS
        assert sorted(pairs_in(Store.open(store.path))) == sorted(expected)

    @pytest.mark.parametrize("change", [{"target_lang": "fr"}, {"source_prefix": "x"}])
    def test_other_settings_of_the_model_are_refused(self, store: Store, change: dict[str, str]) -> None:
        corpus = corpus_of(store.path.with_name("store-text"), [("x", "y")], "other")
        with pytest.raises(StoreError, match="other settings"):
            add_to_store(store.path, HashModel(**change), [corpus])  # type: ignore[arg-type]

    def test_an_index_with_keys_beside_its_codes(self, tmp_path: Path) -> None:
        pairs = [(f"satz {n}", f"sentence {n}") for n in range(300)]
        store = made(tmp_path / "refined", pairs, index="IVF4,PQ4x4,RFlat")
        after = add(store, [(f"neu {n}", f"new {n}") for n in range(40)]).store
        assert list(problems_of(after)) == []

    def test_a_trained_index_takes_new_entries(self, tmp_path: Path) -> None:
        pairs = [(f"satz {n}", f"sentence number {n}") for n in range(300)]
        store = made(tmp_path / "ivf", pairs, index="IVF4,PQ4x4")
        more = [(f"neu {n}", f"new number {n}") for n in range(20)]
        after = add(store, more).store
        assert [index.entries for index in after.manifest.indexes] == [1200, 80]
        assert after.manifest.indexes[1].factory == "clusters of index.faiss"
        assert list(problems_of(after)) == []
        assert set(more) <= found_pairs(after, everywhere(more), 1, nprobe=4)

    def test_a_store_that_has_outgrown_its_index_says_so(self, store: Store) -> None:
        assert not add(store, [("a", "b")]).compact_suggested
        assert add(store, [(f"satz {n}", f"sentence {n}") for n in range(20)]).compact_suggested


def part_of(entries: int) -> PartRecord:
    return PartRecord("", entries, 1, 0, {}, "", {"keys.npy": FileRecord(0, "")})


def index_of(entries: int) -> IndexRecord:
    return IndexRecord("", entries, "Flat", None, {}, FileRecord(0, ""))


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [([100], 5, [100]), ([100, 5], 5, [100]), ([100, 5], 4, [100, 5]), ([100, 50, 9], 20, [100, 50]), ([3], 50, [3])],
)
def test_small_indexes_are_taken_in_by_larger_ones(before: list[int], added: int, after: list[int]) -> None:
    parts = [part_of(entries) for entries in before]
    manifest = SimpleNamespace(indexes=[index_of(entries) for entries in before], parts=parts)
    kept, taken = split_indexes(SimpleNamespace(manifest=manifest), added)  # type: ignore[arg-type]
    assert [index.entries for index in kept] == after
    assert [index.entries for index in [*kept, *taken]] == before


def test_many_small_additions_leave_few_indexes(store: Store) -> None:
    for number in range(40):
        add(store, [(f"satz {number}", f"sentence {number}")])
    after = Store.open(store.path)
    assert len(after.manifest.indexes) <= 8
    assert len(after.manifest.parts) == len(after.manifest.indexes)
    assert [s.corpus for s in after.all_segments()][3:] == ["more"] * 40
    assert len(pairs_in(after)) == 43
    assert list(problems_of(after)) == []


class TestRemoving:
    @pytest.mark.parametrize(
        ("what", "left"),
        [
            ({"segments": [1]}, [PAIRS[0], PAIRS[2]]),
            ({"segments": [0, 2]}, [PAIRS[1]]),
            ({"source_texts": ["drei  vier"]}, PAIRS[:2]),
            ({"where": ["corpus=memory", "created>=2000"]}, []),
            ({"corpora": ["memory"]}, []),
        ],
    )
    def test_removed_pairs_are_gone(
        self, store: Store, what: dict[str, list[str]], left: list[tuple[str, str]]
    ) -> None:
        after, gone = remove_from_store(store.path, **what)  # type: ignore[arg-type]
        assert pairs_in(after) == left
        assert gone == len(PAIRS) - len(left)
        assert after.live_segments == len(left)
        assert list(problems_of(after)) == []

    @pytest.mark.parametrize(
        ("what", "message"),
        [
            ({}, "what is to be removed"),
            ({"segments": [3]}, "--segment 3: .* has no such segment"),
            ({"segments": [-1]}, "--segment -1"),
            ({"corpora": ["nobody"]}, "--corpus nobody: .* made of memory"),
            ({"source_texts": ["Eins"]}, "--source-text 'Eins'"),
            ({"where": ["client=x"]}, "--where client=x: no segment"),
            ({"where": ["client"]}, "--where client: must be a name"),
            ({"segments": [0], "corpora": ["nobody"]}, "--corpus nobody"),
        ],
    )
    def test_what_names_nothing_is_an_error(self, store: Store, what: dict[str, list[str]], message: str) -> None:
        with pytest.raises(SettingsError, match=message):
            remove_from_store(store.path, **what)  # type: ignore[arg-type]
        assert pairs_in(Store.open(store.path)) == PAIRS

    def test_removing_twice_is_an_error(self, store: Store) -> None:
        remove_from_store(store.path, segments=[1])
        with pytest.raises(SettingsError, match="no such segment"):
            remove_from_store(store.path, segments=[1])

    def test_an_empty_store_says_so(self, store: Store) -> None:
        after, _ = remove_from_store(store.path, corpora=["memory"])
        with pytest.raises(StoreError, match="every sentence pair has been removed"):
            Retriever([after])
        with pytest.raises(StoreError, match="delete the folder"):
            compact_store(store.path)


FACTORIES = ["Flat", "IVF4,Flat", "IVF4,PQ4x4", "OPQ4,IVF4,PQ4x4", "HNSW8", "PQ4x4", "SQ8", "IVF4,PQ4x4fs"]


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("few", [0, 10**6])
def test_what_is_filtered_out_is_never_a_neighbour(
    tmp_path: Path, factory: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every kind of index, and for the search without one; random filters by removal and by corpus."""
    monkeypatch.setattr("knnmt.retrieval.FEW", few)
    random = np.random.default_rng(0)
    pairs = [(f"satz {n}", f"sentence {n}") for n in range(300)]
    store = made(tmp_path / "store", pairs, index=factory)
    add(store, [(f"fremd {n}", f"foreign {n}") for n in range(40)], name="client")
    gone = random.choice(300, 100, replace=False)
    after, _ = remove_from_store(store.path, segments=gone.tolist())
    queries = everywhere(pairs) + random.normal(size=(300, 8)) * 0.1
    left = {pair for number, pair in enumerate(pairs) if number not in set(gone.tolist())}
    client = {(f"fremd {n}", f"foreign {n}") for n in range(40)}
    assert found_pairs(after, queries, 16) <= left | client
    assert found_pairs(after, queries, 16, where=[Condition.parse("corpus=client")]) <= client
    only_house = found_pairs(after, queries, 16, where=[Condition.parse("corpus!=client")])
    assert only_house <= left
    assert len(only_house) > 100


def test_a_filter_that_empties_the_first_store(store: Store, tmp_path: Path) -> None:
    """What is found belongs to the second, with its weight."""
    other = made(tmp_path / "other", [("neu", "new")], "client")
    retriever = Retriever([store, other], where=[Condition.parse("corpus=client")], trust=[1.0, 3.0])
    found = retriever.search(everywhere([("neu", "new")]).astype(np.float32), 1)
    assert found.trust is not None
    assert found.trust.tolist() == [[3.0]]
    located, entry = retriever.locate(int(found.entries[0, 0]))
    assert located is other
    assert other.segment(int(other.segment_numbers(np.array([entry]))[0])).source == "neu"


def test_more_neighbours_than_are_allowed(store: Store) -> None:
    add(store, [("fremd", "foreign")], name="client")
    found = Retriever([Store.open(store.path)], where=[Condition.parse("corpus=client")])
    assert found.entries == 2
    neighbours = found.search(np.zeros((1, 8), np.float32), 10)
    assert (neighbours.entries >= 0).sum() == 2


def test_a_filter_that_leaves_nothing_is_an_error(store: Store) -> None:
    with pytest.raises(SettingsError, match=r"--where corpus=x: nothing in .* meets it"):
        Retriever([store], where=[Condition.parse("corpus=x")])


class TestMerging:
    def test_pairs_of_all_and_each_once(self, store: Store, tmp_path: Path) -> None:
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

    def test_the_others_may_be_deleted_afterwards(self, store: Store, tmp_path: Path) -> None:
        other = made(tmp_path / "other", [("neu", "new")], "other")
        merged = merge_stores(store.path, [other.path])
        shutil.rmtree(other.path)
        assert pairs_in(Store.open(merged.path)) == [*PAIRS, ("neu", "new")]
        assert list(problems_of(Store.open(merged.path))) == []

    def test_each_keeps_its_own_cap(self, store: Store, tmp_path: Path) -> None:
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

    def test_a_cap_goes_with_the_last_of_its_text(self, store: Store, tmp_path: Path) -> None:
        pairs = [(f"satz {n}", f"sentence {n}") for n in range(30)]
        merge_stores(store.path, [made(tmp_path / "other", pairs, "other", cap=4).path])
        assert compact_store(store.path).manifest.downsampling == {
            "cap": None, "dropped": 52, "merged": [{"corpora": ["other"], "cap": 4, "dropped": 52}],
        }  # fmt: skip
        remove_from_store(store.path, corpora=["other"])
        assert compact_store(store.path).manifest.downsampling is None

    def test_one_cap_takes_the_place_of_several(self, store: Store, tmp_path: Path) -> None:
        pairs = [(f"satz {n}", f"sentence {n}") for n in range(30)]
        merge_stores(store.path, [made(tmp_path / "other", pairs, "other", cap=4).path])
        assert compact_store(store.path, cap=2).manifest.downsampling == {"cap": 2, "dropped": 52 + 5 + 2}

    def test_not_with_itself(self, store: Store) -> None:
        with pytest.raises(StoreError, match="with itself"):
            merge_stores(store.path, [store.path])

    def test_not_with_another_model(self, store: Store, tmp_path: Path) -> None:
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


class TestCompacting:
    def test_no_going_back_even_if_it_was_killed_just_after(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remove_from_store(store.path, source_texts=["eins"])
        monkeypatch.setattr("knnmt.versions.clear", lambda _: None)
        after = compact_store(store.path)
        monkeypatch.undo()
        assert [m.version for m in versions_of(after)] == [3]
        with pytest.raises(SettingsError, match="no earlier version 1"):
            roll_back(store.path, 1)
        assert b"eins" not in b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())

    def test_the_name_of_a_removed_corpus_goes_too(self, store: Store) -> None:
        add(store, [("geheim", "secret")], name="client")
        remove_from_store(store.path, corpora=["client"])
        assert [corpus["name"] for corpus in compact_store(store.path).manifest.corpora] == ["memory"]
        assert b"client" not in b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())

    def test_too_few_left_for_the_chosen_clusters(self, tmp_path: Path) -> None:
        store = made(tmp_path / "store", [(f"satz {n}", "x") for n in range(20)], index="IVF16,Flat")
        remove_from_store(store.path, segments=list(range(15)))
        assert compact_store(store.path).manifest.index.factory == "Flat"

    def test_the_same_memory_in_less_space(self, store: Store) -> None:
        add(store, [("fünf", "five")])
        before, _ = remove_from_store(store.path, source_texts=["zwei"])
        after = compact_store(store.path)
        assert pairs_in(after) == [PAIRS[0], PAIRS[2], ("fünf", "five")]
        assert [s.corpus for s in after.all_segments()] == ["memory", "memory", "more"]
        assert after.bytes < before.bytes
        assert (len(after.manifest.parts), len(after.manifest.indexes), after.manifest.removed) == (1, 1, None)
        assert list(problems_of(after)) == []
        assert b"zwei" not in b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())

    def test_keys_and_tokens_stay_with_their_pairs(self, store: Store) -> None:
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

    def test_without_keys(self, tmp_path: Path) -> None:
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

    def test_frequent_tokens_can_be_thinned_out(self, tmp_path: Path) -> None:
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

    def test_an_index_that_was_chosen_stays(self, tmp_path: Path) -> None:
        store = made(tmp_path / "store", [(f"satz {n}", f"sentence {n}") for n in range(100)], index="SQ8")
        assert compact_store(store.path).manifest.index.factory == "SQ8"
        assert compact_store(store.path, index="Flat").manifest.index.factory == "Flat"


class TestVersions:
    def test_each_change_is_a_version(self, store: Store) -> None:
        add(store, [("a", "b")])
        remove_from_store(store.path, segments=[0])
        assert [(m.version, m.change) for m in versions_of(Store.open(store.path))] == [
            (1, "built"), (2, "added 1 segment"), (3, "removed 1 segment"),
        ]  # fmt: skip

    def test_going_back_and_forth(self, store: Store) -> None:
        add(store, [("a", "b")])
        remove_from_store(store.path, segments=[0])
        assert pairs_in(roll_back(store.path, 1)) == PAIRS
        assert pairs_in(roll_back(store.path, 3)) == [*PAIRS[1:], ("a", "b")]
        assert Store.open(store.path).manifest.version == 5
        assert list(problems_of(Store.open(store.path))) == []

    @pytest.mark.parametrize("version", [0, 1, 7])
    def test_a_version_that_is_not_there(self, store: Store, version: int) -> None:
        with pytest.raises(SettingsError, match=f"no earlier version {version}"):
            roll_back(store.path, version)

    def test_old_versions_and_their_files_go(self, store: Store) -> None:
        for number in range(VERSIONS_KEPT + 3):
            add(store, [(f"satz {number}", "x")])
        after = Store.open(store.path)
        assert len(versions_of(after)) == VERSIONS_KEPT
        assert len(list(store.path.glob("index*.faiss"))) <= VERSIONS_KEPT + 1

    def test_a_reader_keeps_its_version(self, store: Store) -> None:
        """Even when another process compacts the store and the files leave the folder."""
        reader = Retriever([store])
        before = reader.search(everywhere(PAIRS), 3)
        remove_from_store(store.path, segments=[0, 1])
        compact_store(store.path)
        after = reader.search(everywhere(PAIRS), 3)
        np.testing.assert_array_equal(before.entries, after.entries)
        assert store.segment(0).source == "eins"

    def test_opened_while_it_is_compacted(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """The manifest was read just before the files that it names went."""
        remove_from_store(store.path, segments=[0])
        whole, calls = Store.check_files, []

        def compact_first(self: Store) -> None:
            if not calls:
                calls.append(1)
                compact_store(store.path)
            whole(self)

        monkeypatch.setattr(Store, "check_files", compact_first)
        assert pairs_in(Store.open(store.path)) == PAIRS[1:]

    def test_one_writer_at_a_time(self, store: Store) -> None:
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

    def test_a_store_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(KnnmtError, match="not a datastore"):
            remove_from_store(tmp_path, segments=[0])
        assert list(tmp_path.iterdir()) == []


def test_trust_scales_the_mass_of_a_store(store: Store, tmp_path: Path) -> None:
    other = made(tmp_path / "other", [("neu", "new")], "other")
    query = np.zeros((1, 8), np.float32)
    even = Retriever([store, other]).search(query, 4)
    assert even.trust is None
    weighted = Retriever([store, other], trust=[1.0, 0.25]).search(query, 4)
    np.testing.assert_array_equal(weighted.entries, even.entries)
    of_other = weighted.entries >= store.entries
    assert weighted.trust is not None
    assert (weighted.trust[of_other] == 0.25).all()
    assert (weighted.trust[~of_other] == 1.0).all()


def test_faiss_agrees_on_ids() -> None:
    """The bitmap's order of bits is what the selector expects."""
    index = faiss.IndexFlatL2(1)
    index.add(np.arange(20, dtype=np.float32)[:, None])
    allowed = np.zeros(20, bool)
    allowed[[3, 9, 17]] = True
    from knnmt.selective import search_allowed

    _, found = search_allowed(index, np.array([[8.0]], np.float32), 3, allowed)
    assert found.tolist() == [[9, 3, 17]]
