"""Damaged stores: one error that names the file, or an answer that is right, or a difference that `verify` sees."""

import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from living import MODEL, PAIRS, add, corpus_of, made, pairs_in, use_hash_keys

from knnmt import BuildSettings, Store, StoreError, build_store
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.store.compacting import compact_store
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of

MANY = [(f"satz {number}", f"sentence number {number}") for number in range(150)]
MUTATIONS = 40  # of each file
FILES = [
    "index.faiss",
    "index.lists",
    "removed-000002.*",
    *(f"parts/000000/{name}.npy" for name in ("keys", "values", "segments", "positions", "hashes", "order")),
    "parts/000000/segments.parquet",
]


@pytest.fixture(scope="module", params=["IVF4,PQ4x4fs", "IVF4,Flat", "IVF4,RaBitQ", "Flat"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        use_hash_keys(patch)
        patch.setattr("knnmt.store.removing.RECENT", 0)  # so that there is a file of them
        folder = tmp_path_factory.mktemp("sound")
        corpus, settings = corpus_of(folder, MANY), BuildSettings(index=request.param)
        build_store(folder / "store", MODEL, [corpus], settings)  # type: ignore[arg-type]
        remove_from_store(folder / "store", segments=[3, *range(0, 140, 2)])
        yield folder / "store"


def answers(path: Path) -> Any:
    """What a reader sees of a store: all of its text, and neighbours with where they are."""
    store = Store.open(path)
    queries = np.random.default_rng(0).uniform(0, 8, (4, 8)).astype(np.float32)
    found = LocalRetriever([store]).search(queries, 8)
    owners = store.segment_numbers(found.entries.reshape(-1))
    texts = [store.segment(int(number)).target for number in owners]
    positions = store.gather("positions", found.entries.reshape(-1))
    return pairs_in(store), found.entries.tolist(), found.tokens.tolist(), texts, positions.tolist()


def mutated(content: bytes, dice: random.Random) -> bytes:
    """The same length, for another one is seen at once; half of the changes are in the header."""
    changed = bytearray(content)
    for _ in range(dice.choice([1, 1, 4, 16])):
        place = dice.randrange(len(changed) if dice.random() < 0.5 else min(len(changed), 128))
        changed[place] = dice.choice([0, 0xFF, dice.randrange(256), changed[place] ^ 1 << dice.randrange(8)])
    return bytes(changed)


@pytest.mark.parametrize("heads", [True, False], ids=["heads", "no heads"])
@pytest.mark.parametrize("pattern", FILES)
def test_nothing_is_silently_different(sound: Path, tmp_path: Path, pattern: str, heads: bool) -> None:
    """Without heads, as in stores of earlier versions, opening knows no more than the sizes."""
    copy = Path(shutil.copytree(sound, tmp_path / "copy"))
    if not list(copy.glob(pattern)):
        pytest.skip("this store has no such file")
    file = next(copy.glob(pattern))
    if not heads:
        text = (copy / "manifest.json").read_text()
        (copy / "manifest.json").write_text(re.sub(r'"head": \d+', '"head": null', text))
    right, content, dice = answers(copy), file.read_bytes(), random.Random(pattern)
    for _ in range(MUTATIONS):
        file.write_bytes(mutated(content, dice))
        if file.read_bytes() == content:
            continue
        assert sees_no_difference(copy, file, right) or seen(copy, file)
    file.write_bytes(content)
    assert answers(copy) == right


def sees_no_difference(copy: Path, file: Path, right: Any) -> bool:
    try:
        return bool(answers(copy) == right)
    except StoreError as error:
        if file.name not in str(error):
            raise AssertionError(f"{file.name} is not named") from error
        return False


def seen(copy: Path, file: Path) -> bool:
    try:
        return any(file.name in problem for problem in problems_of(Store.open(copy)))
    except StoreError as error:
        return file.name in str(error)


@pytest.fixture
def store(tmp_path: Path, hash_keys: None) -> Store:
    return made(tmp_path / "store", PAIRS)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_is_no_damage(store: Store, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("knnmt.layout.part_files.open", refuse, raising=False)
    with pytest.raises(StoreError, match="too many open files; raise the limit") as caught:
        Store(store.path, store.manifest).hold()
    assert "damaged" not in str(caught.value)


FEW_FILES = """
import os, resource, sys
from pathlib import Path
others = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]  # a program has files of its own
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
import numpy as np
from knnmt.store.datastore import Store
store = Store.open(Path(sys.argv[1]))
assert len(store.gather("values", np.arange(store.entries))) == len(store.values) == store.entries
for found in store.all_segments():
    print(found.source, found.target, sep="\\t")
"""


def test_few_open_files_are_enough_for_many_parts(tmp_path: Path, hash_keys: None) -> None:
    """Of more parts than files may be open, files are opened when they are needed, and closed again.

    In a process of its own, whose limit is known and which no other test's files count against.
    """
    store = made(tmp_path / "store", MANY, part_entries=1)
    assert len(store.manifest.parts) == len(MANY)
    command = [sys.executable, "-c", FEW_FILES, str(store.path)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert [tuple(line.split("\t")) for line in done.stdout.splitlines()] == MANY


def test_a_file_that_went_away_is_no_damage(store: Store) -> None:
    """Opened without holding anything; then the store is compacted beside it."""
    late = Store(store.path, store.manifest)
    remove_from_store(store.path, segments=[0])
    compact_store(store.path)
    with pytest.raises(StoreError, match="missing; the store was changed in the meantime") as caught:
        pairs_in(late)
    assert "damaged" not in str(caught.value)


def test_every_segment_beside_writers(store: Store) -> None:
    """A store that was opened can be read, whatever others do to it."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            add(store, [(f"neu {number}", f"new {number}")])
            compact_store(store.path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            opened = Store.open(store.path)
            first = pairs_in(opened)
            assert first[:3] == PAIRS
            assert len(first) == opened.live_segments
    finally:
        stop.set()
        writer.join()


def test_the_first_format_is_read(store: Store) -> None:
    """One index, no versions, no hashes, no metadata; segments are numbered through all parts."""
    import pyarrow.parquet as parquet

    add(store, [("fünf", "five")], part_entries=1)
    compact_store(store.path, part_entries=3)
    manifest = json.loads((store.path / "manifest.json").read_text())
    index, first = manifest["indexes"][0], 0
    for part in manifest["parts"]:
        folder = store.path / "parts" / part["name"]
        table = parquet.read_table(folder / "segments.parquet")
        parquet.write_table(table.select(["source", "target", "corpus", "number"]), folder / "segments.parquet")
        rows = np.load(folder / "segments.npy")
        np.save(folder / "segments.npy", (rows + first).astype(np.uint32))
        first += part["segments"]
        names = ("keys.npy", "values.npy", "segments.npy", "positions.npy", "segments.parquet")
        part["files"] = {name: record_of(folder / name) for name in names}
        del part["created"], part["origin"]
    old_names = ("model", "corpora", "entries", "segments", "skipped", "parts", "created", "knnmt", "tuned")
    old = {name: manifest[name] for name in old_names} | {"version": 1, "format": 1}
    (store.path / index["name"]).rename(store.path / "index.faiss")
    old["index"] = {name: index[name] for name in ("factory", "nprobe", "recall")}
    old["index"]["file"] = record_of(store.path / "index.faiss")
    (store.path / "manifest.json").write_text(json.dumps(old))
    shutil.rmtree(store.path / "versions")
    before = Store.open(store.path)
    assert len(before.manifest.parts) > 1
    assert pairs_in(before) == [*PAIRS, ("fünf", "five")]
    assert list(problems_of(before)) == []
    assert add(before, [("fünf", "five"), ("sechs", "six")]).duplicates == 1
    remove_from_store(store.path, source_texts=["eins"])
    for _ in range(2):
        now = Store.open(store.path)
        assert pairs_in(now) == [*PAIRS[1:], ("fünf", "five"), ("sechs", "six")]
        assert list(problems_of(now)) == []
        compact_store(store.path)


def record_of(file: Path) -> dict[str, Any]:
    from knnmt.files import sha256_of

    return {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
