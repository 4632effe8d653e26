"""Searching an index for allowed entries only: the others are not candidates, not merely dropped afterwards."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.search.index import Keys
from knnmt.search.library import faiss

engine: Any = faiss  # its type hints lack the keywords used here


def search_allowed(index: Any, queries: Keys, k: int, allowed: NDArray[np.bool_]) -> tuple[Keys, NDArray[np.int64]]:
    """The k nearest among the allowed entries [entries]; −1 where fewer were found."""
    selector = engine.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    try:
        distances, entries = index.search(queries, k, params=parameters_with(index, selector))
        return only_allowed(distances, entries, allowed, k)
    except RuntimeError:  # not every kind of index can select
        return search_wider(index, queries, k, allowed)


def parameters_with(index: Any, selector: Any) -> Any:
    """FAISS wants parameters of the index's own kind, its usual settings among them."""
    index = engine.downcast_index(index)
    if isinstance(index, engine.IndexPreTransform):
        return engine.SearchParametersPreTransform(index_params=parameters_with(index.index, selector))
    if isinstance(index, engine.IndexIVF):
        return engine.SearchParametersIVF(sel=selector, nprobe=index.nprobe)
    if isinstance(index, engine.IndexHNSW):
        return engine.SearchParametersHNSW(sel=selector, efSearch=index.hnsw.efSearch)
    return engine.SearchParameters(sel=selector)


def search_wider(index: Any, queries: Keys, k: int, allowed: NDArray[np.bool_]) -> tuple[Keys, NDArray[np.int64]]:
    """Ask for more and more, until every query has its k allowed ones or there are no more."""
    most = k
    while True:
        most = min(4 * most, index.ntotal)
        all_distances, all_entries = index.search(queries, most)
        distances, entries = only_allowed(all_distances, all_entries, allowed, k)
        if most == index.ntotal or (entries >= 0).all():
            return distances, entries


def only_allowed(
    distances: Keys, entries: NDArray[np.int64], allowed: NDArray[np.bool_], k: int
) -> tuple[Keys, NDArray[np.int64]]:
    """The first k of each row that are allowed, whatever the index thought of it."""
    fine = (entries >= 0) & allowed[np.maximum(entries, 0)]
    order = np.argsort(~fine, axis=1, kind="stable")[:, :k]
    fine = np.take_along_axis(fine, order, 1)
    nearest = np.where(fine, np.take_along_axis(distances, order, 1), np.inf)
    return nearest.astype(np.float32), np.where(fine, np.take_along_axis(entries, order, 1), -1)
