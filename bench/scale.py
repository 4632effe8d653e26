"""What a store costs as it grows: bytes, time and memory to build, to open and to search it, mapped from disk; recall.

Keys are copies of some with noise. Each size has processes that build and others that search, so that the highest
memory of each is its own. With a folder and minutes, a call ends in time and the next one goes on. `docs/scale.md` has
the model that these figures feed; `prediction` is that model.
"""

import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.filling import (
    ASKED,
    MAPPED,
    QUERIES,
    K,
    Keys,
    Row,
    build,
    highest_memory,
    index_name,
    keys_in,
    queries_of,
    spread_file,
    truth_file,
)
from bench.hollow import hollow_store
from bench.noisy import NoisyKeys
from bench.prediction import compared
from bench.searching import keys_of, synthetic
from knnmt import Store
from knnmt.files import lists_name
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.retrieval.searchers import IndexedEntries
from knnmt.search.centroids import Centroids
from knnmt.search.coarse import probing
from knnmt.search.cutting import keep
from knnmt.search.factories import automatic_factory, automatic_nprobe
from knnmt.search.groups import SEARCHED_FOR_A_KEY
from knnmt.search.index import BuiltIndex, open_index, read_trained, wider_of
from knnmt.search.internals import quantiser_of, set_nprobe
from knnmt.search.library import faiss

BATCHES = 24  # steps with other queries: they read more than a process may keep mapped
PROBED = (1, 2, 4, 8, 16, 32, 64)
PART_ENTRIES = 131_072
NEEDED = 3  # rows, from which on the last is compared with what the others predict


def scale(
    sizes: tuple[int, ...],
    dimensions: tuple[int, ...],
    repeats: int,
    store: str | None,
    memory: int,
    folder: Path | None = None,
    minutes: float | None = None,
    *,
    only_build: bool = False,
) -> Row:
    """A row for each dimension and size, and how recall and time depend on the clusters searched."""
    until = time.monotonic() + 60 * minutes if minutes else float("inf")
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        rows: list[Row] = []
        curves: list[Row] = []
        for dimension in dimensions:
            here = place / str(dimension)
            make_originals(here, dimension, store)
            mine: list[Row] = []
            for entries in sizes:
                built = built_row(here, entries, memory, until)
                if built is None:
                    print(f"{entries:,} entries are not finished; the same call goes on", flush=True)
                    return {"rows": rows, "curves": curves}
                if only_build:
                    print(built, flush=True)
                    continue
                found = searched_row(here, entries, repeats, built)
                mine.append(found["row"])
                curves += [found["row"] | point for point in found["curve"]]
            if mine:
                show(f"{QUERIES} queries a step, recall of the nearest {K}", mine)
            if len(mine) >= NEEDED:
                show("the largest, from the two before it", compared(mine))
            rows += mine
    columns = ("entries", "dimension", "nprobe", "recall", "warm_milliseconds", "warm_processor_milliseconds")
    points = [{name: curve[name] for name in columns} for curve in curves]
    if points:
        show_points(points)
    return {"rows": rows, "curves": points}


def make_originals(folder: Path, dimension: int, store: str | None) -> None:
    file = folder / "originals.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        originals = keys_of(Store.open(store)) if store else synthetic(dimension)
        np.save(spread_file(folder), originals.std(axis=0))
        np.save(file, originals.astype(np.float16))


def built_row(folder: Path, entries: int, memory: int, until: float) -> Row | None:
    """What building one size cost; None if the time is over. What an earlier call built is read."""
    file = folder / f"built-{entries}.json"
    if not file.exists():
        built = apart(build, folder, entries, memory, until - time.monotonic())
        if built is None:
            return None
        file.write_text(json.dumps(built))
    found: Row = json.loads(file.read_text())
    return found


def searched_row(folder: Path, entries: int, repeats: int, built: Row) -> Row:
    """All figures of one size. What an earlier call found is read."""
    file = folder / f"row-{entries}.json"
    if file.exists():
        found: Row = json.loads(file.read_text())
        return found
    opened: Row = {}
    for name, size in (("parts", PART_ENTRIES), ("part", entries)):
        if not (folder / f"store-{entries}-{name}").exists():
            apart(make_hollow, folder, entries, name, size)
        opened |= {f"{what}_in_{name}": one for what, one in apart(opening, folder, entries, name).items()}
    searched, curve = apart(search, folder, entries, repeats)
    held = apart(in_memory, folder, entries)
    dimension = keys_in(folder).originals.shape[1]
    found = {"row": {"entries": entries, "dimension": dimension} | built | opened | searched | held, "curve": curve}
    print(found, flush=True)
    file.write_text(json.dumps(found))
    return found


def show(title: str, rows: list[Row]) -> None:
    """A line for each figure, a column for each row: there are more figures than sizes."""
    table = Table(title=title, box=None)
    table.add_column("")
    for _ in rows:
        table.add_column(justify="right")
    for name in rows[0]:
        values = [row.get(name, "") for row in rows]
        table.add_row(name.replace("_", " "), *(f"{one:,}" if isinstance(one, int | float) else one for one in values))
    Console().print(table)


def show_points(points: list[Row]) -> None:
    """A line for each size and number of clusters searched."""
    table = Table(title="by clusters searched", box=None)
    for name in points[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for point in points:
        table.add_row(*(f"{value:,}" for value in point.values()))
    Console().print(table)


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do it in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def search(folder: Path, entries: int, repeats: int) -> tuple[Row, list[Row]]:
    """Ask the index of a store; then the same with more and fewer clusters."""
    retriever = open_store(folder, entries, "part")
    keys, truth = keys_in(folder), np.load(truth_file(folder, entries))["entries"]
    forget(folder / lists_name(index_name(entries)))
    piece: Any = retriever.searchers[0].pieces[0]
    first, _ = elapsed(partial(found_by, piece, queries_of(keys, BATCHES)))
    cold, _ = timed(piece, keys)
    warm, used = timed(piece, keys)
    whole = [elapsed(partial(retriever.search, queries_of(keys, batch), K))[0] for batch in range(BATCHES)]
    row = {
        "nprobe": retriever.searchers[0].nprobe,
        "first_milliseconds": round(first * 1e3, 1),
        "cold_milliseconds": cold, "warm_milliseconds": warm, "warm_processor_milliseconds": used,
        "with_keys_milliseconds": round(statistics.median(whole) * 1e3, 1),
        "finding_milliseconds": finding(piece, keys), "middle_nanoseconds": middle(piece, keys),
        "recall": recall(truth, found_by(piece, queries_of(keys, 0))[:ASKED]),
        "search_peak_gigabytes": round(highest_memory() / 1e9, 2),
    }  # fmt: skip
    return row, [point(piece, nprobe, keys, truth, repeats) for nprobe in PROBED]


def in_memory(folder: Path, entries: int) -> Row:
    """The same steps with all lists in the memory of this process."""
    file, keys = folder / index_name(entries), keys_in(folder)
    index: Any = open_index(file, automatic_nprobe(entries))
    keep(index, 0, entries, file)
    held = probing(index)
    assert held is not None
    wanted = wider_of(index) * K
    times = [elapsed(partial(held.search, queries_of(keys, batch), wanted)) for batch in range(BATCHES)]
    wall, used = (round(statistics.median(column) * 1e3, 1) for column in zip(*times, strict=True))
    return {"in_memory_milliseconds": wall, "in_memory_processor_milliseconds": used}


def finding(piece: IndexedEntries, keys: NoisyKeys) -> float:
    """Milliseconds of processor time for the clusters of a step's queries."""
    assert piece.probing
    used = [elapsed(partial(piece.probing.assign, queries_of(keys, batch)))[1] for batch in range(BATCHES)]
    return round(statistics.median(used) * 1e3, 3)


def middle(piece: IndexedEntries, keys: NoisyKeys) -> float:
    """Nanoseconds to compare a key with the middle of a group; 0 without groups."""
    among = piece.probing.centroids if piece.probing else None
    if not isinstance(among, Centroids) or among.coded is None or not among.in_groups:
        return 0.0
    grouped: Any = faiss.downcast_index(among.coded.index.base_index)
    middles: Any = faiss.downcast_index(grouped.quantizer)
    some = keys.copies(np.arange(4096))
    used = [elapsed(partial(middles.search, some, SEARCHED_FOR_A_KEY))[1] for _ in range(5)]
    return round(statistics.median(used) / len(some) / int(middles.ntotal) * 1e9, 2)


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


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
