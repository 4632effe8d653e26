"""Asking the datastores: decoder states in, neighbours out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import picked, starts
from knnmt.errors import SettingsError, StoreError
from knnmt.search.coarse import probing
from knnmt.search.exact import ExactSearch
from knnmt.search.filtered import search_allowed
from knnmt.search.index import in_single_precision, keys_inside, open_index, set_nprobe, squared_distances
from knnmt.store.datastore import IndexRecord, Store, check_same_model
from knnmt.store.filters import Condition, allowed_entries

KEYS_AT_ONCE = 2048  # re-scored: what is held of the keys stays small, and in the cache
WIDER = 2  # times k are looked up by their codes, of which the nearest k by their keys are kept
FEW = 20_000  # allowed entries, up to which their keys are held in memory and all looked at


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The k nearest entries of each query, nearest first."""

    distances: NDArray[np.float32]  # [queries, k] squared; infinite where fewer than k were found
    entries: NDArray[np.int64]  # [queries, k] numbered through all stores; −1 where none
    tokens: NDArray[np.int64]  # [queries, k]; 0 where none
    trust: NDArray[np.float32] | None = None  # [queries, k] the weight of each one's store; None: all alike


class Retriever:
    """One or several stores of the same model, searched as one.

    `where` leaves only the entries that meet the conditions; `trust` is a weight for each store, which multiplies the
    mass of its neighbours; `names` are what the stores are called in explanations.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        nprobe: int | None = None,
        where: Sequence[Condition] = (),
        trust: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
    ):
        check_same_model(stores)
        if nprobe is not None and nprobe < 1:
            raise SettingsError(f"--nprobe {nprobe}: must be at least 1")
        self.stores = list(stores)
        self.names = [str(store.path) for store in stores] if names is None else list(names)
        self.where = list(where)
        self.searchers = [StoreSearcher(store, nprobe, where) for store in stores]
        self.offsets = np.cumsum([0] + [store.entries for store in stores])
        self.trust = [1.0] * len(stores) if trust is None else list(trust)
        check_something_left(self)

    @property
    def entries(self) -> int:
        """How many may be found."""
        return sum(searcher.entries for searcher in self.searchers)

    @property
    def fingerprint(self) -> str:
        """The model that the keys were made with."""
        return self.stores[0].manifest.model.fingerprint

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        """Queries [n, dimension]; with several stores, the k nearest of all."""
        found = [searcher.search(queries, k) for searcher in self.searchers if searcher.entries]
        for offset, neighbours in zip(self.offsets_searched, found, strict=True):
            neighbours.entries[neighbours.entries >= 0] += offset
        return self.trusted(found[0] if len(found) == 1 else merge(found, k))

    @cached_property
    def offsets_searched(self) -> NDArray[np.int64]:
        return np.array([offset for offset, s in zip(self.offsets, self.searchers, strict=False) if s.entries])

    def trusted(self, found: Neighbours) -> Neighbours:
        """The neighbours with the weights of their stores, where these differ."""
        if len(set(self.trust)) == 1:
            return found
        stores = np.searchsorted(self.offsets, np.maximum(found.entries, 0), side="right") - 1
        return replace(found, trust=np.array(self.trust, np.float32)[stores])

    def name_of(self, store: Store) -> str:
        return self.names[next(number for number, one in enumerate(self.stores) if one is store)]

    def locate(self, entry: int) -> tuple[Store, int]:
        """The store that an entry number belongs to, and its number there."""
        store = int(np.searchsorted(self.offsets, entry, side="right")) - 1
        return self.stores[store], entry - int(self.offsets[store])


class StoreSearcher:
    """One store: its indexes, searched one after another, and what of it may be found."""

    def __init__(self, store: Store, nprobe: int | None, where: Sequence[Condition] = ()):
        store.hold()
        self.store = store
        allowed = allowed_entries(store, where)
        self.entries = store.entries if allowed is None else int(allowed.sum())
        self.pieces: list[Piece] = []
        if allowed is not None and self.entries <= FEW and store.has_keys:
            self.pieces = [FewEntries(store, allowed)]
        else:
            firsts = starts([index.entries for index in store.manifest.indexes])
            for index, first in zip(store.manifest.indexes, firsts, strict=True):
                here = None if allowed is None else allowed[first : first + index.entries]
                self.pieces.append(IndexedEntries(store, index, int(first), nprobe, here))
        self.nprobe = next((piece.nprobe for piece in self.pieces), None)

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        found = [self.with_tokens(*piece.search(queries, min(k, piece.entries))) for piece in self.pieces]
        return found[0] if len(found) == 1 else merge(found, min(k, self.entries))

    def with_tokens(self, distances: NDArray[np.float32], entries: NDArray[np.int64]) -> Neighbours:
        none = entries < 0
        tokens = self.store.values[np.where(none, 0, entries)].astype(np.int64)
        return Neighbours(np.where(none, np.inf, distances), entries, np.where(none, 0, tokens))


class Piece(Protocol):
    """Some entries of a store that are searched together."""

    entries: int
    nprobe: int | None

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and numbers of the k nearest, nearest first; −1 where there are fewer."""


class FewEntries:
    """So few entries are allowed that an index over all of them would hardly meet any: look at each."""

    nprobe: int | None = None

    def __init__(self, store: Store, allowed: NDArray[np.bool_]):
        self.numbers = np.flatnonzero(allowed)
        self.entries = len(self.numbers)
        self.exact = ExactSearch(store.gather("keys", self.numbers).astype(np.float32)) if self.entries else None

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.exact is None:
            return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        distances, rows = self.exact.search(queries, k)
        return distances, self.numbers[rows]


class IndexedEntries:
    """One index and the entries that it covers, with exact distances where the index only knows codes."""

    def __init__(
        self, store: Store, index: IndexRecord, first: int, nprobe: int | None, allowed: NDArray[np.bool_] | None
    ):
        self.store = store
        self.first = first
        self.entries = index.entries
        self.allowed = allowed
        self.open(store.index_file(index), index.nprobe and (nprobe or index.nprobe))

    def open(self, file: Path, nprobe: int | None) -> None:
        """The index, and whatever searches it faster than FAISS alone."""
        self.index: Any = open_index(file, nprobe)
        self.nprobe = set_nprobe(self.index, None)
        self.probing = probing(self.index)
        keys = keys_inside(self.index)
        self.exact = None if keys is None else ExactSearch(keys, self.allowed)

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.exact:
            distances, entries = self.exact.search(queries, k)
            return distances, self.numbered(entries)
        wanted = min(WIDER * k, self.entries) if self.store.has_keys else k
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        distances, entries = self.search_index(queries, wanted)
        entries = self.numbered(entries)
        return self.nearest_by_keys(queries, entries, k) if self.store.has_keys else (distances, entries)

    def search_index(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.allowed is not None:
            return search_allowed(self.index, queries, k, self.allowed)
        found: tuple[NDArray[np.float32], NDArray[np.int64]] = (self.probing or self.index).search(queries, k)
        return found

    def numbered(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(entries < 0, -1, entries + self.first)

    def nearest_by_keys(
        self, queries: NDArray[np.float32], entries: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Codes put distances off by a tenth, and the softmax feels it: compute them anew from the keys, sort again."""
        few = max(1, KEYS_AT_ONCE // entries.shape[1])  # queries
        blocks = [slice(first, first + few) for first in range(0, len(queries), few)]
        distances = np.concatenate([self.distances_to(queries[block], entries[block]) for block in blocks])
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return picked(distances, order), picked(entries, order)

    def distances_to(self, queries: NDArray[np.float32], entries: NDArray[np.int64]) -> NDArray[np.float32]:
        """Squared distances [queries, k] from each query to its entries; infinite where there is none."""
        distinct, places = np.unique(np.maximum(entries, 0), return_inverse=True)  # beams find the same ones
        near = in_single_precision(self.store.rows("keys", distinct))
        return squared_distances(queries, near, np.where(entries < 0, -1, places.reshape(entries.shape)))


def merge(found: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of several lists."""
    distances = np.concatenate([neighbours.distances for neighbours in found], axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]

    def nearest(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return picked(np.concatenate(rows, axis=1), order)

    return Neighbours(
        nearest([neighbours.distances for neighbours in found]),
        nearest([neighbours.entries for neighbours in found]),
        nearest([neighbours.tokens for neighbours in found]),
    )


def check_something_left(retriever: Retriever) -> None:
    if retriever.entries:
        return
    names = ", ".join(str(store.path) for store in retriever.stores)
    if retriever.where:
        raise SettingsError(f"--where {' --where '.join(map(str, retriever.where))}: nothing in {names} meets it")
    raise StoreError(f"{names}: every sentence pair has been removed; nothing is left to retrieve")
