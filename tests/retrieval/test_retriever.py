"""Neighbours from one store or several, against numpy over all keys."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from retrievers import ArrayRetriever

from knnmt import BuildSettings, SettingsError, Store, StoreError, build_store
from knnmt.cli.demo import demo_corpus
from knnmt.measure.subsets import Nesting, make_subset
from knnmt.mixing.neighbours import Neighbours
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever, merge_neighbours
from knnmt.retrieval.retriever import Retriever
from knnmt.retrieval.searchers import looked_up
from knnmt.store.filters import Condition


def keys_of(store: Store) -> np.ndarray:
    return store.gather("keys", np.arange(store.entries)).astype(np.float32)


def brute_force(queries: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
    distances = ((queries[:, None].astype(np.float64) - keys[None]) ** 2).sum(axis=2)
    return np.sort(distances, axis=1)[:, :k]


def queries_near(store: Store, count: int = 25) -> np.ndarray:
    random = np.random.default_rng(3)
    near = keys_of(store)[random.choice(store.entries, count)]
    return (near + random.normal(size=near.shape) * 0.3).astype(np.float32)


@pytest.mark.parametrize("k", [1, 5, 64])
def test_one_store(store: Store, k: int) -> None:
    queries = queries_near(store)
    found = LocalRetriever([store]).search(queries, k)
    np.testing.assert_allclose(found.distances, brute_force(queries, keys_of(store), k), rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(found.tokens, store.values[found.entries])


def part_of(store: Store, folder: Path) -> Retriever:
    entries = Nesting(store).entries_of(0.5)
    return make_subset(store, entries, folder, lambda _: None).retriever()


def array_of(store: Store) -> Retriever:
    return ArrayRetriever(keys_of(store), store.values.astype(np.int64))


@pytest.fixture(scope="module", params=["one store", "two stores", "filtered", "part", "array"])
def retriever(
    request: pytest.FixtureRequest, store: Store, other_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Retriever:
    """Every implementation of the seam."""
    kinds: dict[str, Callable[[], Retriever]] = {
        "one store": lambda: LocalRetriever([store]),
        "two stores": lambda: LocalRetriever([store, other_store]),
        "filtered": lambda: LocalRetriever([store], where=[Condition.parse("corpus=memory")]),
        "part": lambda: part_of(store, tmp_path_factory.mktemp("part")),
        "array": lambda: array_of(store),
    }
    return kinds[request.param]()


@pytest.mark.parametrize("k", [1, 16])
def test_every_retriever_keeps_the_promise_of_the_seam(retriever: Retriever, store: Store, k: int) -> None:
    queries = queries_near(store)
    found = retriever.search(queries, k)
    assert found.distances.shape == found.entries.shape == found.tokens.shape == (len(queries), k)
    assert found.distances.dtype == np.float32
    assert (np.diff(found.distances, axis=1) >= 0).all()
    assert (found.entries >= 0).all()
    assert all(len(set(row)) == k for row in found.entries.tolist())
    assert retriever.entries > 0
    assert retriever.fingerprint
    assert {"store", "index"} <= set(retriever.signature)
    alone = retriever.search(queries[:1], k)  # a row's neighbours do not depend on the rows beside it
    np.testing.assert_array_equal(alone.entries, found.entries[:1])


def test_every_retriever_locates_what_it_found(retriever: Retriever, store: Store) -> None:
    found = retriever.search(queries_near(store), 8)
    entries = found.entries.ravel().tolist()
    located = retriever.locate(entries)
    assert [one.token for one in located] == found.tokens.ravel().tolist()
    assert all(one.pair.source and one.position >= 0 and one.store for one in located)
    assert retriever.locate(entries[::-1]) == located[::-1]
    assert retriever.locate([]) == []


def test_several_stores_are_searched_as_one(store: Store, other_store: Store) -> None:
    queries = np.concatenate([queries_near(store), queries_near(other_store)])
    retriever = LocalRetriever([store, other_store])
    found = retriever.search(queries, 16)
    joint = np.concatenate([keys_of(store), keys_of(other_store)])
    values = np.concatenate([store.values, other_store.values])
    np.testing.assert_allclose(found.distances, brute_force(queries, joint, 16), rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(found.tokens, values[found.entries])
    located = retriever.locate(found.entries.ravel().tolist())
    assert {one.store for one in located} == {str(store.path), str(other_store.path)}


def test_locate_knows_whose_entry_it_is(store: Store, other_store: Store) -> None:
    retriever = LocalRetriever([store, other_store])
    last, first = retriever.locate([store.entries - 1, store.entries])
    assert (last.store, last.pair) == (str(store.path), store.segment(store.manifest.segments - 1))
    assert (first.store, first.pair, first.position) == (str(other_store.path), other_store.segment(0), 0)
    assert retriever.entries == store.entries + other_store.entries


@pytest.fixture(scope="module")
def coded_store(embedded: TranslationModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store whose index knows codes only, and searches few clusters."""
    settings = BuildSettings(limit=80, part_entries=400, index="IVF16,PQ32")
    return build_store(tmp_path_factory.mktemp("coded") / "store", embedded, [demo_corpus("memory")], settings)


def test_distances_of_a_coded_index_are_computed_anew(coded_store: Store) -> None:
    queries = queries_near(coded_store)
    found = LocalRetriever([coded_store], nprobe=2).search(queries, 8)
    keys = keys_of(coded_store)[found.entries]
    exact = ((keys - queries[:, None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.distances, exact, rtol=1e-4, atol=1e-3)
    assert (np.diff(found.distances, axis=1) >= 0).all()


def test_entries_that_were_not_found_have_no_weight(coded_store: Store) -> None:
    found = LocalRetriever([coded_store], nprobe=1).search(queries_near(coded_store), 600)
    missing = found.entries < 0
    assert missing.any()
    assert np.isinf(found.distances[missing]).all()
    assert (found.tokens[missing] == 0).all()
    assert np.isfinite(found.distances[~missing]).all()


def test_nprobe_is_taken(coded_store: Store) -> None:
    assert LocalRetriever([coded_store]).searchers[0].nprobe == 16
    assert LocalRetriever([coded_store], nprobe=3).searchers[0].nprobe == 3
    with pytest.raises(SettingsError, match="--nprobe 0"):
        LocalRetriever([coded_store], nprobe=0)


def test_merge_keeps_the_nearest() -> None:
    left = Neighbours(np.array([[1.0, 4.0]], np.float32), np.array([[10, 11]]), np.array([[7, 8]]))
    right = Neighbours(np.array([[2.0, np.inf]], np.float32), np.array([[20, -1]]), np.array([[9, 0]]))
    merged = merge_neighbours([left, right], 3)
    assert merged.distances.tolist() == [[1.0, 2.0, 4.0]]
    assert merged.entries.tolist() == [[10, 20, 11]]
    assert merged.tokens.tolist() == [[7, 9, 8]]


def test_stores_of_two_models_do_not_mix(store: Store, tmp_path: Path) -> None:
    import json
    import shutil

    other = shutil.copytree(store.path, tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text())
    model = manifest["model"]
    for change, complaint in (
        ({"fingerprint": "another"}, "made with another model"),
        ({"target_lang": "fr"}, "into fr"),
    ):
        (other / "manifest.json").write_text(json.dumps(manifest | {"model": model | change}))
        with pytest.raises(StoreError, match=complaint):
            LocalRetriever([store, Store.open(other)])


@pytest.mark.parametrize(
    ("k", "wider", "many"),
    [(1, 1, 2), (8, 1, 16), (16, 1, 32), (24, 1, 40), (32, 1, 48), (64, 1, 96), (16, 4, 64), (64, 4, 256)],
)
def test_candidates_that_are_looked_up(k: int, wider: int, many: int) -> None:
    assert looked_up(k, wider) == many
