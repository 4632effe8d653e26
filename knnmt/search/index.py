"""The FAISS index over all keys: chosen by size, trained on a random sample, searched from disk."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.arrays import Array
from knnmt.errors import SettingsError, StoreError
from knnmt.files import REMEDY, flush_to_disk, lists_name, reading, trained_name
from knnmt.search.centroids import Centroids
from knnmt.search.clustering import cluster
from knnmt.search.distances import Keys, blocks, distances_to, exact_distances, take
from knnmt.search.exact import nearest, norms_of
from knnmt.search.factories import NPROBE, automatic_factory, automatic_nprobe, make_index
from knnmt.search.internals import (
    found_among,
    has_lists,
    ivf_of,
    keys_inside,
    plain_clusters,
    quantiser_of,
    set_graph_candidates,
    set_nprobe,
)
from knnmt.search.library import faiss
from knnmt.search.mapped_lists import MEMORY, ListWriter, attach_lists

TRAINING_KEYS_PER_CLUSTER = 40  # FAISS wants 39 at least and uses 256 at most
QUERY_BY_QUERY = 11  # FAISS's number for scanning codes so: a tenth faster here than cluster by cluster
CODE_TRAINING_KEYS = 16_384  # 16 centroids a piece of the key need no more
ONE_BIT_WIDER = 4  # times k are fetched by codes of one bit: too rough to choose the nearest k themselves
QUERY_BITS = 8  # of a query's numbers when they are compared with codes of one bit
RECALL_QUERIES = 128
RECALL_K = 64

Assign = Callable[[Keys], Iterator[NDArray[np.int64]]]  # centroids to the cluster of each key, in blocks of `BLOCK`


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    factory: str
    nprobe: int | None
    recall: dict[str, float]
    quantiser: str | None = None


def build_index(
    keys: list[Array],
    file: Path,
    *,
    factory: str | None = None,
    seed: int = 0,
    on_entries: Callable[[int], None],
    memory: int | None = None,
    assign: "Assign | None" = None,
) -> BuiltIndex:
    """Train on a random sample, add every part, measure recall, write. `keys` are the parts, [entries, dimension].

    `memory` is how many bytes it may take.
    """
    entries, dimension = sum(len(part) for part in keys), keys[0].shape[1]
    wanted = NPROBE if factory else automatic_nprobe(entries)
    factory = factory or automatic_factory(entries, dimension, memory)
    index = make_index(factory, dimension)
    random = np.random.default_rng(seed)
    if not index.is_trained:
        train(index, keys, random, factory, memory)
    if has_lists(index):
        set_nprobe(index, wanted)
        recall = fill_lists(index, keys, file, random, on_entries, memory, assign)
        return BuiltIndex(factory, set_nprobe(index, None), recall, quantiser_of(index))
    if isinstance(ivf_of(index), faiss.IndexIVFFastScan):  # unlike others, it can only be read with all its entries
        write_index(index, file.with_name(trained_name(file.name)))
    index = filled(index, keys, on_entries, assign)
    nprobe = set_nprobe(index, wanted)
    write_index(index, file)
    return BuiltIndex(factory, nprobe, measure_recall(index, keys, random), quantiser_of(index))


def extend_index(trained: Path, keys: list[Array], file: Path, *, nprobe: int | None) -> BuiltIndex:
    """An index of other keys that shares the clusters and codes of a trained one."""
    index, random, name = without_entries(trained), np.random.default_rng(0), f"clusters of {trained.name}"
    set_graph_candidates(index)
    set_nprobe(index, nprobe)
    if has_lists(index):
        recall = fill_lists(index, keys, file, random)
    else:
        index = filled(index, keys)
        set_graph_candidates(index)
        set_nprobe(index, nprobe)
        write_index(index, file)
        recall = measure_recall(index, keys, random)
    return BuiltIndex(name, set_nprobe(index, None), recall, quantiser_of(index))


def fill_lists(
    index: Any,
    keys: list[Array],
    file: Path,
    random: np.random.Generator,
    on_entries: Callable[[int], None] = lambda _: None,
    memory: int | None = None,
    assign: "Assign | None" = None,
) -> dict[str, float]:
    """Write a trained index and the lists of all keys; the recall is measured in the same pass over them."""
    room = MEMORY if memory is None else max(1 << 20, memory // 4)
    among = found_among(plain_clusters(index))
    writer = ListWriter(index, file, memory=room)
    queries = recall_queries(keys, random)
    owners = map(among.owners, blocks(keys)) if assign is None else assign(among.all.numpy())

    def passing() -> Iterator[torch.Tensor]:
        for block, mine in zip(blocks(keys), owners, strict=True):
            writer.add(block, mine)
            on_entries(len(block))
            yield torch.from_numpy(block)

    k = min(RECALL_K, sum(map(len, keys)) - 1)
    found = nearest(torch.from_numpy(queries), ((block, norms_of(block)) for block in passing()), k + 1)[0]
    lists = writer.finish()
    write_index(index, file)
    attach_lists(index, index, lists)
    return recall_of(index, keys, queries, found.numpy()[:, -1:], k)


def without_entries(trained: Path) -> Any:
    """A copy of a trained index without its entries."""
    beside = trained.with_name(trained_name(trained.name))
    if beside.exists():
        return read_trained(beside)
    index = read_trained(trained, faiss.IO_FLAG_MMAP)
    ivf = ivf_of(index)
    if isinstance(ivf, faiss.IndexIVFFastScan):
        index.reset()
        return index
    lists: Any = faiss.ArrayInvertedLists(ivf.nlist, ivf.code_size)
    lists.this.disown()
    ivf.replace_invlists(lists, True)
    ivf.ntotal = index.ntotal = 0
    return index


def read_trained(file: Path, flags: int = 0) -> Any:
    with reading(file):
        return faiss.read_index(str(file), flags)


def check_index(index: Any, file: Path, *, entries: int, dimension: int) -> None:
    """Raise unless the index matches its keys: entries are looked up by its ids."""
    if index.ntotal != entries:
        raise StoreError(f"{file}: {index.ntotal:,} entries instead of {entries:,}; {REMEDY}")
    if index.d != dimension:
        raise StoreError(f"{file}: of keys of dimension {index.d:,} instead of {dimension:,}; {REMEDY}")
    ivf = ivf_of(index)
    if ivf is not None and (ivf.nlist != ivf.invlists.nlist or ivf.quantizer.ntotal != ivf.nlist):
        raise StoreError(f"{file}: its clusters do not agree with each other; {REMEDY}")


def check_quantiser(index: Any, file: Path, quantiser: str | None) -> None:
    """Raise unless the trained part is the recorded one; indexes of earlier versions have no record."""
    if quantiser and quantiser_of(index) != quantiser:
        raise StoreError(f"{file}: not what was trained (its clusters or codes are others); {REMEDY}")


def train(index: Any, keys: list[Array], random: np.random.Generator, factory: str, memory: int | None = None) -> None:
    """Fit clusters and codes to keys drawn evenly from the whole store."""
    entries = sum(len(part) for part in keys)
    clusters = ivf_of(index).nlist if ivf_of(index) else 256
    if entries < clusters:
        raise SettingsError(
            f"--index {factory}: {clusters:,} clusters cannot be trained on {entries:,} entries; "
            "choose another and go on with --resume"
        )
    most = entries if memory is None else max(clusters, memory // 4 // (4 * keys[0].shape[1]))
    wanted = min(entries, most, TRAINING_KEYS_PER_CLUSTER * max(clusters, 1024))
    chosen = random.choice(entries, wanted, replace=False)
    try:
        sample = take(keys, np.sort(chosen))
        quantizer = plain_clusters(index)
        if quantizer is not None:
            centroids = cluster(sample, clusters, random)
            with one_thread():  # with more, a graph would be another in every build
                quantizer.add(centroids)  # FAISS sees them and trains only its codes
            if isinstance(index, faiss.IndexIVFPQFastScan | faiss.IndexIVFRaBitQ):
                # FAISS compares each with all clusters, which takes longer than finding the clusters did.
                sample = sample[random.permutation(len(sample))[:CODE_TRAINING_KEYS]]
        index.train(sample)
    except RuntimeError as error:
        raise SettingsError(f"--index {factory}: training failed on {entries:,} entries ({error})") from error


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, FAISS uses one thread."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def filled(
    index: Any, keys: list[Array], on_entries: Callable[[int], None] = lambda _: None, assign: Assign | None = None
) -> Any:
    """The trained index with all keys in it; `assign`, if given, finds the clusters of the keys."""
    packed = isinstance(index, faiss.IndexIVFPQFastScan) and plain_clusters(index) is not None
    filling = unpacked(index) if packed else index
    among = clusters_of(filling)
    owners = owners_of(blocks(keys), among) if assign is None or among is None else assign(among.all.numpy())
    for block, mine in zip(blocks(keys), owners, strict=True):
        add_keys(filling, block, mine)
        on_entries(len(block))
    if not packed:
        return filling
    full: Any = faiss.IndexIVFPQFastScan(filling)
    full.referenced_objects = [filling]  # it owns what the new one points to
    return full


def unpacked(index: Any) -> Any:
    """The same index with codes one after another: only to such a one can keys be added whose clusters are known."""
    engine: Any = faiss
    plain = engine.IndexIVFPQ(index.quantizer, index.d, index.nlist, index.pq.M, index.pq.nbits)
    plain.by_residual, plain.pq, plain.is_trained = index.by_residual, index.pq, True
    plain.nprobe, plain.referenced_objects = index.nprobe, [index]
    return plain


def clusters_of(index: Any) -> Centroids | None:
    """What finds the cluster of each key that is added, where keys can be added to clusters; faster than FAISS."""
    quantizer = plain_clusters(index)
    return None if quantizer is None or isinstance(index, faiss.IndexIVFFastScan) else found_among(quantizer)


def owners_of(keys: Iterable[Keys], among: Centroids | None) -> Iterator[NDArray[np.int64] | None]:
    """The cluster of each key, block by block; None where the index finds it itself."""
    return (None if among is None else among.owners(block) for block in keys)


def add_keys(index: Any, keys: Keys, owners: NDArray[np.int64] | None) -> None:
    if owners is None:
        index.add(keys)
        return
    engine: Any = faiss
    index.add_core(len(keys), engine.swig_ptr(keys), None, engine.swig_ptr(owners))


def write_index(index: Any, file: Path) -> None:
    try:
        faiss.write_index(index, str(file))
    except RuntimeError as error:
        raise StoreError(f"{file}: cannot be written; is there room on the disk?") from error
    flush_to_disk(file)


def open_index(file: Path, nprobe: int | None) -> Any:
    """The index, memory-mapped: what is not searched is not read. `nprobe` is None for an index without clusters."""
    # Without FAISS's table of every cluster's codes: it takes memory, and searching is as fast without it.
    flags = faiss.IO_FLAG_MMAP_IFC if nprobe is None else faiss.IO_FLAG_MMAP | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    with reading(file):
        index = faiss.read_index(str(file), flags)
    ivf = ivf_of(index)
    lists = file.with_name(lists_name(file.name))
    if has_lists(ivf) and lists.exists():
        attach_lists(index, ivf, lists)
    set_nprobe(index, nprobe)
    set_graph_candidates(index)
    if isinstance(ivf, faiss.IndexIVFRaBitQ):
        ivf.qb = QUERY_BITS
    if isinstance(ivf, faiss.IndexIVFFastScan):
        ivf.implem = QUERY_BY_QUERY
    return index


def measure_recall(index: Any, keys: list[Array], random: np.random.Generator) -> dict[str, float]:
    """The share of true nearest neighbours found, asking with stored keys (each one's own entry left out).

    Distances decide, not entry numbers: equal keys are equally good.
    """
    entries = sum(len(part) for part in keys)
    k = min(RECALL_K, entries - 1)
    if k < 1 or keys_inside(index) is not None:  # an index that looks at every key finds them all
        return {"k": max(k, 1), "queries": 0, "recall": 1.0}
    queries = recall_queries(keys, random)
    return recall_of(index, keys, queries, exact_distances(queries, keys, k + 1)[:, -1:], k)


def recall_queries(keys: list[Array], random: np.random.Generator) -> Keys:
    entries = sum(len(part) for part in keys)
    return take(keys, np.sort(random.choice(entries, min(RECALL_QUERIES, entries), replace=False)))


def recall_of(index: Any, keys: list[Array], queries: Keys, limits: Keys, k: int) -> dict[str, float]:
    """`limits` [queries, 1] is how far the last of the k nearest is from each query, itself not counted."""
    if k < 1:
        return {"k": 1, "queries": 0, "recall": 1.0}
    wider = wider_of(index)
    _, found = index.search(queries, min(wider * (k + 1), index.ntotal))
    distances = np.sort(distances_to(queries, keys, found), axis=1)[:, : k + 1]
    hits = (distances <= limits * (1 + 1e-4) + 1e-4).sum(axis=1) - 1
    return {"k": k, "queries": len(queries), "recall": round(float(np.clip(hits, 0, k).mean() / k), 4)}


def wider_of(index: Any) -> int:
    """How many times k are fetched: several for codes of one bit, otherwise once. The nearest k by their keys are
    kept.
    """
    return ONE_BIT_WIDER if isinstance(ivf_of(index), faiss.IndexIVFRaBitQ) else 1
