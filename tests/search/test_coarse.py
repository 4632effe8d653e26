"""Finding clusters by torch against FAISS doing all of it; filling a packed index against FAISS's own way."""

from typing import Any

import faiss
import numpy as np
import pytest

from knnmt.search.coarse import probing
from knnmt.search.distances import blocks
from knnmt.search.factories import make_index
from knnmt.search.index import filled, train

RANDOM = np.random.default_rng(3)
KEYS = (RANDOM.normal(size=(20, 32))[RANDOM.integers(0, 20, 3000)] * 3 + RANDOM.normal(size=(3000, 32))).astype(
    np.float16
)
QUERIES = KEYS[::40].astype(np.float32) + 0.1


def trained(factory: str) -> Any:
    index = make_index(factory, 32)
    train(index, [KEYS], np.random.default_rng(0), factory)
    return index


@pytest.mark.parametrize(
    "factory",
    ["IVF32,PQ16x4fs", "IVF32,PQ16x4fsr", "IVF32,PQ8x4", "IVF32,Flat", "IVF32,SQ8", "IVF32_HNSW8,PQ8x4fs"],
)
def test_the_same_is_found(factory: str) -> None:
    index = filled(trained(factory), [KEYS[:1000], KEYS[1000:]])
    faiss.extract_index_ivf(index).nprobe = 4
    found = probing(index)
    assert found is not None
    distances, entries = index.search(QUERIES, 8)
    ours, our_entries = found.search(QUERIES, 8)
    assert (entries == our_entries).mean() > 0.99  # ties may fall either way
    np.testing.assert_allclose(ours, distances, rtol=1e-2)


def test_keys_may_be_transformed_first() -> None:
    index = trained("PCA16,IVF32,PQ8x4fs")
    index.add(KEYS.astype(np.float32))
    found = probing(index)
    assert found is not None
    assert (found.search(QUERIES, 8)[1] == index.search(QUERIES, 8)[1]).mean() > 0.99


@pytest.mark.parametrize("factory", ["Flat", "HNSW8", "PQ8x4"])
def test_other_indexes_are_left_to_faiss(factory: str) -> None:
    assert probing(trained(factory)) is None


@pytest.mark.parametrize("factory", ["IVF32,PQ16x4fs", "IVF32,PQ16x4fsr", "IVF32_HNSW8,PQ16x4fs"])
def test_a_packed_index_is_filled_as_faiss_would(factory: str) -> None:
    index = trained(factory)
    ours = filled(index, [KEYS])
    for block in blocks([KEYS]):
        index.add(block)
    assert ours.ntotal == index.ntotal == len(KEYS)
    assert (ours.search(QUERIES, 8)[1] == index.search(QUERIES, 8)[1]).mean() > 0.99
