"""One shard of some stores: it holds a range of the entries of every index in memory.

A shard knows nothing of Ray. It returns candidates; the caller asks all shards and chooses the nearest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt.layout.manifest import Manifest
from knnmt.retrieval.local_retriever import StoreSearcher
from knnmt.retrieval.searchers import Candidates, IndexedEntries, Opening, StorePiece
from knnmt.search.allowed import Allowed
from knnmt.search.coarse import Assigned, probing
from knnmt.search.cutting import Cut
from knnmt.search.index import check_quantiser
from knnmt.search.nearest import Found
from knnmt.store.datastore import Store
from knnmt.store.filters import Condition
from knnmt.store.tiers import IndexUnit


@dataclass(frozen=True, slots=True)
class ShardNumber:
    """The number of a shard, and how many there are."""

    number: int
    of: int

    def range(self, entries: int) -> tuple[int, int]:
        """The entries of an index that this shard has, from and up to."""
        return entries * self.number // self.of, entries * (self.number + 1) // self.of

    def has(self, piece: int) -> bool:
        """Whether this shard has a piece that is not cut."""
        return piece % self.of == self.number


@dataclass(frozen=True, slots=True)
class ShardContents:
    """What all shards together hold: the stores in the version that was opened."""

    stores: tuple[tuple[str, Manifest], ...]
    nprobe: int | None
    where: tuple[str, ...]


class ShardAnswer(NamedTuple):
    """Candidates of one piece with their tokens, all [queries, n]."""

    codes: NDArray[np.float32]
    distances: NDArray[np.float32]
    entries: NDArray[np.int64]
    tokens: NDArray[np.int64]


class Shard:
    """The entries of some stores that belong to one shard."""

    def __init__(self, contents: ShardContents, share: ShardNumber) -> None:
        where = [Condition.parse(text) for text in contents.where]
        stores = [Store(Path(path), manifest) for path, manifest in contents.stores]
        self.searchers = [StoreSearcher(store, contents.nprobe, where, Cutting(share)) for store in stores]

    @property
    def entries(self) -> int:
        """The number of entries of this shard."""
        return sum(piece.entries for searcher in self.searchers for piece in searcher.pieces)

    def search(
        self, queries: NDArray[np.float32], k: int, assigned: Sequence[Assigned | None]
    ) -> list[ShardAnswer | None]:
        """The candidates of every piece of every store; None if another shard has the piece."""
        pieces = [(searcher, piece) for searcher in self.searchers for piece in searcher.pieces]
        return [
            answer(searcher.store, piece.candidates(queries, k, clusters)) if piece.entries else None
            for (searcher, piece), clusters in zip(pieces, assigned, strict=True)
        ]


def answer(store: Store, found: Candidates) -> ShardAnswer:
    none = found.entries < 0
    tokens = store.tokens(np.where(none, 0, found.entries))
    distances = np.where(none, np.float32(np.inf), found.distances)
    return ShardAnswer(found.codes, distances, found.entries, np.where(none, 0, tokens))


class Cutting(Opening):
    """Opens a shard's range of each piece. Small pieces go to one shard as a whole."""

    def __init__(self, share: ShardNumber) -> None:
        self.share, self.seen = share, 0

    def kept(self, make: Callable[[], StorePiece], entries: int) -> StorePiece:  # noqa: ARG002
        return make() if self.is_mine() else Nothing()

    def indexed(
        self, store: Store, unit: IndexUnit, first: int, nprobe: int | None, allowed: Allowed | None
    ) -> StorePiece:
        probed = unit.index.nprobe and (nprobe or unit.index.nprobe)
        mine, (low, high) = self.is_mine(), self.share.range(unit.entries)
        opened = Cut.of(store.index_file(unit.index), probed, low, high)
        if opened is not None:
            check_quantiser(opened.index, opened.file, unit.index.quantiser)
            return CutEntries(store, unit, first, allowed, opened)
        return IndexedEntries(store, unit, first, nprobe, allowed) if mine else Nothing()

    def is_mine(self) -> bool:
        self.seen += 1
        return self.share.has(self.seen - 1)


class Nothing:
    """A piece that another shard has."""

    entries = 0
    nprobe: int | None = None

    def candidates(self, queries: NDArray[np.float32], k: int, assigned: Assigned | None = None) -> Candidates:
        raise NotImplementedError

    def search(self, queries: NDArray[np.float32], k: int) -> Found:
        raise NotImplementedError


class CutEntries(IndexedEntries):
    """A range of the entries of one index."""

    def __init__(self, store: Store, unit: IndexUnit, first: int, allowed: Allowed | None, opened: Cut) -> None:
        self.store, self.has_keys, self.allowed = store, unit.has_keys, allowed
        self.first, self.entries = first, opened.end - opened.first
        self.file, self.index, self.nprobe = opened.file, opened.index, opened.nprobe
        self.within, self.whole = opened, unit.entries
        self.probing = probing(self.index, assigns=False) if opened.exact is None else None
        self.exact = opened.exact
        if self.exact and allowed:
            self.exact = self.exact.among(allowed.mask()[opened.first : opened.end])

    def numbered(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        offset = self.first + (self.within.first if self.exact else 0)
        return np.where(entries < 0, -1, entries + offset)
