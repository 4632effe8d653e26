"""Parts and indexes are joined by size, beside readers and writers, and the memory stays what it was."""

import shutil
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from killing import duration, killed_at_random, one_thread
from living import PAIRS, add, everywhere, made, pairs_in, use_hash_keys

from knnmt import Store, StoreError
from knnmt.layout.records import FileRecord, IndexRecord, PartRecord
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store import compacting_tiers
from knnmt.store.compacting import compact_store
from knnmt.store.compacting_tiers import compact_tiers
from knnmt.store.index_files import grown
from knnmt.store.merging import merge_stores
from knnmt.store.removing import remove_from_store
from knnmt.store.tiers import FACTOR, PATIENCE, IndexUnit, Run, due, taken_in, tier_of, units_of
from knnmt.store.verification import problems_of
from knnmt.store.versions import locked, roll_back, versions_of

pytestmark = pytest.mark.usefixtures("hash_keys")


@pytest.fixture(autouse=True)
def ready_to_fork() -> Iterator[None]:
    with one_thread():
        yield


def unit(entries: int, *, keys: bool = True) -> IndexUnit:
    files = {"keys.npy": FileRecord(0, "")} if keys else {}
    return IndexUnit(IndexRecord.of_keys(entries), (PartRecord("000000", entries, 1, 0, {}, "", files),))


def units(*entries: int) -> list[IndexUnit]:
    return [unit(one) for one in entries]


@pytest.mark.parametrize(("entries", "tier"), [(0, 0), (1, 0), (7, 0), (8, 1), (63, 1), (64, 2), (4096, 4), (10**9, 9)])
def test_a_tier_is_eight_times_the_last(entries: int, tier: int) -> None:
    assert tier_of(entries) == tier


@pytest.mark.parametrize(
    ("before", "added", "count"),
    [
        ([100], 20, 0),  # what was built stays
        ([9999, 20], 20, 0),
        ([9999, 5], 20, 1),
        ([9999, 500, 20, 5], 70, 2),
        ([9999, 500, 20, 5], 600, 3),
    ],
)
def test_an_addition_takes_in_what_is_smaller(before: list[int], added: int, count: int) -> None:
    assert taken_in(units(*before), added) == count


DUE: list[tuple[list[int], dict[str, Any], Run | None]] = [
    ([9999, *[20] * 7], {}, None),
    ([9999, *[20] * 8], {}, Run(1, 9)),
    ([9999, 600, *[20] * 8, 3], {}, Run(2, 11)),
    ([9999, *[600] * 8, *[20] * 8], {}, Run(9, 17)),
    ([9999, *[600] * 8], {"most": 4096}, None),
    ([9999, *[600] * 8], {"patience": 4}, None),
    ([9999, *[600] * 32], {"patience": 4}, Run(1, 33)),
    ([9999, 20, 5000, 3], {}, Run(1, 4)),
    ([9999, 20, 5000, 3], {"patience": 4}, None),
]


@pytest.mark.parametrize(("before", "bounds", "run"), DUE)
def test_what_is_due(before: list[int], bounds: dict[str, Any], run: Run | None) -> None:
    assert due(units(*before), **bounds) == run


def test_units_without_keys_stay() -> None:
    assert due([unit(9999), *[unit(20, keys=False)] * 20]) is None
    assert taken_in([unit(9999), unit(3, keys=False)], 20) == 0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=400), st.booleans())
@settings(max_examples=30, deadline=None)
def test_there_are_few_units_whatever_comes(additions: list[int], beside: bool) -> None:
    """With `beside`, large units are joined in the background; without, only by the changes themselves."""
    sizes = units(1000)
    for entries in additions:
        count = taken_in(sizes, entries)
        total = entries + sum(one.entries for one in sizes[len(sizes) - count :])
        sizes = [*sizes[: len(sizes) - count], unit(total)]
        for bounds in (
            ({"most": 4096}, {"patience": PATIENCE}, {}) if beside else ({"most": 4096}, {"patience": PATIENCE})
        ):
            while run := due(sizes, **bounds):
                joint = unit(sum(one.entries for one in sizes[run.first : run.end]))
                sizes = [*sizes[: run.first], joint, *sizes[run.end :]]
    tiers = [one.tier for one in sizes[1:]]
    assert all(left >= right for left, right in pairwise(tiers))
    most = FACTOR if beside else FACTOR * PATIENCE
    assert all(tiers.count(tier) < most for tier in tiers)
    assert sum(one.entries for one in sizes) == 1000 + sum(additions)


def many(path: Path, count: int = 150, **settings: Any) -> Store:
    """A store after as many single additions, with removals among them."""
    store = made(path, PAIRS, **settings)
    for number in range(count):
        add(store, [(f"satz {number}", f"sentence {number} of many")])
        if number % 10 == 9:
            remove_from_store(path, source_texts=[f"satz {number - 5}"])
    return Store.open(path)


def left(count: int = 150) -> list[tuple[str, str]]:
    numbers = [number for number in range(count) if number % 10 != 4]
    return [*PAIRS, *((f"satz {number}", f"sentence {number} of many") for number in numbers)]


def same_neighbours(store: Store, path: Path) -> bool:
    """Whether it finds what a store of the same pairs finds that was built in one go."""
    once = made(path, left())
    queries = everywhere(left()[:40]).astype(np.float32)
    ours, theirs = (LocalRetriever([one]).search(queries, 12) for one in (store, once))
    np.testing.assert_array_equal(ours.distances, theirs.distances)
    sure = ours.distances < ours.distances[:, -1:]  # of several at the last distance, either may find another
    rows = zip(sure, ours.tokens, theirs.tokens, strict=True)
    return all(sorted(mine[row]) == sorted(other[row]) for row, mine, other in rows)


def test_many_additions_and_removals(tmp_path: Path) -> None:
    store = many(tmp_path / "store")
    assert pairs_in(store) == left()
    assert len(store.manifest.parts) == len(store.manifest.indexes) < 25
    assert list(problems_of(store)) == []
    assert same_neighbours(store, tmp_path / "once")


def test_removed_segments_leave_and_numbers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.store.index_files.JOINED_BY_A_CHANGE", 0)
    monkeypatch.setattr("knnmt.store.index_files.PATIENCE", 99)
    store = many(tmp_path / "store", 60)
    numbers = {pair.source: pair.segment for pair in store.all_segments()}
    version = store.manifest.version
    assert compact_tiers(store.path) > 0
    after = Store.open(store.path)
    assert pairs_in(after) == left(60)
    assert {pair.source: pair.segment for pair in after.all_segments()} == numbers
    assert after.manifest.version == version
    assert after.live_entries == store.live_entries
    assert after.entries < store.entries
    assert len(after.manifest.indexes) < FACTOR + 2 < len(store.manifest.indexes)
    assert not any(row["source"] == "satz 4" for part in range(len(after.manifest.parts)) for row in after.pairs(part))
    assert list(problems_of(after)) == []
    assert compact_tiers(store.path) == 0
    assert not (store.path / "joining").exists()


def test_earlier_versions_can_be_gone_back_to(tmp_path: Path) -> None:
    store = many(tmp_path / "store", 20)
    before = {manifest.version: pairs_in(Store(store.path, manifest)) for manifest in versions_of(store)}
    compact_tiers(store.path)
    for version, pairs in list(before.items())[-5:-1]:
        assert pairs_in(roll_back(store.path, version)) == pairs
        assert list(problems_of(Store.open(store.path))) == []


def test_a_store_in_many_parts_keeps_its_index(tmp_path: Path) -> None:
    """As earlier versions built them."""
    store = made(tmp_path / "store", left(), part_entries=8)
    assert len(store.manifest.parts) > FACTOR
    remove_from_store(store.path, segments=[1])
    index = store.manifest.index
    assert compact_tiers(store.path) == 1
    after = Store.open(store.path)
    assert (len(after.manifest.parts), after.manifest.index) == (1, index)
    assert pairs_in(after) == [left()[0], *left()[2:]]
    assert list(problems_of(after)) == []


def test_merged_stores_are_settled(tmp_path: Path) -> None:
    store = many(tmp_path / "store", 20)
    other = made(tmp_path / "other", [(f"anders {number}", f"other {number}") for number in range(60)])
    merge_stores(store.path, [other.path])
    pairs = pairs_in(Store.open(store.path))
    assert compact_tiers(store.path) > 0
    after = Store.open(store.path)
    assert pairs_in(after) == pairs
    tiers = [one.tier for one in units_of(after.manifest)[1:]]
    assert tiers == sorted(tiers, reverse=True)
    assert list(problems_of(after)) == []


def loose(path: Path, count: int = 60) -> Store:
    """A store with much to join."""
    with pytest.MonkeyPatch.context() as patch:
        use_hash_keys(patch)
        patch.setattr("knnmt.store.index_files.JOINED_BY_A_CHANGE", 0)
        patch.setattr("knnmt.store.index_files.PATIENCE", 99)
        return many(path, count)


def test_stopped_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that was finished is not written again."""
    store = loose(tmp_path / "store")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compacting_tiers, "joint_index", stop)
        with pytest.raises(KeyboardInterrupt):
            compact_tiers(store.path)
    assert Store.open(store.path).manifest == store.manifest
    with monkeypatch.context() as patch:
        patch.setattr(compacting_tiers, "join_into", stop)
        runs = iter([compacting_tiers.next_run(units_of(store.manifest))])
        patch.setattr(compacting_tiers, "next_run", lambda _: next(runs, None))
        assert compact_tiers(store.path) == 1
    assert pairs_in(Store.open(store.path)) == left(60)


def test_beside_additions_removals_and_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a unit is being written, the store is added to, removed from, and read."""
    store = loose(tmp_path / "store")
    monkeypatch.setattr("knnmt.store.index_files.JOINED_BY_A_CHANGE", 0)
    monkeypatch.setattr("knnmt.store.index_files.PATIENCE", 99)
    reader = LocalRetriever([store])
    before = reader.search(everywhere(PAIRS), 3)
    whole, done = compacting_tiers.join_into, []

    def meanwhile(*given: Any) -> Any:
        joined = whole(*given)
        if not done:
            done.append(1)
            with pytest.raises(StoreError, match="being changed by another process"):
                compact_store(store.path)
            add(store, [("neu", "new")])
            remove_from_store(store.path, source_texts=["satz 7", "eins"])
        return joined

    monkeypatch.setattr(compacting_tiers, "join_into", meanwhile)
    assert compact_tiers(store.path) > 0
    after = Store.open(store.path)
    expected = [pair for pair in left(60) if pair[0] not in ("satz 7", "eins")]
    assert pairs_in(after) == [*expected, ("neu", "new")]
    assert list(problems_of(after)) == []
    np.testing.assert_array_equal(reader.search(everywhere(PAIRS), 3).entries, before.entries)


def test_what_was_taken_back_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback brings back segments that the joint unit has left out: it is given up and made anew."""
    store = loose(tmp_path / "store")
    version = store.manifest.version - 1  # before the last removal
    expected = pairs_in(Store(store.path, next(m for m in versions_of(store) if m.version == version)))
    whole, done = compacting_tiers.join_into, []

    def meanwhile(*given: Any) -> Any:
        joined = whole(*given)
        if not done:
            done.append(1)
            roll_back(store.path, version)
        return joined

    monkeypatch.setattr(compacting_tiers, "join_into", meanwhile)
    compact_tiers(store.path)
    assert pairs_in(Store.open(store.path)) == expected
    assert list(problems_of(Store.open(store.path))) == []


def test_killed_at_random_points(tmp_path: Path) -> None:
    """No store is damaged, none lost, and the next call ends what was begun."""
    before = loose(tmp_path / "before").path
    after = Path(shutil.copytree(before, tmp_path / "after"))
    seconds = duration(lambda: compact_tiers(after))
    shape = len(Store.open(after).manifest.parts)
    for path in killed_at_random(compact_tiers, seconds, tmp_path, before=before):
        store = Store.open(path)
        assert list(problems_of(store)) == []
        assert pairs_in(store) == left(60)
        with locked(path):  # the dead hold no lock
            pass
        compact_tiers(path)
        now = Store.open(path)
        assert pairs_in(now) == left(60)
        assert len(now.manifest.parts) == shape
        assert not (path / "joining").exists()


def test_two_who_join_keep_out_of_each_others_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting_tiers, "SHORTLY", 0.0)
    store = loose(tmp_path / "store", 20)
    begun, go_on = threading.Event(), threading.Event()
    whole = compacting_tiers.join_into

    def slowly(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return whole(*given)

    monkeypatch.setattr(compacting_tiers, "join_into", slowly)
    first = threading.Thread(target=lambda: compact_tiers(store.path))
    first.start()
    assert begun.wait(30)
    with pytest.raises(StoreError, match="being changed by another process"):
        compact_tiers(store.path)
    go_on.set()
    first.join()
    assert pairs_in(Store.open(store.path)) == left(20)


def test_nothing_changed_is_nothing_written(tmp_path: Path) -> None:
    """What a change does not touch stays the same file."""
    store = many(tmp_path / "store", 30)
    before = {file: file.stat().st_ino for file in (store.path / "parts").rglob("*") if file.is_file()}
    remove_from_store(store.path, segments=[0])
    after = {file: file.stat().st_ino for file in (store.path / "parts").rglob("*") if file.is_file()}
    assert after == before
    assert not list(store.path.glob("removed-*"))


def test_grown_counts_what_was_dropped(tmp_path: Path) -> None:
    store = many(tmp_path / "store", 12)
    fields = grown(store, [], [0])
    assert fields["removed"].entries == store.entries_of(np.array([0])).size + (
        store.manifest.removed.entries if store.manifest.removed else 0
    )
    assert SimpleNamespace(**fields).entries == store.entries


def test_a_store_with_small_additions_is_merged(tmp_path: Path) -> None:
    """Its units without an index are taken over, too."""
    other = many(tmp_path / "other", 12)
    store = made(tmp_path / "store", [("x", "y")])
    merge_stores(store.path, [other.path])
    after = Store.open(store.path)
    assert pairs_in(after) == [("x", "y"), *left(12)]
    assert list(problems_of(after)) == []
    assert LocalRetriever([after]).search(everywhere(left(12)), 3).distances[:, 0].max() < 0.1
