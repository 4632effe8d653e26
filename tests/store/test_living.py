"""A store that changes: what is added is found, what is removed is not, and nothing else moves."""

from pathlib import Path

import faiss
import numpy as np
import pytest
from living import PAIRS, HashModel, add, corpus_of, everywhere, found_pairs, made, pairs_in

from knnmt import Store, StoreError
from knnmt.errors import CorpusError, SettingsError
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.adding import Conflict, add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.filters import Condition
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of

pytestmark = pytest.mark.usefixtures("hash_keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store", PAIRS)


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
        assert [index.nprobe for index in after.manifest.indexes] == [4, 4]
        assert set(more) <= found_pairs(after, everywhere(more), 1, nprobe=None)

    def test_a_packed_index_is_not_read_to_add_to_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pairs = [(f"satz {n}", f"sentence number {n}") for n in range(300)]
        store = made(tmp_path / "packed", pairs, index="IVF4,PQ4x4fs")
        assert store.manifest.index.trained is not None
        more = [(f"neu {n}", f"new number {n}") for n in range(20)]
        read, read_index = [], faiss.read_index
        monkeypatch.setattr(faiss, "read_index", lambda file, *flags: read.append(file) or read_index(file, *flags))
        after = add(store, more).store
        assert [Path(file).name for file in read] == ["index.trained.faiss"]
        monkeypatch.undo()
        assert [index.entries for index in after.manifest.indexes] == [1200, 80]
        assert list(problems_of(after)) == []
        assert [index.nprobe for index in after.manifest.indexes] == [4, 4]
        assert set(more) <= found_pairs(after, everywhere(more), 1, nprobe=None)

    def test_a_damaged_file_of_what_was_learned_is_found(self, tmp_path: Path) -> None:
        pairs = [(f"satz {n}", f"sentence number {n}") for n in range(300)]
        store = made(tmp_path / "packed", pairs, index="IVF4,PQ4x4fs")
        (store.path / "index.trained.faiss").write_bytes(b"other")
        assert any("index.trained.faiss" in problem for problem in problems_of(store))

    def test_a_store_that_has_outgrown_its_index_says_so(self, store: Store) -> None:
        assert not add(store, [("a", "b")]).compact_suggested
        assert add(store, [(f"satz {n}", f"sentence {n}") for n in range(20)]).compact_suggested


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
            LocalRetriever([after])
        with pytest.raises(StoreError, match="delete the folder"):
            compact_store(store.path)


FACTORIES = ["Flat", "IVF4,Flat", "IVF4,PQ4x4", "OPQ4,IVF4,PQ4x4", "HNSW8", "PQ4x4", "SQ8", "IVF4,PQ4x4fs"]
FACTORIES += ["IVF4_HNSW8,Flat", "IVF4_HNSW8,PQ4x4fs"]


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("few", [0, 10**6])
def test_what_is_filtered_out_is_never_a_neighbour(
    tmp_path: Path, factory: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every kind of index, and for the search without one; random filters by removal and by corpus."""
    monkeypatch.setattr("knnmt.retrieval.local_retriever.FEW", few)
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
    retriever = LocalRetriever([store, other], where=[Condition.parse("corpus=client")], trust=[1.0, 3.0])
    found = retriever.search(everywhere([("neu", "new")]).astype(np.float32), 1)
    assert found.trust is not None
    assert found.trust.tolist() == [[3.0]]
    located = retriever.locate([int(found.entries[0, 0])])[0]
    assert (located.store, located.pair.source) == (str(other.path), "neu")


def test_more_neighbours_than_are_allowed(store: Store) -> None:
    add(store, [("fremd", "foreign")], name="client")
    found = LocalRetriever([Store.open(store.path)], where=[Condition.parse("corpus=client")])
    assert found.entries == 2
    neighbours = found.search(np.zeros((1, 8), np.float32), 10)
    assert (neighbours.entries >= 0).sum() == 2


def test_a_filter_that_leaves_nothing_is_an_error(store: Store) -> None:
    with pytest.raises(SettingsError, match=r"--where corpus=x: nothing in .* meets it"):
        LocalRetriever([store], where=[Condition.parse("corpus=x")])


def test_trust_scales_the_mass_of_a_store(store: Store, tmp_path: Path) -> None:
    other = made(tmp_path / "other", [("neu", "new")], "other")
    query = np.zeros((1, 8), np.float32)
    even = LocalRetriever([store, other]).search(query, 4)
    assert even.trust is None
    weighted = LocalRetriever([store, other], trust=[1.0, 0.25]).search(query, 4)
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
    from knnmt.search.allowed import Allowed
    from knnmt.search.filtered import search_allowed

    chosen = Allowed(20, np.empty(0, np.int64), allowed)
    _, found = search_allowed(index, np.array([[8.0]], np.float32), 3, chosen)
    assert found.tolist() == [[9, 3, 17]]
