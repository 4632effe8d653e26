"""Choosing, training, searching and judging an index, against numpy."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from knnmt import SettingsError, StoreError
from knnmt.search.distances import exact_distances, squared_distances
from knnmt.search.factories import automatic_factory, automatic_nprobe, code_pieces, make_index, was_automatic
from knnmt.search.index import build_index, measure_recall, open_index, train


@pytest.mark.parametrize(
    ("entries", "clusters"),
    [(1, 16), (4_194_303, 16), (4_194_304, 12), (8_388_607, 12), (8_388_608, 8), (10**9, 8)],
)
def test_in_a_large_store_fewer_clusters_are_searched(entries: int, clusters: int) -> None:
    assert automatic_nprobe(entries) == clusters


@pytest.mark.parametrize(
    ("entries", "dimension", "factory"),
    [
        (1, 256, "Flat"),
        (10_000, 512, "Flat"),
        (10_001, 512, "IVF128,Flat"),
        (65_536, 256, "IVF512,Flat"),
        (100_000, 512, "IVF512,Flat"),
        (100_001, 512, "IVF2048,PQ128x4fs"),
        (262_143, 256, "IVF2048,PQ128x4fs"),
        (262_144, 256, "IVF4096,PQ128x4fs"),
        (1_500_000, 512, "IVF8192,PQ128x4fs"),
        (10_000_000, 1024, "IVF16384,PQ128x4fs"),
        (100_000_000, 1024, "IVF65536,PQ128x4fs"),
        (200_000, 48, "IVF2048,PQ24x4fs"),
        (500_000, 48, "IVF4096,PQ24x4fs"),
        (200_000, 100, "IVF2048,PQ50x4fs"),
    ],
)
def test_automatic_choice(entries: int, dimension: int, factory: str) -> None:
    assert automatic_factory(entries, dimension, 16 << 30) == factory


@pytest.mark.parametrize(
    ("factory", "entries", "dimension", "automatic"),
    [
        ("Flat", 100_000, 256, True),
        ("Flat", 100_001, 256, False),  # nobody but a person looks at every key of so many
        ("IVF512,Flat", 73_000, 512, True),
        ("IVF256,Flat", 73_000, 512, False),
        ("IVF4,Flat", 300, 64, False),
        ("IVF2048,PQ128x4fs", 6_500_000, 256, True),
        ("IVF16384,PQ128x4fs", 6_500_000, 512, True),
        ("IVF16384_HNSW32,PQ128x4fs", 10, 512, True),
        ("IVF2048,PQ24x4fs", 200_000, 48, True),
        ("IVF2048,PQ24x4fs", 200_000, 256, False),
        ("IVF2000,PQ128x4fs", 200_000, 256, False),
        ("IVF0,PQ128x4fs", 200_000, 256, False),
        ("IVF4096_HNSW16,PQ128x4fs", 500_000, 256, False),
        ("IVF4096,PQ128x4fsr", 500_000, 256, False),
        ("IVF4096,PQ128x4", 500_000, 256, False),
        ("OPQ128,IVF4096,PQ128x4fs", 500_000, 256, False),
        ("HNSW32", 500_000, 256, False),
    ],
)
def test_which_indexes_were_chosen_by_size(factory: str, entries: int, dimension: int, automatic: bool) -> None:
    assert was_automatic(factory, entries, dimension) is automatic


@pytest.mark.parametrize(
    ("dimension", "size"), [(256, 128), (1024, 128), (48, 24), (768, 128), (100, 50), (67, 1), (1, 1)]
)
def test_pieces_of_a_code(dimension: int, size: int) -> None:
    assert code_pieces(dimension) == size


def clustered(entries: int, dimension: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(40, dimension)) * 3
    keys = centres[random.integers(0, 40, entries)] + random.normal(size=(entries, dimension))
    return keys.astype(np.float16)


def in_parts(keys: np.ndarray, *cuts: int) -> list[np.ndarray]:
    return np.split(keys, cuts)


def nothing(_: int) -> None:
    pass


def test_exact_index_is_exact_and_numbers_entries_through_all_parts(tmp_path: Path) -> None:
    keys = clustered(700, 32)
    built = build_index(in_parts(keys, 100, 450), tmp_path / "index", on_entries=nothing)
    assert (built.factory, built.nprobe, built.recall["recall"]) == ("Flat", None, 1.0)
    queries = clustered(20, 32, seed=5).astype(np.float32)
    distances, entries = open_index(tmp_path / "index", None).search(queries, 5)
    expected = ((queries[:, None] - keys.astype(np.float32)[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(entries, np.argsort(expected, axis=1)[:, :5])
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :5], rtol=1e-3)


@pytest.mark.parametrize(
    "factory", ["IVF16,PQ8", "IVF16,SQfp16", "PCA16,IVF16,PQ8", "PQ8", "HNSW16", "IVF32_HNSW8,Flat"]
)
def test_any_factory_string_reaches_its_measured_recall(tmp_path: Path, factory: str) -> None:
    keys = in_parts(clustered(3000, 32), 1000)
    built = build_index(keys, tmp_path / "index", factory=factory, on_entries=nothing)
    assert built.factory == factory
    assert (built.nprobe is not None) == ("IVF" in factory)
    assert 0.3 < built.recall["recall"] <= 1.0
    index = open_index(tmp_path / "index", built.nprobe)
    again = measure_recall(index, keys, np.random.default_rng(7))
    assert abs(again["recall"] - built.recall["recall"]) < 0.1


def test_clusters_that_faiss_trains_see_the_whole_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its codes need few keys, its clusters do not."""
    monkeypatch.setattr("knnmt.search.index.CODE_TRAINING_KEYS", 20)
    keys = [np.random.default_rng(1).standard_normal((2000, 16)).astype(np.float16)]
    built = build_index(keys, tmp_path / "index", factory="IVF32(SQ8),PQ8x4fs", on_entries=nothing)
    assert built.factory == "IVF32(SQ8),PQ8x4fs"


def test_more_clusters_searched_find_more(tmp_path: Path) -> None:
    keys = in_parts(np.random.default_rng(0).normal(size=(4000, 16)).astype(np.float16), 2000)
    build_index(keys, tmp_path / "index", factory="IVF64,Flat", on_entries=nothing)
    recalls = [
        measure_recall(open_index(tmp_path / "index", nprobe), keys, np.random.default_rng(1))["recall"]
        for nprobe in (1, 8, 64)
    ]
    assert recalls[0] < recalls[1] < recalls[2] == 1.0


def test_recall_counts_what_is_missing(tmp_path: Path) -> None:
    """An index over other keys than the parts hold has almost no recall: the measure can fail."""
    keys, other = [clustered(2000, 16)], [clustered(2000, 16, seed=9)]
    build_index(other, tmp_path / "index", factory="SQ8", on_entries=nothing)
    assert measure_recall(open_index(tmp_path / "index", None), keys, np.random.default_rng(0))["recall"] < 0.5


def test_training_sample_comes_from_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A length-sorted store must not bias the clusters: every part gives its share."""
    seen: list[NDArray[np.float32]] = []

    class Untrained:
        is_trained = False

        def train(self, sample: NDArray[np.float32]) -> None:
            seen.append(sample)

    monkeypatch.setattr("knnmt.search.index.ivf_of", lambda _: None)
    monkeypatch.setattr("knnmt.search.index.TRAINING_KEYS_PER_CLUSTER", 2)
    keys = [np.full((1000, 4), part, np.float16) for part in range(5)]
    train(Untrained(), keys, np.random.default_rng(0), "PQ2")
    parts, counts = np.unique(seen[0][:, 0], return_counts=True)
    assert parts.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert counts.sum() == 2048
    assert counts.min() > 300


def test_distances_to_keys_that_are_not_there_are_refused() -> None:
    queries, keys = np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32)
    for places in (np.array([[0], [3]]), np.array([[0]])):
        with pytest.raises(ValueError, match="past the end"):
            squared_distances(queries, keys, places)


def test_exact_distances_over_parts() -> None:
    keys = clustered(500, 8)
    queries = clustered(10, 8, seed=3).astype(np.float32)
    expected = np.sort(((queries[:, None] - keys.astype(np.float32)[None]) ** 2).sum(axis=2), axis=1)[:, :7]
    np.testing.assert_allclose(exact_distances(queries, in_parts(keys, 3, 200), 7), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("factory", ["Nonsense", "IVF16,PQ7", "IVF5000,Flat"])
def test_impossible_factories_name_the_flag(tmp_path: Path, factory: str) -> None:
    with pytest.raises(SettingsError, match=f"--index {factory}"):
        build_index([clustered(300, 32)], tmp_path / "index", factory=factory, on_entries=nothing)


def test_an_impossible_index_is_told_without_where_in_faiss_it_failed() -> None:
    told = "--index IVF9_HNSWx: not possible for keys of dimension 8 (could not parse index string IVF9_HNSWx)"
    with pytest.raises(SettingsError, match=f"^{re.escape(told)}$"):
        make_index("IVF9_HNSWx", 8)


def test_a_broken_index_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"not an index")
    with pytest.raises(StoreError, match=r"index: damaged \(Index type"):
        open_index(tmp_path / "index", None)


def test_tiny_stores_have_a_recall_too(tmp_path: Path) -> None:
    assert build_index([clustered(1, 8)], tmp_path / "index", on_entries=nothing).recall["recall"] == 1.0
