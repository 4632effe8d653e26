"""Very many centroids: only those of the nearest groups are compared, and nearly always the nearest is found."""

import logging
from pathlib import Path

import numpy as np
import pytest

import knnmt.search.centroids
import knnmt.search.groups
from knnmt.search.centroids import Centroids
from knnmt.search.clustering import cluster
from knnmt.search.coarse import probing
from knnmt.search.groups import middles_of
from knnmt.search.index import build_index, open_index

DIMENSION = 128
CLUSTERS = 2048


def keys_of(count: int, seed: int) -> np.ndarray:
    """Heaps within heaps, as decoder states are."""
    random = np.random.default_rng(1)
    large = 2 * random.normal(size=(64, DIMENSION))
    small = large[random.integers(0, 64, 1024)] + random.normal(size=(1024, DIMENSION))
    random = np.random.default_rng(seed)
    keys = small[random.integers(0, 1024, count)] + 0.5 * random.normal(size=(count, DIMENSION))
    return keys.astype(np.float32)


@pytest.fixture(autouse=True)
def early_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knnmt.search.centroids, "MANY", 256)
    monkeypatch.setattr(knnmt.search.centroids, "GROUPED_FROM", 1024)
    monkeypatch.setattr(knnmt.search.groups, "MEMBERS", 32)


@pytest.fixture(scope="module")
def centroids() -> np.ndarray:
    return cluster(keys_of(20 * CLUSTERS, 2), CLUSTERS, np.random.default_rng(0))


def test_keys_go_where_comparing_all_would_put_them(centroids: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, owners = keys_of(4000, 3), {}
    for plain in ("", "groups", "centroids"):
        monkeypatch.setenv("KNNMT_PLAIN", plain)
        among = Centroids(centroids)
        assert (among.coded is not None, among.in_groups) == (plain != "centroids", plain == "")
        owners[plain] = among.owners(keys)
    assert (owners[""] == owners["centroids"]).mean() > 0.95
    assert (owners[""] == owners["groups"]).mean() > 0.95


def test_the_nearest_clusters_of_queries_are_found(centroids: np.ndarray) -> None:
    """Nearest first, with exact distances, whatever is asked beside them."""
    among, queries = Centroids(centroids), keys_of(200, 4)
    distances, numbers = among.nearest(queries, 8)
    true_distances, true = among.compared(queries, 8)
    assert np.mean([len({*a} & {*b}) / 8 for a, b in zip(numbers.tolist(), true.tolist(), strict=True)]) > 0.95
    same = numbers == true
    np.testing.assert_allclose(distances[same], true_distances[same], rtol=1e-3)
    assert (np.diff(distances) >= 0).all()
    for row in range(5):
        np.testing.assert_array_equal(among.nearest(queries[row : row + 1], 8)[1][0], numbers[row])


def test_so_many_may_be_wanted_that_groups_are_too_few(centroids: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all centroids are compared, and none is missing."""
    monkeypatch.setattr(knnmt.search.centroids, "SEARCHED_FOR_A_QUERY", 1)
    monkeypatch.setattr("knnmt.search.centroids.max", lambda *_: 1, raising=False)
    among = Centroids(centroids)
    distances, numbers = among.nearest(keys_of(20, 5), 200)
    assert (numbers >= 0).all()
    assert np.isfinite(distances).all()


def test_groups_do_not_depend_on_the_order_of_centroids(centroids: np.ndarray) -> None:
    shuffled = np.random.default_rng(0).permutation(centroids)
    assert Centroids(shuffled).in_groups
    assert middles_of(shuffled, 60).shape == (60, DIMENSION)


def test_groups_that_miss_too_much_are_not_used(
    centroids: np.ndarray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(knnmt.search.centroids, "SEARCHED_FOR_A_KEY", 1)
    with caplog.at_level(logging.DEBUG):
        among = Centroids(np.random.default_rng(0).normal(size=centroids.shape).astype(np.float32))
    assert not among.in_groups
    assert "groups: not taken" in caplog.text


def test_two_workers_put_a_key_into_the_same_cluster(centroids: np.ndarray) -> None:
    keys = keys_of(3000, 6)
    np.testing.assert_array_equal(Centroids(centroids.copy()).owners(keys), Centroids(centroids).owners(keys))


@pytest.mark.parametrize("codes", ["PQ64x4fs", "RaBitQ"])
def test_a_store_with_very_many_clusters(codes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searched by groups, it finds what it finds when all centroids are compared."""
    keys, queries, found = keys_of(30_000, 7).astype(np.float16), keys_of(100, 8), []
    file = tmp_path / "index.faiss"
    build_index([keys[:9000], keys[9000:]], file, factory=f"IVF1024,{codes}", on_entries=lambda _: None)
    for plain in ("", "centroids"):
        monkeypatch.setenv("KNNMT_PLAIN", plain)
        searching = probing(open_index(file, 16))
        assert searching is not None
        assert searching.centroids is not None
        assert searching.centroids.in_groups == (plain == "")
        found.append(searching.search(queries, 8)[1].tolist())
    assert np.mean([len({*a} & {*b}) / 8 for a, b in zip(*found, strict=True)]) > 0.95
