"""A `Retriever` over datastores on this machine, which are searched as one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import picked
from knnmt.errors import SettingsError, StoreError
from knnmt.mixing.neighbours import Neighbours
from knnmt.retrieval.retriever import Located
from knnmt.retrieval.searchers import FewEntries, Opening, StorePiece, pieces_of
from knnmt.store.datastore import Store, check_same_model
from knnmt.store.filters import Condition, allowed_entries

FEW = 20_000  # allowed entries, up to which their keys are held in memory and all looked at


class LocalRetriever:
    """One or several stores of the same model, searched as one.

    `where` leaves only the entries that meet the conditions; `trust` is a weight for each store, which multiplies the
    mass of its neighbours; `names` are what the stores are called in explanations.
    """

    waits = False  # whether a search waits for other processes, so that this one could work meanwhile

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
        self.searchers = [self.searcher(store, nprobe, where) for store in stores]
        self.offsets = np.cumsum([0] + [store.entries for store in stores])
        self.trust = [1.0] * len(stores) if trust is None else list(trust)
        check_something_left(self)

    @property
    def entries(self) -> int:
        """The number of entries that may be found."""
        return sum(searcher.entries for searcher in self.searchers)

    @property
    def fingerprint(self) -> str:
        """The model that the keys were made with."""
        return self.stores[0].manifest.model.fingerprint

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        """Queries [n, dimension]; with several stores, the k nearest of all."""
        found = self.search_stores(queries, k)
        for offset, neighbours in zip(self.offsets_searched, found, strict=True):
            neighbours.entries[neighbours.entries >= 0] += offset
        return self.trusted(found[0] if len(found) == 1 else merge_neighbours(found, k))

    def searcher(self, store: Store, nprobe: int | None, where: Sequence[Condition]) -> "StoreSearcher":
        return StoreSearcher(store, nprobe, where)

    def search_stores(self, queries: NDArray[np.float32], k: int) -> list[Neighbours]:
        """The neighbours in each store that has entries."""
        return [searcher.search(queries, k) for searcher in self.searchers if searcher.entries]

    @cached_property
    def offsets_searched(self) -> NDArray[np.int64]:
        return np.array([offset for offset, s in zip(self.offsets, self.searchers, strict=False) if s.entries])

    def trusted(self, found: Neighbours) -> Neighbours:
        """The neighbours with the weights of their stores, where these differ."""
        if len(set(self.trust)) == 1:
            return found
        stores = np.searchsorted(self.offsets, np.maximum(found.entries, 0), side="right") - 1
        return replace(found, trust=np.array(self.trust, np.float32)[stores])

    def locate(self, entries: Sequence[int]) -> list[Located]:
        """The sentence pairs that entries belong to, whichever store they are in."""
        numbers = np.asarray(entries, np.int64)
        stores = np.searchsorted(self.offsets, numbers, side="right") - 1
        found: list[Located | None] = [None] * len(numbers)
        for number in np.unique(stores):
            rows = np.flatnonzero(stores == number)
            here = located(self.stores[number], self.names[number], numbers[rows] - self.offsets[number])
            for row, one in zip(rows, here, strict=True):
                found[row] = one
        return [one for one in found if one is not None]

    @property
    def signature(self) -> dict[str, str]:
        weighted = zip(self.stores, self.trust, strict=True)
        conditions = {"where": "|where:".join(map(str, self.where))} if self.where else {}
        return {
            "store": "+".join(store_name(store, trust) for store, trust in weighted),
            **conditions,
            "index": "+".join(index_name(searcher) for searcher in self.searchers),
        }


SearchedBy = Callable[..., LocalRetriever]  # with the arguments of `LocalRetriever`


def located(store: Store, name: str, entries: NDArray[np.int64]) -> list[Located]:
    """The sentence pairs and positions of entries of one store; each sentence pair is read once."""
    numbers, positions = store.segment_numbers(entries).tolist(), store.gather("positions", entries).tolist()
    tokens = store.tokens(entries).tolist()
    pairs = {number: store.segment(number) for number in dict.fromkeys(numbers)}
    return [
        Located(name, pairs[number], int(position), int(token))
        for number, position, token in zip(numbers, positions, tokens, strict=True)
    ]


def store_name(store: Store, trust: float) -> str:
    return f"{store.path.name}@{store.fingerprint}" + ("" if trust == 1 else f"×{trust:g}")


def index_name(searcher: "StoreSearcher") -> str:
    indexes, nprobe = searcher.store.manifest.indexes, searcher.nprobe
    factories = "&".join(index.factory for index in indexes)
    return f"{factories},nprobe={nprobe}" if nprobe else factories


class StoreSearcher:
    """One store: its indexes, searched one after another, and what of it may be found."""

    def __init__(
        self,
        store: Store,
        nprobe: int | None,
        where: Sequence[Condition] = (),
        opening: Opening | None = None,
    ):
        store.hold()
        opening = opening or Opening()
        self.store = store
        allowed = allowed_entries(store, where)
        self.entries = store.entries if allowed is None else sum(each.count for each in allowed)
        self.pieces: list[StorePiece] = []
        if where and allowed is not None and self.entries <= FEW and store.has_keys:
            self.pieces = [opening.kept(partial(FewEntries, store, allowed), self.entries)]
        else:
            self.pieces = pieces_of(store, nprobe, allowed, opening)
        self.nprobe = next((piece.nprobe for piece in self.pieces), None)

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        found = [self.with_tokens(*piece.search(queries, min(k, piece.entries))) for piece in self.pieces]
        return found[0] if len(found) == 1 else merge_neighbours(found, min(k, self.entries))

    def with_tokens(self, distances: NDArray[np.float32], entries: NDArray[np.int64]) -> Neighbours:
        none = entries < 0
        tokens = self.store.tokens(np.where(none, 0, entries))
        return Neighbours(np.where(none, np.inf, distances), entries, np.where(none, 0, tokens))


def merge_neighbours(found: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of several lists of neighbours."""
    distances = np.concatenate([neighbours.distances for neighbours in found], axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]

    def nearest(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return picked(np.concatenate(rows, axis=1), order)

    return Neighbours(
        nearest([neighbours.distances for neighbours in found]),
        nearest([neighbours.entries for neighbours in found]),
        nearest([neighbours.tokens for neighbours in found]),
    )


def check_something_left(retriever: LocalRetriever) -> None:
    if retriever.entries:
        return
    names = ", ".join(str(store.path) for store in retriever.stores)
    if retriever.where:
        raise SettingsError(f"--where {' --where '.join(map(str, retriever.where))}: nothing in {names} meets it")
    raise StoreError(f"{names}: every sentence pair has been removed; nothing is left to retrieve")
