"""Searches the pieces of a store one after another: its indexes, and keys that have no index.

Readers share what they have opened of an index. Files of a store never change, so a reader that moves to the next
version of a store opens only new files.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import starts
from knnmt.errors import StoreError
from knnmt.files import REMEDY
from knnmt.layout.records import KEYS
from knnmt.search.allowed import Allowed
from knnmt.search.coarse import Assigned, Within, probing
from knnmt.search.distances import in_single_precision, squared_distances
from knnmt.search.exact import ExactSearch
from knnmt.search.filtered import search_allowed
from knnmt.search.index import check_index, open_index, wider_of
from knnmt.search.internals import keys_inside, set_nprobe
from knnmt.search.nearest import Found, Rows, by_distance, nearest_of
from knnmt.store.datastore import Store
from knnmt.store.tiers import IndexUnit, units_of

KEYS_AT_ONCE = 2048  # re-scored: what is held of the keys stays small, and in the cache
SPARE = 16  # candidates beside k, or as many as k, or half of k: each leaves out as little of the neighbours' weight
SMALL = 1024  # entries of a unit, below which it is searched together with its neighbours

Kind = TypeVar("Kind")


class Candidates(NamedTuple):
    """Entries from which the nearest are chosen, all [queries, n], ordered by number or by distance."""

    codes: NDArray[np.float32]  # squared distances as the index has them, by which these were chosen
    distances: NDArray[np.float32]  # by keys, where there are keys
    entries: NDArray[np.int64]  # −1 where there are fewer


class StorePiece(Protocol):
    """Some entries of a store that are searched together."""

    entries: int
    nprobe: int | None

    def candidates(self, queries: NDArray[np.float32], k: int, assigned: Assigned | None = None) -> Candidates:
        """Those that the k nearest are among; `assigned` are the queries' clusters, if they are known."""

    def search(self, queries: NDArray[np.float32], k: int) -> Found:
        """Squared distances and numbers of the k nearest, nearest first; −1 where there are fewer."""


class Opening:
    """Opens the pieces of a store whole, in this process."""

    def kept(self, make: Callable[[], StorePiece], entries: int) -> StorePiece:  # noqa: ARG002
        """Keys that are all looked at, so many of them."""
        return make()

    def indexed(
        self, store: Store, unit: IndexUnit, first: int, nprobe: int | None, allowed: Allowed | None
    ) -> StorePiece:
        return IndexedEntries(store, unit, first, nprobe, allowed)


def pieces_of(
    store: Store, nprobe: int | None, allowed: Sequence[Allowed] | None, opening: Opening | None = None
) -> list[StorePiece]:
    """Everything of a store that may be found; `allowed` is of each of its indexes."""
    opening = opening or Opening()
    units = units_of(store.manifest)
    firsts = starts([unit.entries for unit in units]).tolist()
    found: list[StorePiece] = []
    for together, numbers in groupby(range(len(units)), lambda number: is_small(units[number]) or -1 - number):
        run = [number for number in numbers if units[number].entries]
        some = [allowed[number] for number in run] if allowed else None
        if together is True:
            small = partial(KeptKeys, store, [firsts[number] for number in run], some, small=True)
            found += [opening.kept(small, sum(units[number].entries for number in run))] if run else []
        elif run and units[run[0]].index.factory == KEYS:
            found.append(opening.kept(partial(KeptKeys, store, [firsts[run[0]]], some), units[run[0]].entries))
        elif run:
            found.append(opening.indexed(store, units[run[0]], firsts[run[0]], nprobe, some[0] if some else None))
    return found


def is_small(unit: IndexUnit) -> bool:
    return unit.index.factory == KEYS and unit.entries < SMALL


class Opened:
    """An index, and whatever searches it faster than FAISS alone."""

    def __init__(self, file: Path, nprobe: int | None) -> None:
        self.file = file
        self.index: Any = open_index(file, nprobe)
        self.nprobe = set_nprobe(self.index, None)
        self.probing = probing(self.index)

    @cached_property
    def exact(self) -> ExactSearch | None:
        """Where the index keeps keys as they are, all of them are looked at."""
        keys = keys_inside(self.index)
        return None if keys is None else ExactSearch(keys)


shared: "WeakValueDictionary[Any, Any]" = WeakValueDictionary()


def share(name: Any, make: Callable[[], Kind]) -> Kind:
    """What is open under this name, or a new one."""
    found: Kind | None = shared.get(name)
    if found is None:
        found = make()
        shared[name] = found
    return found


def looked_up(k: int, wider: int = 1) -> int:
    """How many are looked up by their codes, of which the nearest k by their keys are kept; `wider` is the index's."""
    return max(k + min(k, max(SPARE, k // 2)), wider * k)


class KeptKeys:
    """Units without an index: their keys are in memory, and all are compared."""

    nprobe: int | None = None

    def __init__(self, store: Store, firsts: Sequence[int], allowed: Sequence[Allowed] | None, *, small: bool = False):
        units = {int(first): unit for first, unit in zip(unit_firsts(store), units_of(store.manifest), strict=True)}
        self.first, chosen = firsts[0], [units[first] for first in firsts]
        self.entries = sum(unit.entries for unit in chosen)
        parts = tuple(part.name for unit in chosen for part in unit.parts)
        name = (str(store.path.resolve()), parts, tuple(file.sha256 for unit in chosen for file in unit_files(unit)))
        self.kept = self.read(store) if small else share(name, lambda: self.read(store))  # shared while it is held here
        self.exact = self.kept.among(np.concatenate([each.mask() for each in allowed])) if allowed else self.kept

    def read(self, store: Store) -> ExactSearch:
        keys = store.rows("keys", np.arange(self.first, self.first + self.entries))
        return ExactSearch(in_single_precision(keys))

    def candidates(self, queries: NDArray[np.float32], k: int, _: Assigned | None = None) -> Candidates:
        distances, entries = self.search(queries, min(k, self.entries))
        return Candidates(distances, distances, entries)

    def search(self, queries: NDArray[np.float32], k: int) -> Found:
        distances, entries = self.exact.search(queries, k)
        return distances, np.where(entries < 0, -1, entries + self.first)


def unit_firsts(store: Store) -> NDArray[np.int64]:
    return starts([index.entries for index in store.manifest.indexes])


def unit_files(unit: IndexUnit) -> list[Any]:
    return [file for part in unit.parts for file in part.files.values()]


class FewEntries:
    """All allowed entries are compared: they are so few that a search of the index would find hardly any."""

    nprobe: int | None = None

    def __init__(self, store: Store, allowed: Sequence[Allowed]):
        self.numbers = np.flatnonzero(np.concatenate([each.mask() for each in allowed]))
        self.entries = len(self.numbers)
        self.exact = ExactSearch(store.gather("keys", self.numbers).astype(np.float32)) if self.entries else None

    def candidates(self, queries: NDArray[np.float32], k: int, _: Assigned | None = None) -> Candidates:
        distances, entries = self.search(queries, min(k, self.entries))
        return Candidates(distances, distances, entries)

    def search(self, queries: NDArray[np.float32], k: int) -> Found:
        if self.exact is None:
            return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        distances, rows = self.exact.search(queries, k)
        return distances, self.numbers[rows]


class IndexedEntries:
    """One index and the entries that it covers, with exact distances where the index only knows codes."""

    def __init__(self, store: Store, unit: IndexUnit, first: int, nprobe: int | None, allowed: Allowed | None):
        self.store = store
        self.first = first
        self.entries = unit.entries
        self.allowed = allowed
        self.has_keys = unit.has_keys
        file, record = store.index_file(unit.index), unit.index
        probed = record.nprobe and (nprobe or record.nprobe)
        name = (str(file.resolve()), record.file and record.file.sha256, probed)
        self.use(share(name, lambda: Opened(file, probed)))
        check_index(self.index, file, entries=unit.entries, dimension=store.manifest.model.dimension)

    def use(self, opened: Opened) -> None:
        """Search this index."""
        vars(self).pop("wider", None)
        self.opened, self.file = opened, opened.file
        self.index, self.nprobe, self.probing = opened.index, opened.nprobe, opened.probing
        self.exact = opened.exact.among(self.allowed.mask()) if opened.exact and self.allowed else opened.exact

    @cached_property
    def wider(self) -> int:
        return wider_of(self.index)

    def search(self, queries: NDArray[np.float32], k: int) -> Found:
        _, distances, entries = self.candidates(queries, k)
        near, numbers = by_distance(distances, entries, k=k)
        return near, numbers

    def candidates(self, queries: NDArray[np.float32], k: int, assigned: Assigned | None = None) -> Candidates:
        """Those that the k nearest are among; `assigned` are the queries' clusters, if they are known."""
        if self.exact:
            distances, entries = self.exact.search(queries, min(k, self.entries))
            return Candidates(distances, distances, self.numbered(entries))
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        if assigned is None and self.probing is not None:
            assigned = self.probing.assign(queries)
        wanted = min(looked_up(k, self.wider) if self.has_keys else k, self.entries)
        codes, entries = nearest_of(lambda rows, most: self.found(queries, rows, most, assigned), wanted, self.entries)
        entries = self.numbered(entries)
        return Candidates(codes, self.distances_by_keys(queries, entries) if self.has_keys else codes, entries)

    def found(self, queries: NDArray[np.float32], rows: Rows, k: int, assigned: Assigned | None) -> Found:
        """What the index finds for some of the queries, with distances by its codes."""
        inside = self.probing.within(assigned.of(rows)) if self.probing and assigned else None
        return self.search_index(np.ascontiguousarray(queries[rows]), k, inside)

    def search_index(self, queries: NDArray[np.float32], k: int, inside: Within | None = None) -> Found:
        searcher: Any = inside or self.index
        if self.allowed is not None:
            return search_allowed(self.index, queries, k, self.allowed, searcher)
        found: Found = searcher.search(queries, k)
        return found

    def numbered(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        if entries.max(initial=-1) >= self.entries:
            raise StoreError(f"{self.file}: damaged (it knows entries that are not there); {REMEDY}")
        return np.where(entries < 0, -1, entries + self.first)

    def distances_by_keys(self, queries: NDArray[np.float32], entries: NDArray[np.int64]) -> NDArray[np.float32]:
        """Distances computed from the keys: those by codes are off by about 10 %, which changes the softmax."""
        few = max(1, KEYS_AT_ONCE // entries.shape[1])  # queries
        blocks = [slice(first, first + few) for first in range(0, len(queries), few)]
        return np.concatenate([self.distances_to(queries[block], entries[block]) for block in blocks])

    def distances_to(self, queries: NDArray[np.float32], entries: NDArray[np.int64]) -> NDArray[np.float32]:
        """Squared distances [queries, k] from each query to its entries; infinite where there is none."""
        distinct, places = np.unique(np.maximum(entries, 0), return_inverse=True)  # beams find the same ones
        near = in_single_precision(self.store.rows("keys", distinct))
        return squared_distances(queries, near, np.where(entries < 0, -1, places.reshape(entries.shape)))
