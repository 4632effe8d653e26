"""Lists in a mapped file hold what FAISS's own hold, however little memory they were written with."""

from itertools import chain
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from living import HashModel, add, corpus_of, pairs_in

from knnmt import BuildSettings, Store, StoreError, build_store
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.search.coarse import probing
from knnmt.search.factories import automatic_factory
from knnmt.search.index import build_index, extend_index, open_index
from knnmt.search.internals import quantiser_of
from knnmt.search.mapped_lists import ListWriter
from knnmt.store.compacting_tiers import compact_tiers
from knnmt.store.verification import problems_of

ENTRIES, DIMENSION, LISTS = 3000, 16, 12
FACTORY = f"IVF{LISTS},RaBitQ"


@pytest.fixture(scope="module")
def keys() -> list[Any]:
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, DIMENSION))
    points = centres[random.integers(0, 40, ENTRIES)] + 0.3 * random.normal(size=(ENTRIES, DIMENSION))
    return [*np.split(points.astype(np.float16), [1000, 1003])]


def built(keys: list[Any], file: Path, **options: Any) -> Any:
    build_index(keys, file, factory=FACTORY, on_entries=lambda _: None, **options)
    return open_index(file, LISTS)


def test_the_same_neighbours_as_by_faiss(keys: list[Any], tmp_path: Path) -> None:
    ours = built(keys, tmp_path / "index.faiss")
    theirs: Any = faiss.read_index(str(tmp_path / "index.faiss"))
    assert theirs.ntotal == 0
    everything = np.concatenate(keys).astype(np.float32)
    theirs.add(everything)
    theirs.nprobe, theirs.qb = LISTS, ours.qb
    distances, entries = ours.search(everything[:50], 20)
    expected, same = theirs.search(everything[:50], 20)
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-3)
    assert np.mean([len({*a} & {*b}) for a, b in zip(entries.tolist(), same.tolist(), strict=True)]) > 19.9


def test_every_entry_is_in_one_list(keys: list[Any], tmp_path: Path) -> None:
    index = built(keys, tmp_path / "index.faiss")
    lists = [faiss.rev_swig_ptr(index.invlists.get_ids(n), index.invlists.list_size(n)).tolist() for n in range(LISTS)]
    assert all(one == sorted(one) for one in lists)
    assert sorted(chain.from_iterable(lists)) == list(range(ENTRIES))


@pytest.mark.parametrize("memory", [1, 10_000, 1 << 30])
def test_memory_changes_nothing(keys: list[Any], tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    built(keys, tmp_path / "index.faiss")
    whole, groups = (tmp_path / "index.lists").read_bytes(), []
    begin = ListWriter.__init__
    monkeypatch.setattr(ListWriter, "__init__", lambda self, *a, **o: begin(self, *a, **o | {"memory": memory}))
    gathered = ListWriter.gathered
    monkeypatch.setattr(ListWriter, "gathered", lambda self, a, b: (groups.append((a, b)), gathered(self, a, b))[1])
    monkeypatch.setattr("knnmt.search.distances.BLOCK", 700)
    built(keys, tmp_path / "again.faiss")
    assert (tmp_path / "again.lists").read_bytes() == whole
    assert len(groups) == (1 if memory > ENTRIES * 100 else LISTS if memory == 1 else len(groups))
    assert not list(tmp_path.glob("*.blocks"))


@pytest.mark.parametrize("factory", [FACTORY, f"IVF{LISTS}_HNSW4,RaBitQ"])
def test_what_was_read_is_let_go_of(
    factory: str, keys: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where clusters have a graph, as those of very large stores do; and nothing else is found for it."""
    build_index(keys, tmp_path / "index.faiss", factory=factory, on_entries=lambda _: None)
    found, queries = probing(open_index(tmp_path / "index.faiss", 4)), keys[0][:20].astype(np.float32)
    assert found is not None
    assert found.note is not None
    expected, read = found.search(queries, 5), list[int]()
    monkeypatch.setattr(found, "note", read.append)
    again = found.search(queries, 5)
    np.testing.assert_array_equal(again[1], expected[1])
    assert 0 < sum(read) <= (tmp_path / "index.lists").stat().st_size
    monkeypatch.undo()
    monkeypatch.setattr("knnmt.search.mapped_lists.RESIDENT", 1)
    for _ in range(2):
        np.testing.assert_array_equal(found.search(queries, 5)[1], expected[1])


def test_codes_of_one_bit_learn_nothing_from_more_keys(
    keys: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAISS would compare all keys of the sample with all clusters, which takes hours for 65,536."""
    built(keys, tmp_path / "index.faiss")
    seen, train = list[int](), faiss.IndexIVFRaBitQ.train
    monkeypatch.setattr(faiss.IndexIVFRaBitQ, "train", lambda index, some: (seen.append(len(some)), train(index, some)))
    monkeypatch.setattr("knnmt.search.index.CODE_TRAINING_KEYS", 50)
    built(keys, tmp_path / "again.faiss")
    assert seen == [50]
    for name in ("{}.faiss", "{}.lists"):
        assert (tmp_path / name.format("again")).read_bytes() == (tmp_path / name.format("index")).read_bytes()


def test_an_extension_shares_the_quantiser(keys: list[Any], tmp_path: Path) -> None:
    first = build_index(keys, tmp_path / "index.faiss", factory=FACTORY, on_entries=lambda _: None)
    more = extend_index(tmp_path / "index.faiss", keys[:1], tmp_path / "more.faiss", nprobe=4)
    other = build_index(keys[:1], tmp_path / "other.faiss", factory=FACTORY, seed=1, on_entries=lambda _: None)
    assert first.quantiser == more.quantiser != other.quantiser
    assert quantiser_of(open_index(tmp_path / "more.faiss", 4)) == first.quantiser


@pytest.mark.parametrize(
    ("entries", "memory", "codes"),
    [
        (10**6, 8 << 30, "PQ128x4fs"),
        (10**8, 8 << 30, "PQ128x4fs"),
        (10**9, 8 << 30, "RaBitQ"),
        (10**8, 4 << 30, "RaBitQ"),
    ],
)
def test_codes_are_chosen_by_size_and_memory(entries: int, memory: int, codes: str) -> None:
    assert automatic_factory(entries, 256, memory).split(",")[1] == codes


@pytest.mark.usefixtures("hash_keys")
def test_a_store_with_mapped_lists_lives(tmp_path: Path) -> None:
    pairs = [(f"satz {number}", f"sentence number {number}") for number in range(200)]
    settings, model = BuildSettings(index="IVF4,RaBitQ"), HashModel()
    store = build_store(tmp_path / "store", model, [corpus_of(tmp_path, pairs)], settings)  # type: ignore[arg-type]
    assert (store.path / "index.lists").is_file()
    more = [(f"neu {number}", f"new number {number}") for number in range(50)]
    add(store, more)
    after = Store.open(store.path)
    record = after.manifest.indexes[1]
    assert record.lists
    assert record.quantiser == after.manifest.index.quantiser
    assert list(problems_of(after)) == []
    found = LocalRetriever([after]).search(after.gather("keys", np.arange(0, after.entries, 7)).astype(np.float32), 2)
    assert (found.distances[:, 0] < 1e-3).mean() > 0.95
    assert compact_tiers(store.path) == 0
    assert pairs_in(Store.open(store.path)) == [*pairs, *more]


@pytest.mark.usefixtures("hash_keys")
def test_clusters_of_another_index_are_refused(tmp_path: Path) -> None:
    """Whoever put other clusters in the index's place would mix up every list that is joined with it."""
    pairs = [(f"satz {number}", f"sentence number {number}") for number in range(200)]
    model: Any = HashModel()
    store = build_store(tmp_path / "store", model, [corpus_of(tmp_path, pairs)], BuildSettings(index="IVF4,RaBitQ"))
    manifest = (store.path / "manifest.json").read_text()
    (store.path / "manifest.json").write_text(manifest.replace(str(store.manifest.index.quantiser), "0" * 16))
    assert any("not those that were trained" in problem for problem in problems_of(Store.open(store.path)))
    with pytest.raises(StoreError, match="not what was trained"):
        add(store, [(f"neu {number}", f"new number {number}") for number in range(50)])
