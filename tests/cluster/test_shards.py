"""Shards together find what local search finds, bit for bit. No Ray is needed for that."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from near import queries_near, same

from knnmt import BuildSettings, ClusterError, Corpus, SettingsError, Store, StoreError, build_store
from knnmt.cli.demo import read_demo
from knnmt.cluster.lines import LineAddress, Switchboard
from knnmt.cluster.shard import Shard, ShardContents, ShardNumber
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.search.nearest import by_distance, nearest_of
from knnmt.store.adding import add_to_store
from knnmt.store.filters import Condition
from knnmt.store.removing import remove_from_store

pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[cluster]'")

from knnmt.cluster import sharded_retriever as sharded


class Here:
    """Shards in this process. The first search asks them, all others go over lines."""

    patience = 30.0

    def __init__(self, contents: ShardContents, count: int, **_: Any) -> None:
        self.count = count
        self.shards = [Shard(contents, ShardNumber(number, count)) for number in range(count)]

    def entries(self) -> int:
        return sum(shard.entries for shard in self.shards)

    def search_some(self, request: Any, numbers: Sequence[int], **_: Any) -> Any:
        return {number: self.answer(number, request) for number in numbers}

    def lines(self, numbers: Sequence[int]) -> dict[int, LineAddress]:
        return {number: Switchboard("127.0.0.1", partial(self.answer, number)).address for number in numbers}

    def answer(self, number: int, request: Any) -> Any:
        return self.shards[number].search(request.queries, request.k, request.assigned)

    def name(self, number: int) -> str:
        return f"shard {number + 1}"


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "Shards", Here)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Text in which sentences come again, so that many keys are equal."""
    file = tmp_path_factory.mktemp("corpus") / "again.tsv"
    pairs = read_demo("memory")[:50]
    lines = [f"{pair.source}\t{pair.target}\n" for pair in [*pairs, *pairs[:3] * 25, *pairs[10:20]]]
    file.write_text("".join(lines), encoding="utf-8")
    return Corpus(file)


FACTORIES = [
    "Flat",
    "IVF16,Flat",
    "IVF16,PQ32x4fs",
    "IVF16,PQ16",
    "IVF8,SQ8",
    "IVF16,RaBitQ",
    "PCA64,IVF16,PQ16x4fs",
    "IVF16_HNSW8,PQ32x4fs",
    "SQ8",
]


@pytest.fixture(scope="module", params=FACTORIES)
def repeating(
    request: pytest.FixtureRequest, embedded: TranslationModel, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Store:
    settings = BuildSettings(part_entries=700, index=request.param)
    return build_store(tmp_path_factory.mktemp("stores") / "store", embedded, [corpus], settings)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_neighbours_are_those_of_local_search(repeating: Store, shards: int) -> None:
    queries = queries_near(repeating, 100)
    local, spread = LocalRetriever([repeating]), sharded.ShardedRetriever([repeating], shards=shards)
    for k in (1, 8, 64):
        same(spread.search(queries, k), local.search(queries, k))
    same(spread.search(queries[:1], 8), local.search(queries[:1], 8))


@pytest.mark.parametrize("nprobe", [1, 3])
def test_few_clusters_and_more_than_they_hold(repeating: Store, nprobe: int) -> None:
    queries = queries_near(repeating, 40)
    local = LocalRetriever([repeating], nprobe=nprobe)
    spread = sharded.ShardedRetriever([repeating], nprobe=nprobe, shards=2)
    same(spread.search(queries, 900), local.search(queries, 900))


def test_a_store_that_has_lived(embedded: TranslationModel, repeating: Store, tmp_path: Path) -> None:
    """Pieces without an index, removed segments, conditions, a second store, weights."""
    path = Path(shutil.copytree(repeating.path, tmp_path / "store"))
    for number, limit in enumerate((3, 12)):
        file = tmp_path / f"more{number}.tsv"
        pairs = read_demo("test")[20 * number : 20 * number + limit]
        file.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
        add_to_store(path, embedded, [Corpus(file)])
    remove_from_store(path, segments=[1, 5, 40])
    store = Store.open(path)
    queries = queries_near(store, 60)
    for conditions in ([], ["corpus=more1"], ["corpus!=more1"]):
        where = [Condition.parse(text) for text in conditions]
        stores = [store, repeating] if not where else [store]
        trust = [1.0, 0.5][: len(stores)]
        local = LocalRetriever(stores, trust=trust, where=where)
        spread = sharded.ShardedRetriever(stores, trust=trust, where=where, shards=3)
        same(spread.search(queries, 16), local.search(queries, 16))
        assert spread.signature == local.signature
        assert (spread.entries, spread.fingerprint) == (local.entries, local.fingerprint)


def test_shards_have_even_shares() -> None:
    ranges = [ShardNumber(number, 3).range(100) for number in range(3)]
    assert ranges == [(0, 33), (33, 66), (66, 100)]
    assert [ShardNumber(number, 3).has(4) for number in range(3)] == [False, True, False]


def test_shards_that_lack_entries_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Here, "entries", lambda _: 7)
    with pytest.raises(ClusterError, match="7 entries instead of"):
        sharded.ShardedRetriever([store])


@pytest.mark.parametrize("opened", ["front", "shards"])
def test_clusters_that_are_not_those_of_the_store_are_refused(
    opened: str, embedded: TranslationModel, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shard must cut the keys' space in the same cells."""
    store = build_store(tmp_path / "store", embedded, [corpus], BuildSettings(index="IVF8,SQ8"))
    index = replace(store.manifest.index, quantiser="0" * 16)
    other = Store(store.path, replace(store.manifest, indexes=[index]))
    if opened == "shards":
        monkeypatch.setattr(sharded, "check_quantiser", lambda *_: None)
    with pytest.raises(StoreError, match=r"index\.faiss: not what was trained"):
        sharded.ShardedRetriever([other])


def test_shards_must_be_some(store: Store) -> None:
    with pytest.raises(SettingsError, match="--shards 0"):
        sharded.ShardedRetriever([store], shards=0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=90), st.integers(1, 20), st.randoms(use_true_random=False))
def test_the_smaller_number_is_nearer_among_equals(values: list[int], k: int, random: Any) -> None:
    """Whatever a search gives of those that are equally far."""
    k, numbers = min(k, len(values)), list(range(len(values)))

    def find(_: Any, most: int) -> tuple[np.ndarray, np.ndarray]:
        random.shuffle(numbers)
        found = sorted(numbers, key=lambda number: values[number])[:most]
        return np.array([[values[number] for number in found]], np.float32), np.array([found])

    distances, entries = nearest_of(find, k, len(values))
    expected = sorted(range(len(values)), key=lambda number: (values[number], number))[:k]
    assert entries[0].tolist() == sorted(expected)
    assert by_distance(distances, entries, k=k)[1][0].tolist() == expected
