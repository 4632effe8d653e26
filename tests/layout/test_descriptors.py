"""How many files a process may hold open, of however many stores."""

import gc
import resource
from pathlib import Path

import numpy as np
import pytest
from living import MODEL, corpus_of, pairs_in

from knnmt import BuildSettings, Store, build_store
from knnmt.layout import part_files
from knnmt.layout.part_files import OPEN, descriptors_allowed

PAIRS = [(f"satz {number}", f"sentence number {number}") for number in range(40)]
HARD = 1400


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limit of open files, as the system would have it: soft and hard. Nothing else is open."""
    monkeypatch.setattr(part_files, "OPEN", type(OPEN)())
    monkeypatch.setattr(part_files, "descriptors_open", lambda: 0)
    limits = [256, HARD]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))

    def set_limits(_: int, wanted: tuple[int, int]) -> None:
        assert limits[0] <= wanted[0] <= wanted[1] == HARD
        limits[0] = wanted[0]

    monkeypatch.setattr(resource, "setrlimit", set_limits)
    return limits


@pytest.mark.parametrize(("wanted", "allowed", "soft"), [(10, 10, 532), (440, 440, 1392), (4096, 700, 1400)])
def test_the_limit_is_raised_as_far_as_it_goes(limit: list[int], wanted: int, allowed: int, soft: int) -> None:
    assert descriptors_allowed(wanted) == allowed
    assert limit[0] == soft


def test_stores_share_what_there_is(
    limit: list[int], tmp_path: Path, hash_keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has hundreds of files, more than all may hold together."""
    settings = BuildSettings(part_entries=1)
    built = build_store(tmp_path / "store", MODEL, [corpus_of(tmp_path, PAIRS)], settings)  # type: ignore[arg-type]
    monkeypatch.setattr(part_files, "FILES_TO_COME", 100)
    path, manifest = built.path, built.manifest
    del built
    gc.collect()
    stores = [Store(path, manifest) for _ in range(4)]
    assert [store.part_files.held for store in stores] == [True, False, False, False]
    assert sum(store.part_files.descriptors for store in stores) <= HARD - 100
    for store in stores:
        assert pairs_in(store) == PAIRS
        assert len(store.gather("values", np.arange(store.entries))) == store.entries
    before = descriptors_allowed(1000)
    del stores, store
    gc.collect()
    assert descriptors_allowed(1000) > before
