"""What a store costs as it grows: bytes, time and memory to build, to open and to search it, mapped from disk; recall.

Keys are copies of some with noise. Each size has a process that builds and one that searches, so that the highest
memory of each is its own. `docs/scale.md` has the model that these figures feed.
"""

import multiprocessing
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.hollow import hollow_store
from bench.noisy import JUDGED, NearOwners, NoisyKeys
from bench.searching import keys_of, synthetic
from knnmt import Store
from knnmt.layout.part_files import map_file
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.retrieval.searchers import IndexedEntries
from knnmt.search.exact import nearest, norms_of
from knnmt.search.factories import EXACT_ENTRIES, automatic_factory, automatic_nprobe, make_index
from knnmt.search.file_names import lists_name
from knnmt.search.index import BuiltIndex, read_trained, train, wider_of, write_index
from knnmt.search.internals import quantiser_of, set_nprobe
from knnmt.search.mapped_lists import ListWriter

QUERIES = 160  # 32 sentences with 5 beams: a step
ASKED = 64  # queries whose true nearest are looked for
K = 16
BATCHES = 24  # steps with other queries: they read more than a process may keep mapped
MAPPED = 1 << 20  # bytes of memory for codes: so little that those are chosen that can be mapped
PROBED = (4, 8, 16, 32, 64)
PART_ENTRIES = 131_072

Keys = NDArray[np.float32]
Row = dict[str, Any]


def scale(sizes: tuple[int, ...], dimensions: tuple[int, ...], repeats: int, store: str | None, memory: int) -> Row:
    """A row for each dimension and size, and how recall and time depend on the clusters searched."""
    rows: list[Row] = []
    curves: list[Row] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        folder = Path(place)
        for dimension in dimensions:
            originals = keys_of(Store.open(store)) if store else synthetic(dimension)
            np.save(folder / "originals.npy", originals.astype(np.float16))
            for entries in sizes:
                built = apart(build, folder, entries, memory)
                opened: Row = {}
                for name, size in (("parts", PART_ENTRIES), ("part", entries)):
                    apart(make_hollow, folder, entries, name, size)
                    opened |= {f"{what}_in_{name}": one for what, one in apart(opening, folder, entries, name).items()}
                found, curve = apart(search, folder, entries, repeats)
                rows.append({"entries": entries, "dimension": originals.shape[1]} | built | opened | found)
                print(rows[-1], curve, flush=True)
                curves += [rows[-1] | point for point in curve]
                show(f"{QUERIES} queries a step, recall of the nearest {K}", rows)
                (folder / index_name(entries)).unlink()
                (folder / lists_name(index_name(entries))).unlink()
    columns = ("entries", "dimension", "nprobe", "recall", "warm_milliseconds", "warm_processor_milliseconds")
    points = [{name: curve[name] for name in columns} for curve in curves]
    show("by clusters searched", points)
    return {"rows": rows, "curves": points}


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title, box=None)
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in row.values()))
    Console().print(table)


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do it in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def index_name(entries: int) -> str:
    return f"index-{entries}.faiss"


def keys_in(folder: Path) -> NoisyKeys:
    return NoisyKeys(np.asarray(map_file(folder / "originals.npy"), np.float32))


def queries_of(keys: NoisyKeys, batch: int) -> Keys:
    """Copies that no store has."""
    return keys.copies((np.arange(QUERIES) + batch * QUERIES) * 7919 + (1 << 40))


def build(folder: Path, entries: int, memory: int) -> Row:
    """Write an index in one pass; the true nearest of some queries are found beside it, and not counted."""
    keys, file = keys_in(folder), folder / index_name(entries)
    factory = automatic_factory(max(entries, EXACT_ENTRIES + 1), keys.originals.shape[1], MAPPED)
    index, random = make_index(factory, keys.originals.shape[1]), np.random.default_rng(0)
    clock = Clock()
    with clock("train"):
        train(index, [sample_of(keys, entries, index.nlist, folder, random)], random, factory, memory)
    owners, writer = NearOwners(index, keys), ListWriter(index, file, memory=memory // 4)
    with clock("assign"):
        true = owners.among.owners(keys.copies(some := np.arange(JUDGED) * 24_379 % entries))
    agreement = float((owners.owners(some, keys.copies(some)) == true).mean())

    def passing() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for numbers, block in keys.blocks(entries):
            mine = owners.owners(numbers, block)
            with clock("write"):
                writer.add(block, mine)
            yield torch.from_numpy(block), norms_of(torch.from_numpy(block))

    truth = nearest(torch.from_numpy(queries_of(keys, 0)[:ASKED]), passing(), K)[1]
    with clock("write"):
        writer.finish()
        write_index(index, file)
    np.save(folder / "truth.npy", truth.numpy())
    assigning = clock.used["assign"] / JUDGED
    return {
        "factory": factory,
        "gigabytes": round(sum(one.stat().st_size for one in (file, writer.final)) / 1e9, 3),
        "train_seconds": round(clock.used["train"], 1), "write_seconds": round(clock.used["write"], 1),
        "assign_microseconds_a_key": round(assigning * 1e6, 1), "same_cluster": round(agreement, 4),
        "build_peak_gigabytes": round(highest_memory() / 1e9, 2),
    }  # fmt: skip


class Clock:
    """Seconds of processor time by name: the machine may be busy with other work."""

    def __init__(self) -> None:
        self.used: dict[str, float] = {}

    def __call__(self, name: str) -> "Clock":
        self.name = name
        return self

    def __enter__(self) -> None:
        self.began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.used[self.name] = self.used.get(self.name, 0.0) + time.process_time() - self.began


def sample_of(keys: NoisyKeys, entries: int, clusters: int, folder: Path, random: np.random.Generator) -> Any:
    """Keys to train on, on disk as those of a store are."""
    numbers = np.unique(random.integers(0, entries, min(entries, 40 * max(1024, clusters))))
    shape = (len(numbers), keys.originals.shape[1])
    sample = np.lib.format.open_memmap(folder / "sample.npy", "w+", np.float16, shape)
    for first in range(0, len(numbers), PART_ENTRIES):
        sample[first : first + PART_ENTRIES] = keys.copies(numbers[first : first + PART_ENTRIES])
    return sample


def search(folder: Path, entries: int, repeats: int) -> tuple[Row, list[Row]]:
    """Ask the index of a store; then the same with more and fewer clusters."""
    retriever = open_store(folder, entries, "part")
    keys, truth = keys_in(folder), np.load(folder / "truth.npy")
    forget(folder / lists_name(index_name(entries)))
    piece: Any = retriever.searchers[0].pieces[0]
    cold, _ = timed(piece, keys)
    warm, used = timed(piece, keys)
    whole = [elapsed(partial(retriever.search, queries_of(keys, batch), K))[0] for batch in range(BATCHES)]
    row = {
        "nprobe": retriever.searchers[0].nprobe,
        "cold_milliseconds": cold, "warm_milliseconds": warm, "warm_processor_milliseconds": used,
        "with_keys_milliseconds": round(statistics.median(whole) * 1e3, 1),
        "recall": recall(truth, found_by(piece, queries_of(keys, 0))[:ASKED]),
        "search_peak_gigabytes": round(highest_memory() / 1e9, 2),
    }  # fmt: skip
    return row, [point(piece, nprobe, keys, truth, repeats) for nprobe in PROBED]


def opening(folder: Path, entries: int, name: str) -> Row:
    """Seconds and descriptors until a store can be searched none of whose files is in the system's memory."""
    for file in (folder / f"store-{entries}-{name}").rglob("*.*"):
        forget(file)
    before, began = descriptors(), time.perf_counter()
    retriever = open_store(folder, entries, name)
    seconds = round(time.perf_counter() - began, 3)
    held = descriptors() - before
    return {"parts": len(retriever.stores[0].manifest.parts), "open_seconds": seconds, "descriptors": held}


def open_store(folder: Path, entries: int, name: str) -> LocalRetriever:
    return LocalRetriever([Store.open(folder / f"store-{entries}-{name}")])


def make_hollow(folder: Path, entries: int, name: str, part_entries: int) -> None:
    """A store of the built index, in parts of so many entries."""
    index, dimension = folder / index_name(entries), keys_in(folder).originals.shape[1]
    factory, nprobe = automatic_factory(entries, dimension, MAPPED), automatic_nprobe(entries)
    quantiser = quantiser_of(read_trained(index))
    built = BuiltIndex(factory, nprobe, {"k": 1, "queries": 0, "recall": 0.0}, quantiser)
    hollow_store(folder / f"store-{entries}-{name}", index, built, entries, dimension, part_entries)


def timed(piece: IndexedEntries, keys: NoisyKeys) -> tuple[float, float]:
    """Milliseconds of the index's part of a step, median over other queries each time: by the clock, and used."""
    times = [elapsed(partial(found_by, piece, queries_of(keys, batch))) for batch in range(BATCHES)]
    wall, used = (round(statistics.median(column) * 1e3, 1) for column in zip(*times, strict=True))
    return wall, used


def elapsed(work: Callable[[], object]) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def found_by(piece: IndexedEntries, queries: Keys) -> NDArray[np.int64]:
    """Whose distances are computed anew from keys."""
    searcher: Any = piece.probing or piece.index
    found: NDArray[np.int64] = searcher.search(queries, wider_of(piece.index) * K)[1]
    return found


def point(piece: IndexedEntries, nprobe: int, keys: NoisyKeys, truth: NDArray[np.int64], repeats: int) -> Row:
    """With so many clusters searched."""
    set_nprobe(piece.index, nprobe)
    asked = queries_of(keys, 0)
    hits = recall(truth, found_by(piece, asked)[:ASKED])
    times = [elapsed(partial(found_by, piece, asked)) for _ in range(repeats)]
    wall, used = (round(statistics.median(column) * 1e3, 1) for column in zip(*times, strict=True))
    return {"nprobe": nprobe, "recall": hits, "warm_milliseconds": wall, "warm_processor_milliseconds": used}


def recall(true: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    hits = [len({*one} & {*other}) for one, other in zip(true.tolist(), found.tolist(), strict=True)]
    return round(sum(hits) / true.size, 4)


def forget(file: Path) -> None:
    """Take a file out of the system's memory."""
    if hasattr(os, "posix_fadvise"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def highest_memory() -> int:
    """Bytes of this process, what it had mapped among them."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
