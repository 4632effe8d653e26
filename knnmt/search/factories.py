"""Which kind of index suits a store, as a FAISS factory string, and an empty index of that kind."""

import math
import os
import re
from typing import Any

from knnmt.errors import SettingsError
from knnmt.search.internals import ivf_of, set_graph_candidates
from knnmt.search.library import faiss

EXACT_ENTRIES = 10_000  # up to here, looking at every key costs less than a fifth of a model's step
UNCODED_ENTRIES = 100_000  # up to here, keys are held as they are, in clusters; earlier versions looked at every key
PAPER_CODE_BYTES = 64
NPROBE = 16  # clusters searched: on real keys 96 % of the nearest are in them
FEWER_PROBED = {1 << 22: 12, 1 << 23: 8}  # from so many entries on, whose nearest are nearer and in fewer clusters
LINKS = 32  # from each of many centroids to others near it: earlier versions gave large stores a graph of them
ID_BYTES = 8


def automatic_factory(entries: int, dimension: int, memory: int | None = None) -> str:
    """Exact for small stores, then clusters of whole keys, then IVF-PQ as in the paper. More clusters for larger ones.

    Its codes are as long as the paper's but twice as many and half as fine, which a processor reads 15 times as fast.
    """
    if entries <= EXACT_ENTRIES:
        return "Flat"
    if entries <= UNCODED_ENTRIES:
        return f"IVF{clusters_for(entries, 2)},Flat"
    clusters = clusters_for(entries, 8)
    held = entries * (code_pieces(dimension) / 2 + ID_BYTES)  # in memory: such codes cannot be mapped
    codes = f"PQ{code_pieces(dimension)}x4fs" if held <= (memory or half_of_memory()) else "RaBitQ"
    return f"IVF{clusters},{codes}"


def clusters_for(entries: int, times: int) -> int:
    """A power of two, at most so many times the square root of the entries."""
    return int(2 ** int(math.log2(times * math.sqrt(entries))))


def half_of_memory() -> int:
    """Half of this machine's memory, in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not on every system
        return 4 << 30


def automatic_nprobe(entries: int) -> int:
    """The default number of clusters to search. Large stores need fewer."""
    return next((nprobe for least, nprobe in reversed(FEWER_PROBED.items()) if entries >= least), NPROBE)


def was_automatic(factory: str, entries: int, dimension: int) -> bool:
    """Whether an index was chosen by size, perhaps by an earlier version with other limits."""
    if factory == "Flat":
        return entries <= UNCODED_ENTRIES
    if EXACT_ENTRIES < entries <= UNCODED_ENTRIES and factory == automatic_factory(entries, dimension):
        return True
    shape = re.fullmatch(rf"IVF(\d+)(_HNSW{LINKS})?,(PQ{code_pieces(dimension)}x4fs|RaBitQ)", factory)
    return shape is not None and int(shape[1]).bit_count() == 1


def code_pieces(dimension: int) -> int:
    """The largest number of pieces, of half a byte each and at least two numbers, that divides the dimension evenly."""
    most = min(2 * PAPER_CODE_BYTES, max(1, dimension // 2))
    return max(pieces for pieces in range(1, most + 1) if dimension % pieces == 0)


def can_be_extended(factory: str, dimension: int) -> bool:
    """Whether an index can lose its entries and keep what was trained. One with keys beside its codes cannot."""
    index = make_index(factory, dimension)
    if isinstance(index, faiss.IndexPreTransform):
        index = faiss.downcast_index(index.index)
    return isinstance(index, faiss.IndexIVF)


def fits_exact_search(entries: int, factory: str, dimension: int) -> bool:
    """Whether exact search is as cheap as searching this index."""
    ivf = ivf_of(make_index(factory, dimension))
    return entries <= (EXACT_ENTRIES if ivf is None else int(ivf.nlist))


def make_index(factory: str, dimension: int) -> Any:
    """An empty index, or an error that names the flag."""
    if "IDMap" in factory:
        raise SettingsError(f"--index {factory}: entries are numbered by their place; leave IDMap out")
    try:
        index: Any = faiss.index_factory(dimension, factory)
    except RuntimeError as error:
        reason = re.sub(r"^Error in .* at \S+:\d+: ", "", str(error).strip().split("\n")[-1])  # where in FAISS
        raise SettingsError(f"--index {factory}: not possible for keys of dimension {dimension} ({reason})") from error
    for part in (index, ivf_of(index)):
        if getattr(part, "do_polysemous_training", False):
            part.do_polysemous_training = False  # it takes minutes, and serves a kind of search not used here
    set_graph_candidates(index)
    return index
