"""Opening the files of many parts: by several threads, each once, and the first that is damaged is named."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from living import made

from knnmt import Store, StoreError
from knnmt.layout import part_files
from knnmt.layout.part_files import descriptors_open, places_by_part

MANY = [(f"satz {number}", f"sentence number {number}") for number in range(40)]


@pytest.fixture
def store(tmp_path: Path, hash_keys: None) -> Store:
    return made(tmp_path / "store", MANY, part_entries=4)


@pytest.mark.parametrize("held", [True, False])
def test_every_file_is_checked_once(store: Store, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not held:
        monkeypatch.setattr(part_files, "DESCRIPTORS_HELD", 10)
    seen, threads, check = list[str](), set[int](), part_files.open_checked

    def watched(file: str, record: part_files.FileRecord) -> object:
        seen.append(str(file))
        threads.add(threading.get_ident())
        return check(file, record)

    monkeypatch.setattr(part_files, "open_checked", watched)
    opened = Store.open(store.path)
    opened.hold()
    inside = [file for file in seen if "/parts/" in file]
    assert len(inside) == len({*inside}) == sum(len(part.files) for part in opened.manifest.parts) > 100
    assert len(threads) > 1
    assert opened.part_files.held == held
    assert len(opened.part_files.files.things) == (len(inside) if held else 0)


@pytest.mark.parametrize("held", [True, False])
def test_the_damaged_file_is_named(store: Store, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not held:
        monkeypatch.setattr(part_files, "DESCRIPTORS_HELD", 10)
    file = store.part_folder(store.manifest.parts[7]) / "values.npy"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    with pytest.raises(StoreError, match=rf"{store.manifest.parts[7].name}/values\.npy: damaged"):
        Store.open(store.path)


@pytest.mark.parametrize("harm", [lambda data: b"x" + data[1:], lambda data: data[:-1]])
def test_what_is_refused_is_closed(store: Store, harm: Callable[[bytes], bytes]) -> None:
    """Also the files that were opened before it, while somebody still holds the error."""
    file = store.part_folder(store.manifest.parts[7]) / "values.npy"
    file.write_bytes(harm(file.read_bytes()))
    before = descriptors_open()
    with pytest.raises(StoreError) as refused:
        Store.open(store.path)
    assert "values.npy" in str(refused.value)
    assert descriptors_open() == before


def test_places_by_part() -> None:
    parts = np.array([4, 1, 1, 4, 0])
    assert [(part, places.tolist()) for part, places in places_by_part(parts)] == [(0, [4]), (1, [1, 2]), (4, [0, 3])]
    assert list(places_by_part(parts[:0])) == []


def test_threads_may_open_the_same_column(store: Store) -> None:
    """Also in the same moment: a file's position belongs to all who read from it."""
    for _ in range(20):
        opened, ready = Store.open(store.path), threading.Barrier(4)

        def read(opened: Store = opened, ready: threading.Barrier = ready) -> int:
            ready.wait()
            return sum(len(opened.part_files.open_column(part, "values")) for part in range(len(opened.manifest.parts)))

        with ThreadPoolExecutor(4) as pool:
            assert [one.result() for one in [pool.submit(read) for _ in range(4)]] == [store.entries] * 4
