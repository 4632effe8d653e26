"""k-means against what it promises, and the index that is made with it against FAISS alone."""

import faiss
import numpy as np
import pytest

import knnmt.search.clustering
from knnmt.search.clustering import assign, cluster, shared_out
from knnmt.search.factories import make_index
from knnmt.search.index import add_keys, clusters_of, train
from knnmt.search.internals import plain_clusters, set_nprobe


def blobs(count: int, each: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    middles = random.normal(size=(count, 16)) * 20
    return (np.repeat(middles, each, axis=0) + random.normal(size=(count * each, 16))).astype(np.float32)


def test_every_key_goes_to_the_nearest_centroid() -> None:
    keys, centroids = blobs(5, 100), blobs(7, 1, seed=1)
    expected = ((keys[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert assign(keys, centroids).tolist() == expected.tolist()


def test_clusters_that_lie_apart_are_found() -> None:
    """Every key is near its centroid, as it can only be if each heap has one."""
    keys = blobs(8, 200)
    centroids = cluster(keys, 32, np.random.default_rng(0))
    distances = ((keys - centroids[assign(keys, centroids)]) ** 2).sum(axis=1)
    assert distances.mean() < 40


def test_no_cluster_stays_empty_where_keys_repeat() -> None:
    keys = np.repeat(blobs(4, 1), 100, axis=0)
    centroids = cluster(keys, 4, np.random.default_rng(0))
    assert np.isfinite(centroids).all()
    assert centroids.shape == (4, 16)


def test_many_clusters_are_nearly_as_tight_when_found_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = blobs(64, 50)
    spread = {}
    for many in (64, 65):  # in groups, and all at once
        monkeypatch.setattr(knnmt.search.clustering, "MANY", many)
        centroids = cluster(keys, 64, np.random.default_rng(0))
        assert centroids.shape == (64, 16)
        spread[many] = ((keys - centroids[assign(keys, centroids)]) ** 2).sum(axis=1).mean()
    assert spread[64] < 1.25 * spread[65]


@pytest.mark.parametrize(
    ("total", "sizes", "shares"),
    [
        (4, [10, 10, 10, 10], [1, 1, 1, 1]),
        (8, [30, 10], [6, 2]),
        (5, [1000, 1, 1], [3, 1, 1]),
        (3, [3], [3]),
    ],
)
def test_clusters_are_shared_out_by_size(total: int, sizes: list[int], shares: list[int]) -> None:
    assert shared_out(total, sizes) == shares


@pytest.mark.parametrize(
    "factory",
    ["IVF16,Flat", "IVF16,PQ8x4", "IVF16,SQ8", "IVF16,PQ8x4fs", "IVF16_HNSW8,Flat", "IVF16_HNSW8,PQ8x4fs"],
)
def test_an_index_is_as_good_as_one_that_faiss_trained(factory: str) -> None:
    keys = blobs(40, 50)
    queries = keys[::7] + 0.1
    ours, theirs = make_index(factory, 16), make_index(factory, 16)
    assert plain_clusters(ours) is not None
    train(ours, [keys], np.random.default_rng(0), factory)
    among = clusters_of(ours)
    add_keys(ours, keys, None if among is None else among.owners(keys))
    theirs.train(keys)
    theirs.add(keys)
    exact = faiss.IndexFlatL2(16)
    exact.add(keys)
    _, truth = exact.search(queries, 10)
    recalls = []
    for index in (ours, theirs):
        set_nprobe(index, 8)
        _, found = index.search(queries, 10)
        recalls.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, truth, strict=True)]))
    assert ours.ntotal == len(keys)
    assert recalls[0] > recalls[1] - 0.05
