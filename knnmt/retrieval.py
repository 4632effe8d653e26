"""Asking the datastores: decoder states in, neighbours out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.errors import SettingsError, StoreError
from knnmt.index import exact_search, open_index, set_nprobe
from knnmt.store import Store


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The k nearest entries of each query, nearest first."""

    distances: NDArray[np.float32]  # [queries, k] squared; infinite where fewer than k were found
    entries: NDArray[np.int64]  # [queries, k] numbered through all stores; −1 where none
    tokens: NDArray[np.int64]  # [queries, k]; 0 where none


class Retriever:
    """One or several stores of the same model, searched as one."""

    def __init__(self, stores: Sequence[Store], *, nprobe: int | None = None):
        check_same_model(stores)
        if nprobe is not None and nprobe < 1:
            raise SettingsError(f"--nprobe {nprobe}: must be at least 1")
        self.stores = list(stores)
        self.searchers = [StoreSearcher(store, nprobe) for store in stores]
        self.offsets = np.cumsum([0] + [store.entries for store in stores])

    @property
    def entries(self) -> int:
        return int(self.offsets[-1])

    @property
    def fingerprint(self) -> str:
        """The model that the keys were made with."""
        return self.stores[0].manifest.model.fingerprint

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        """Queries [n, dimension]; with several stores, the k nearest of all."""
        found = [searcher.search(queries, k) for searcher in self.searchers]
        for offset, neighbours in zip(self.offsets[1:-1], found[1:], strict=True):
            neighbours.entries[neighbours.entries >= 0] += offset
        return found[0] if len(found) == 1 else merge(found, k)

    def locate(self, entry: int) -> tuple[Store, int]:
        """The store that an entry number belongs to, and its number there."""
        store = int(np.searchsorted(self.offsets, entry, side="right")) - 1
        return self.stores[store], entry - int(self.offsets[store])


class StoreSearcher:
    """One store's index, with exact distances where the index only knows codes."""

    def __init__(self, store: Store, nprobe: int | None):
        self.store = store
        usual = store.manifest.index.nprobe  # None: the index has no clusters
        self.index: Any = open_index(store.index_file, usual and (nprobe or usual))
        self.nprobe = set_nprobe(self.index, None)
        self.exact = exact_search(self.index)

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        k = min(k, self.store.entries)
        if self.exact:
            distances, entries = self.exact.search(queries, k)
        else:
            _, entries = self.index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
            distances, entries = self.exact_distances(queries, entries)
        none = entries < 0
        tokens = self.store.values[np.where(none, 0, entries)].astype(np.int64)
        return Neighbours(np.where(none, np.inf, distances), entries, np.where(none, 0, tokens))

    def exact_distances(
        self, queries: NDArray[np.float32], entries: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Codes put distances off by a tenth, and the softmax feels it: compute them anew from the keys, sort again."""
        keys = self.store.gather("keys", np.maximum(entries, 0).ravel())
        near = keys.reshape(*entries.shape, -1).astype(np.float32)  # [queries, k, dimension]
        near -= queries[:, None, :]
        distances = np.where(entries < 0, np.inf, np.einsum("nkd,nkd->nk", near, near))
        order = np.argsort(distances, axis=1, kind="stable")
        return np.take_along_axis(distances, order, 1), np.take_along_axis(entries, order, 1)


def merge(found: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of several lists."""
    distances = np.concatenate([neighbours.distances for neighbours in found], axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]

    def nearest(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.take_along_axis(np.concatenate(rows, axis=1), order, axis=1)

    return Neighbours(
        nearest([neighbours.distances for neighbours in found]),
        nearest([neighbours.entries for neighbours in found]),
        nearest([neighbours.tokens for neighbours in found]),
    )


def check_same_model(stores: Sequence[Store]) -> None:
    if not stores:
        raise StoreError("--store is missing: retrieval needs at least one datastore")
    first = stores[0].manifest.model
    for store in stores[1:]:
        other = store.manifest.model
        if (other.fingerprint, other.key_site) != (first.fingerprint, first.key_site):
            raise StoreError(
                f"{store.path}: made with another model ({other.name}) than {stores[0].path} ({first.name}); "
                "stores that are used together must be made with the same one"
            )
        if other.target_lang != first.target_lang:
            raise StoreError(
                f"{store.path}: translates into {other.target_lang}, but {stores[0].path} into {first.target_lang}"
            )
