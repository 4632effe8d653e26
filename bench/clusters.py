"""Finding clusters: of a key that is added, and of the queries of a step, by each way there is.

Centroids are trained on copies of real keys with noise, as `scale` makes them. Time is of the processor, on one thread.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.noisy import NoisyKeys
from bench.searching import keys_of, synthetic
from knnmt import Store
from knnmt.search.centroids import Centroids
from knnmt.search.clustering import cluster
from knnmt.search.factories import make_index
from knnmt.search.internals import plain_clusters, set_graph_candidates
from knnmt.search.library import faiss
from knnmt.switches import VARIABLE

CLUSTERS = (4096, 16_384, 65_536)
DIMENSION = 256
SAMPLED = 8  # keys a cluster; a build has 40
KEYS = 4096
QUERIES = 160  # of a step
WANTED = 8  # clusters of a query
WAYS = {"all are compared": "centroids", "codes of all": "groups", "codes of the nearest groups": ""}

Row = dict[str, Any]
Numbers = NDArray[np.int64]


def clusters(numbers: tuple[int, ...], repeats: int, store: str | None) -> list[Row]:
    """A row for each way and number of clusters."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    keys = NoisyKeys(keys_of(Store.open(store)) if store else synthetic(DIMENSION))
    rows = [row for number in numbers for row in rows_of(keys, number, repeats)]
    table = Table(title=f"finding clusters, {QUERIES} queries a step", box=None)
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in row.values()))
    Console().print(table)
    return rows


def rows_of(keys: NoisyKeys, number: int, repeats: int) -> list[Row]:
    entries = (number // 8) ** 2  # of a store that has so many clusters
    random = np.random.default_rng(0)
    centroids = cluster(keys.copies(random.integers(0, entries, SAMPLED * number)), number, random)
    added = keys.copies(np.arange(KEYS) * 24_379 % entries)
    queries = keys.copies((np.arange(QUERIES) + 1) * 7919 + (1 << 40))
    rows: list[Row] = []
    true: tuple[Numbers, Numbers] | None = None
    for way, left_out in WAYS.items():
        os.environ[VARIABLE] = left_out
        opened, among = elapsed(lambda: Centroids(centroids))
        finders = (lambda among=among: among.owners(added), lambda among=among: among.nearest(queries, WANTED)[1])
        rows.append(row_of(way, number, opened, finders, true, repeats))
        true = true or (finders[0](), finders[1]())
    os.environ.pop(VARIABLE)
    assert true
    return [*rows, graph_row(centroids, added, queries, true, repeats)]


def graph_row(centroids: Any, added: Any, queries: Any, true: tuple[Numbers, Numbers], repeats: int) -> Row:
    """FAISS's graph over the centroids, which earlier versions used for very many."""
    index = make_index(f"IVF{len(centroids)}_HNSW32,Flat", centroids.shape[1])
    graph = plain_clusters(index)
    seconds, _ = elapsed(lambda: graph.add(centroids))
    set_graph_candidates(index)
    finders = (lambda: graph.search(added, 1)[1][:, 0], lambda: graph.search(queries, WANTED)[1])
    return row_of("graph", len(centroids), seconds, finders, true, repeats)


def row_of(
    way: str,
    number: int,
    opened: float,
    finders: tuple[Callable[[], Numbers], Callable[[], Numbers]],
    true: tuple[Numbers, Numbers] | None,
    repeats: int,
) -> Row:
    found = [finder() for finder in finders]
    for_keys, for_queries = (statistics.median(elapsed(finder)[0] for _ in range(repeats)) for finder in finders)
    owners, nearest = true or (found[0], found[1])
    hits = [len({*a} & {*b}) for a, b in zip(found[1].tolist(), nearest.tolist(), strict=True)]
    return {
        "clusters": number, "way": way, "opening_seconds": round(opened, 2),
        "microseconds_a_key": round(for_keys / KEYS * 1e6, 2),
        "nearest_cluster": round(float((found[0] == owners).mean()), 4),
        "milliseconds_a_step": round(for_queries * 1e3, 2), f"nearest_{WANTED}": round(sum(hits) / nearest.size, 4),
    }  # fmt: skip


def elapsed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time, and what came of it."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found
