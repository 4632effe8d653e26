"""Centroids with a graph, as `--index` and earlier versions give: the same in every build, as good as a list."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from living import PAIRS, add, everywhere, found_pairs, made, pairs_in

from knnmt import BuildSettings, Store, Translator, build_store
from knnmt.cli.demo import demo_corpus, read_demo
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.search.clustering import cluster
from knnmt.search.factories import automatic_factory, make_index
from knnmt.search.index import build_index, extend_index, open_index, train
from knnmt.search.internals import GRAPH_CANDIDATES, centroids_of, ivf_of, plain_clusters
from knnmt.store.compacting import compact_store
from knnmt.store.merging import merge_stores
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.translate.settings import TranslateSettings

DIMENSION = 32
GRAPH, LIST = "IVF256_HNSW32,PQ16x4fs", "IVF256,PQ16x4fs"


def clustered(entries: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(200, DIMENSION)) * 2
    return (centres[random.integers(0, 200, entries)] + random.normal(size=(entries, DIMENSION))).astype(np.float16)


KEYS = clustered(6_000, seed=1)
QUERIES = clustered(100, seed=2).astype(np.float32)


def built(file: Path, factory: str = GRAPH) -> Path:
    build_index([KEYS[:2500], KEYS[2500:]], file, factory=factory, on_entries=lambda _: None)
    return file


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("graph") / "index.faiss")


def graph_of(index: Any) -> Any:
    return faiss.downcast_index(ivf_of(index).quantizer).hnsw


def test_its_centroids_are_ours() -> None:
    index = make_index(GRAPH, DIMENSION)
    keys = KEYS.astype(np.float32)
    train(index, [KEYS], np.random.default_rng(0), GRAPH)
    random = np.random.default_rng(0)
    random.choice(len(keys), len(keys), replace=False)  # training draws its sample first: here all keys
    np.testing.assert_array_equal(centroids_of(plain_clusters(index)), cluster(keys, 256, random))


def test_every_key_is_with_its_nearest_centroid(graph: Path) -> None:
    index = faiss.read_index(str(graph))
    _, nearest = faiss.knn(KEYS.astype(np.float32), centroids_of(plain_clusters(index)).copy(), 1)
    sizes = [index.invlists.list_size(number) for number in range(256)]
    assert sizes == np.bincount(nearest[:, 0], minlength=256).tolist()


def test_two_builds_are_the_same_to_the_byte(graph: Path, tmp_path: Path) -> None:
    again = built(tmp_path / "index.faiss")
    assert again.read_bytes() == graph.read_bytes()
    assert (tmp_path / "index.trained.faiss").read_bytes() == graph.with_name("index.trained.faiss").read_bytes()


def test_one_thread_makes_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would link centroids in an order that chance decides, which the bytes of two builds need not show."""
    before, during, add_to_graph = faiss.omp_get_max_threads(), [], faiss.IndexHNSWFlat.add

    def watched(graph: Any, centroids: np.ndarray) -> None:
        during.append(faiss.omp_get_max_threads())
        add_to_graph(graph, centroids)

    monkeypatch.setattr(faiss.IndexHNSWFlat, "add", watched)
    train(make_index("IVF8_HNSW8,SQ8", DIMENSION), [KEYS[:500]], np.random.default_rng(0), "")
    assert (during, faiss.omp_get_max_threads()) == ([1], before)


def test_it_finds_as_much_as_a_list(graph: Path, tmp_path: Path) -> None:
    _, truth = faiss.knn(QUERIES, KEYS.astype(np.float32), 10)
    recalls = []
    for file in (graph, built(tmp_path / "index", LIST)):
        _, found = open_index(file, 16).search(QUERIES, 20)
        recalls.append(np.mean([len({*a} & {*b}) / 10 for a, b in zip(truth, found, strict=True)]))
    assert recalls[1] > 0.6
    assert recalls[0] > recalls[1] - 0.03


def test_more_clusters_than_candidates_can_be_searched(tmp_path: Path) -> None:
    _, truth = faiss.knn(QUERIES, KEYS.astype(np.float32), 10)
    index = open_index(built(tmp_path / "index", "IVF256_HNSW32,Flat"), 256)
    assert (index.search(QUERIES, 10)[1] == truth).mean() > 0.98


def test_how_it_is_searched_does_not_depend_on_the_file(graph: Path, tmp_path: Path) -> None:
    assert GRAPH_CANDIDATES == graph_of(make_index(GRAPH, DIMENSION)).efSearch == 96
    file = tmp_path / "index.faiss"
    for name in ("index.faiss", "index.trained.faiss"):
        index = faiss.read_index(str(graph.with_name(name)))
        assert graph_of(index).efSearch == 96
        graph_of(index).efSearch = 3
        faiss.write_index(index, str(tmp_path / name))
    assert graph_of(open_index(file, 16)).efSearch == 96
    extend_index(file, [KEYS[:500]], tmp_path / "other", nprobe=None)
    assert graph_of(faiss.read_index(str(tmp_path / "other"))).efSearch == 96


@pytest.fixture
def early_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of a few hundred entries are indexed as earlier versions indexed those of many millions."""

    def with_graph(entries: int, dimension: int, memory: int | None = None) -> str:
        return automatic_factory(entries, dimension, memory).replace(",", "_HNSW32,")

    monkeypatch.setattr("knnmt.search.factories.EXACT_ENTRIES", 200)
    monkeypatch.setattr("knnmt.search.factories.UNCODED_ENTRIES", 200)
    monkeypatch.setattr("knnmt.search.index.automatic_factory", with_graph)


@pytest.mark.usefixtures("hash_keys", "early_graphs")
def test_the_life_of_a_store(tmp_path: Path) -> None:
    pairs = [(f"satz {n}", f"sentence number {n}") for n in range(300)]
    more = [(f"neu {n}", f"new number {n}") for n in range(80)]
    store = made(tmp_path / "store", pairs)
    assert store.manifest.index.factory == "IVF256_HNSW32,PQ4x4fs"
    after = add(store, more).store  # type: ignore[attr-defined]
    assert [index.factory for index in after.manifest.indexes] == ["IVF256_HNSW32,PQ4x4fs", "clusters of index.faiss"]
    after, _ = remove_from_store(store.path, segments=list(range(0, 300, 2)))
    left = [*pairs[1::2], *more]
    assert found_pairs(after, everywhere(pairs), 8, nprobe=64) <= set(left)
    merge_stores(store.path, [made(tmp_path / "other", PAIRS, "other").path])
    assert list(problems_of(Store.open(store.path))) == []
    after = compact_store(store.path)
    assert [index.factory for index in after.manifest.indexes] == ["IVF128_HNSW32,PQ4x4fs"]
    assert pairs_in(after) == [*left, *PAIRS]
    assert list(problems_of(after)) == []
    assert len(found_pairs(after, everywhere(left), 4, nprobe=64) & set(left)) > 0.95 * len(left)


@pytest.mark.usefixtures("early_graphs")
def test_it_translates_as_exact_search_does(embedded: TranslationModel, tmp_path: Path) -> None:
    store = build_store(tmp_path / "store", embedded, [demo_corpus("memory")], BuildSettings(limit=60))
    assert store.manifest.index.factory == "IVF256_HNSW32,PQ128x4fs"
    remove_from_store(store.path, segments=[59])
    sources = [pair.source for pair in read_demo("memory")[:4]]
    translations = []
    for index in (None, "Flat"):
        retriever = LocalRetriever([compact_store(store.path, index=index)], nprobe=64)
        translations.append(Translator(embedded, retriever, TranslateSettings(k=4)).translate(sources))
    assert translations[0] == translations[1]
