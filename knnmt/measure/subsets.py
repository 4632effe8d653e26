"""Nested random subsets of a datastore, to measure smaller stores without running the model again.

The store's segments have a random but fixed order, and a subset is a prefix of it: each smaller subset lies within
every larger one. A subset has its own index over the stored keys, as a build of its size would make it. So its speed is
that of a smaller store, and not that of a filter on a large one. Entries keep their numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array
from knnmt.errors import SettingsError, StoreError
from knnmt.layout.bitmaps import as_array
from knnmt.layout.records import COLUMNS
from knnmt.retrieval.local_retriever import LocalRetriever, StoreSearcher
from knnmt.retrieval.searchers import IndexedEntries, Opened
from knnmt.search.factories import automatic_factory, make_index, was_automatic
from knnmt.search.index import build_index
from knnmt.search.internals import ivf_of
from knnmt.store.datastore import INDEX, Store

SEED = 0
KEYS_COPIED_AT_ONCE = 65_536
CODES = 256  # an index that is trained needs as many keys as its codes have values

Entries = NDArray[np.int64]


class Nesting:
    """The random order of a store's segments, of which subsets are prefixes."""

    def __init__(self, store: Store, seed: int = SEED) -> None:
        owners = store.segment_numbers(np.arange(store.entries))
        live = np.ones(store.manifest.segments, bool)
        live[as_array(store.removed)] = False
        ranks = np.full(len(live), len(live))  # what was removed comes last, beyond every share
        ranks[live] = np.random.default_rng(seed).permutation(live.sum())
        self.store = store
        self.segments = int(live.sum())
        self.ranks = ranks[owners]  # [entries] the rank of each entry's segment

    def segments_of(self, size: float) -> int:
        """How many segments a fraction of the store has; at least one."""
        return max(1, round(size * self.segments))

    def entries_of(self, size: float) -> Entries:
        """The entries of a share of the segments, in ascending order."""
        return np.flatnonzero(self.ranks < self.segments_of(size))


@dataclass(frozen=True, slots=True)
class Subset:
    """Some entries of a store and the index made for them."""

    store: Store
    entries: Entries
    file: Path
    factory: str
    nprobe: int | None

    def retriever(self, nprobe: int | None = None) -> LocalRetriever:
        return SubsetRetriever(self, nprobe)


def factory_for(store: Store, entries: int) -> str:
    """The factory of a subset's index: chosen by size if the store's own is, otherwise the same."""
    own, dimension = store.manifest.index, store.manifest.model.dimension
    by_size = was_automatic(own.factory, own.entries, dimension)
    return automatic_factory(entries, dimension) if by_size else own.factory


def check_trainable(store: Store, size: float, entries: int) -> None:
    """Raise before the work begins if the subset is too small for its index."""
    factory = factory_for(store, entries)
    index = make_index(factory, store.manifest.model.dimension)
    needed = 1 if index.is_trained else max(CODES, ivf_of(index).nlist if ivf_of(index) else 0)
    if entries < needed:
        raise SettingsError(f"--sizes {size:g}: its {entries:,} entries are too few for the store's index {factory}")


def make_subset(store: Store, entries: Entries, folder: Path, on_entries: Callable[[int], None]) -> Subset:
    """Index some entries of a store, in a folder that must outlive their use."""
    if not store.has_keys:
        raise StoreError(f"{store.path}: its keys were dropped, so no part of it can be indexed anew")
    copy = folder / "keys.npy"
    keys = copy_keys(store, entries, copy)
    file = folder / INDEX
    built = build_index([keys], file, factory=factory_for(store, len(entries)), on_entries=on_entries)
    copy.unlink()  # searching reads the store's own keys
    return Subset(store, entries, file, built.factory, built.nprobe)


def copy_keys(store: Store, entries: Entries, file: Path) -> Array:
    """The keys of some entries, memory-mapped, [entries, dimension]."""
    shape = (len(entries), store.manifest.model.dimension)
    keys = np.lib.format.open_memmap(file, "w+", COLUMNS["keys"], shape)
    for first in range(0, len(entries), KEYS_COPIED_AT_ONCE):
        block = slice(first, first + KEYS_COPIED_AT_ONCE)
        keys[block] = store.gather("keys", entries[block])
    return keys


class SubsetEntries(IndexedEntries):
    """Some entries of a store under their numbers in the store."""

    def __init__(self, subset: Subset, nprobe: int | None) -> None:
        self.store = subset.store
        self.numbers = subset.entries
        self.entries = len(subset.entries)
        self.allowed = None
        self.has_keys = True
        self.use(Opened(subset.file, subset.nprobe and (nprobe or subset.nprobe)))

    def numbered(self, entries: Entries) -> Entries:
        return np.where(entries < 0, -1, self.numbers[entries])


class SubsetSearcher(StoreSearcher):
    """Searches a subset of a store."""

    def __init__(self, subset: Subset, nprobe: int | None) -> None:
        piece = SubsetEntries(subset, nprobe)
        self.store, self.entries, self.pieces, self.nprobe = subset.store, piece.entries, [piece], piece.nprobe


class SubsetRetriever(LocalRetriever):
    """A retriever over a subset of one store."""

    def __init__(self, subset: Subset, nprobe: int | None) -> None:
        self.stores, self.searchers = [subset.store], [SubsetSearcher(subset, nprobe)]
        self.names, self.trust, self.where = [str(subset.store.path)], [1.0], []
        self.offsets = np.array([0, subset.store.entries])
