"""Searches an index among allowed entries only. Others are excluded during the search, not afterwards."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.search.allowed import Allowed
from knnmt.search.distances import Keys
from knnmt.search.library import faiss

engine: Any = faiss  # its type hints lack the keywords used here


MANY = 0.05  # of all entries; if no more are gone, it is quicker to drop them from what was found


def search_allowed(
    index: Any, queries: Keys, k: int, allowed: Allowed, searcher: Any = None
) -> tuple[Keys, NDArray[np.int64]]:
    """The k nearest of the allowed entries; −1 if fewer were found. `searcher` is a faster way to search all."""
    if allowed.bits is None and len(allowed.gone) <= MANY * allowed.entries:
        return search_wider(searcher or index, queries, k, allowed)
    selector = engine.IDSelectorBitmap(allowed.packed())
    try:
        distances, entries = index.search(queries, k, params=parameters_with(index, selector))
        return only_allowed(distances, entries, allowed, k)
    except RuntimeError:  # not every kind of index can select
        return search_wider(index, queries, k, allowed)


def parameters_with(index: Any, selector: Any) -> Any:
    """A selector in search parameters of the index's own kind, with its usual settings, as FAISS wants them."""
    index = engine.downcast_index(index)
    if isinstance(index, engine.IndexPreTransform):
        return engine.SearchParametersPreTransform(index_params=parameters_with(index.index, selector))
    if isinstance(index, engine.IndexIVF):
        return engine.SearchParametersIVF(sel=selector, nprobe=index.nprobe)
    if isinstance(index, engine.IndexHNSW):
        return engine.SearchParametersHNSW(sel=selector, efSearch=index.hnsw.efSearch)
    return engine.SearchParameters(sel=selector)


def search_wider(index: Any, queries: Keys, k: int, allowed: Allowed) -> tuple[Keys, NDArray[np.int64]]:
    """Search for more and more candidates until every query has k allowed ones or all were seen."""
    most = min(k + min(k, len(allowed.gone)) if allowed.bits is None else 4 * k, allowed.entries)
    while True:
        all_distances, all_entries = index.search(queries, most)
        distances, entries = only_allowed(all_distances, all_entries, allowed, k)
        if most == allowed.entries or (entries >= 0).all() or (all_entries < 0).any(axis=1).all():
            return distances, entries
        most = min(4 * most, allowed.entries)


def only_allowed(
    distances: Keys, entries: NDArray[np.int64], allowed: Allowed, k: int
) -> tuple[Keys, NDArray[np.int64]]:
    """The first k of each row that are allowed."""
    fine = (entries >= 0) & allowed.holds(np.clip(entries, 0, allowed.entries - 1))
    order = np.argsort(~fine, axis=1, kind="stable")[:, :k]
    fine = np.take_along_axis(fine, order, 1)
    nearest = np.where(fine, np.take_along_axis(distances, order, 1), np.inf)
    return nearest.astype(np.float32), np.where(fine, np.take_along_axis(entries, order, 1), -1)
