"""The nearest of many centroids: by their codes nearly always, exactly where codes are of no use."""

import numpy as np
import pytest

import knnmt.search.centroids
from knnmt.search.centroids import Centroids
from knnmt.search.coarse import probing
from knnmt.search.factories import make_index
from knnmt.search.index import filled, train
from knnmt.search.library import faiss


def many_centroids(dimension: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """1,000 of them in heaps, and 40 queries near some of them."""
    random = np.random.default_rng(0)
    heaps = np.repeat(random.normal(size=(50, dimension)), 20, axis=0)
    centroids = (heaps + 0.5 * random.normal(size=heaps.shape)).astype(np.float32)
    queries = centroids[::25] + 0.5 * random.normal(size=(40, dimension)).astype(np.float32)
    return centroids, queries.astype(np.float32)


def test_of_many_centroids_the_nearest_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their codes nearly all of them are candidates; distances are exact, nearest first, the same each time."""
    monkeypatch.setattr(knnmt.search.centroids, "MANY", 256)
    centroids, queries = many_centroids()
    among = Centroids(centroids)
    assert among.coded is not None
    distances, numbers = among.nearest(queries, 8)
    every = ((queries[:, None] - centroids[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances, np.take_along_axis(every, numbers, 1), rtol=1e-3, atol=1e-4)
    assert (np.diff(distances) >= 0).all()
    truth = every.argsort(axis=1)[:, :8]
    assert np.mean([len(set(a) & set(b)) / 8 for a, b in zip(numbers, truth, strict=True)]) > 0.95
    np.testing.assert_array_equal(Centroids(centroids).nearest(queries, 8)[1], numbers)
    for row in range(len(queries)):  # whatever is asked beside it
        np.testing.assert_array_equal(among.nearest(queries[row : row + 1], 8)[1][0], numbers[row])


def test_each_of_many_centroids_is_nearest_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """In more blocks than one; and so it is where the dimension leaves no sensible codes."""
    monkeypatch.setattr(knnmt.search.centroids, "MANY", 256)
    monkeypatch.setattr(knnmt.search.centroids, "CODED_AT_ONCE", 300)
    for dimension in (128, 127, 10):
        centroids, _ = many_centroids(dimension)
        assert (Centroids(centroids).coded is None) == (dimension != 128)
        assert (Centroids(centroids).owners(centroids) == np.arange(1000)).mean() > 0.99


def test_all_of_many_centroids_can_be_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knnmt.search.centroids, "MANY", 256)
    centroids, queries = many_centroids()
    distances, numbers = Centroids(centroids).nearest(queries, 1000)
    assert np.sort(numbers).tolist() == [list(range(1000))] * len(queries)
    assert (np.diff(distances) >= 0).all()


def test_no_keys_have_no_owners() -> None:
    centroids, _ = many_centroids()
    assert Centroids(centroids).owners(centroids[:0]).shape == (0,)


@pytest.mark.parametrize(("scale", "coded"), [(1, True), (100, False)])
def test_codes_that_tell_too_little_apart_are_not_used(
    scale: float, coded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where two dimensions outweigh all others: then every centroid is looked at."""
    monkeypatch.setattr(knnmt.search.centroids, "MANY", 256)
    centroids, queries = many_centroids()
    centroids[:, :2] *= scale
    queries[:, :2] *= scale
    among = Centroids(centroids)
    assert (among.coded is not None) == coded
    truth = ((queries[:, None].astype(np.float64) - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (among.owners(queries) == truth).mean() > 0.9


@pytest.mark.parametrize("factory", ["IVF256,PQ64x4fs", "IVF256,Flat", "PCA128,IVF256,PQ64x4fs"])
def test_an_index_with_many_clusters_is_filled_and_searched_by_codes(
    factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knnmt.search.centroids, "MANY", 256)
    random = np.random.default_rng(3)
    heaps = random.normal(size=(100, 128))[random.integers(0, 100, 6000)]
    keys = (heaps + 0.4 * random.normal(size=heaps.shape)).astype(np.float32)
    index = make_index(factory, 128)
    train(index, [keys], np.random.default_rng(0), factory)
    index = filled(index, [keys[:2500], keys[2500:]])
    faiss.extract_index_ivf(index).nprobe = 8
    found = probing(index)
    assert found is not None
    assert found.centroids.coded is not None
    queries = keys[::60] + 0.1
    by_faiss, ours = index.search(queries, 8)[1], found.search(queries, 8)[1]
    assert np.mean([len({*a} & {*b}) / 8 for a, b in zip(by_faiss, ours, strict=True)]) > 0.95
