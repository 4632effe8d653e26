"""Exact search against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from knnmt.search import exact
from knnmt.search.exact import ExactSearch, Keys, smallest


def cdist_squared(queries: Keys, keys: Keys) -> NDArray[np.float64]:
    return np.stack([((keys.astype(np.float64) - query) ** 2).sum(axis=1) for query in queries])


@pytest.mark.parametrize("queries", [3, exact.MANY + 1])
@pytest.mark.parametrize(("entries", "k"), [(1, 1), (7, 7), (500, 3), (70_000, 5), (131_072, 16), (140_000, 64)])
def test_against_numpy(entries: int, k: int, queries: int) -> None:
    random = np.random.default_rng(entries)
    keys = random.normal(size=(entries, 6)).astype(np.float32)
    asked = random.normal(size=(queries, 6)).astype(np.float32)
    distances, found = ExactSearch(keys).search(asked, k)
    expected = cdist_squared(asked, keys)
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :k], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(expected, found, 1), distances, rtol=1e-4, atol=1e-4)
    assert all(len(set(row)) == k for row in found)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 8), st.integers(1, 400), st.integers(0, 10**6), st.integers(1, 5))
def test_the_smallest_of_each_row(k: int, chunks: int, seed: int, values: int) -> None:
    """Many equal values too."""
    width = chunks * exact.CHUNK
    scores = torch.from_numpy(np.random.default_rng(seed).integers(0, values * 1000, (2, width)).astype(np.float32))
    found, at = smallest(scores, k)
    assert found.tolist() == scores.topk(min(k, width), largest=False).values.tolist()
    assert scores.gather(1, at).tolist() == found.tolist()
    assert all(len(set(row)) == len(row) for row in at.tolist())


def test_a_key_finds_itself() -> None:
    keys = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32) * 5
    distances, found = ExactSearch(keys).search(keys, 1)
    assert found[:, 0].tolist() == list(range(300))
    assert (distances >= 0).all()
    assert distances.max() < 1e-2


@pytest.mark.parametrize("offset", [0, 100, 300, 1000])
def test_keys_far_from_the_origin_are_told_apart(offset: float) -> None:
    random = np.random.default_rng(5)
    keys = (random.normal(size=(20_000, 64)) + offset).astype(np.float32)
    asked = (random.normal(size=(8, 64)) + offset).astype(np.float32)
    _, found = ExactSearch(keys).search(asked, 16)
    expected = np.argsort(cdist_squared(asked, keys), axis=1)[:, :16]
    shared = [len(set(one) & set(other)) for one, other in zip(found.tolist(), expected.tolist(), strict=True)]
    assert sum(shared) >= 0.99 * expected.size
