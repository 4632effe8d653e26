"""Nested random parts of a datastore: what a smaller memory would have done, without running the model again.

The store's segments get a random but fixed order, and a part is the first of them: each smaller part lies within every
larger one. A part has an index of its own over the stored keys, the one that a build of its size would make, so that
its speed is that of a smaller store and not of a filter on a large one. Entries keep their numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.errors import SettingsError
from knnmt.index import automatic_factory, build_index, exact_search, ivf_of, make_index, open_index, set_nprobe
from knnmt.retrieval import Retriever, StoreSearcher
from knnmt.store import COLUMNS, INDEX, Array, Store

SEED = 0
KEYS_COPIED_AT_ONCE = 65_536
CODES = 256  # an index that is trained needs as many keys as its codes have values

Entries = NDArray[np.int64]


class Nesting:
    """The random order of a store's segments that its parts are cut from."""

    def __init__(self, store: Store, seed: int = SEED) -> None:
        segments = np.concatenate([np.asarray(column) for column in store.columns("segments")])
        numbers, places = np.unique(segments, return_inverse=True)
        ranks = np.random.default_rng(seed).permutation(len(numbers)).astype(np.uint32)
        self.store = store
        self.segments = len(numbers)
        self.ranks = ranks[places]  # [entries] the rank of each entry's segment

    def segments_of(self, size: float) -> int:
        """How many segments a share of the store is; never none."""
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

    def retriever(self, nprobe: int | None = None) -> Retriever:
        return SubsetRetriever(self, nprobe)


def factory_for(store: Store, entries: int) -> str:
    """The index of a part: by size where the store's own is by size, else the same."""
    own, dimension = store.manifest.index.factory, store.manifest.model.dimension
    by_size = own == automatic_factory(store.entries, dimension)
    return automatic_factory(entries, dimension) if by_size else own


def check_trainable(store: Store, size: float, entries: int) -> None:
    """Known before the work begins: whether the part is large enough for its index."""
    factory = factory_for(store, entries)
    index = make_index(factory, store.manifest.model.dimension)
    needed = 1 if index.is_trained else max(CODES, ivf_of(index).nlist if ivf_of(index) else 0)
    if entries < needed:
        raise SettingsError(f"--sizes {size:g}: its {entries:,} entries are too few for the store's index {factory}")


def make_subset(store: Store, entries: Entries, folder: Path, on_entries: Callable[[int], None]) -> Subset:
    """Index some entries of a store, in a folder that must outlive their use."""
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


class Renumbered:
    """A search among chosen entries that answers with the numbers they have in the store."""

    def __init__(self, inner: Any, entries: Entries) -> None:
        self.inner = inner
        self.entries = entries

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], Entries]:
        distances, found = self.inner.search(queries, min(k, len(self.entries)))
        return distances, np.where(found < 0, -1, self.entries[found])


class SubsetSearcher(StoreSearcher):
    """Searches a part of a store as a whole one is searched."""

    def __init__(self, subset: Subset, nprobe: int | None) -> None:
        index = open_index(subset.file, subset.nprobe and (nprobe or subset.nprobe))
        exact = exact_search(index)
        self.store = subset.store
        self.nprobe = set_nprobe(index, None)
        self.index = Renumbered(index, subset.entries)
        self.exact: Any = exact and Renumbered(exact, subset.entries)


class SubsetRetriever(Retriever):
    """One store of which only some entries are there."""

    def __init__(self, subset: Subset, nprobe: int | None) -> None:
        self.stores = [subset.store]
        self.searchers = [SubsetSearcher(subset, nprobe)]
        self.offsets = np.array([0, subset.store.entries])
        self.subset = subset

    @property
    def entries(self) -> int:
        return len(self.subset.entries)
