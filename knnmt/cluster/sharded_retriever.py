"""A `Retriever` over stores whose entries are distributed over actors.

Clusters are found here, by the one quantiser of each index. Every shard searches its part of these clusters. The
neighbours are chosen from the candidates of all shards as in local search, so they are the same, bit for bit.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from knnmt.cluster.actors import PATIENCE, Request, Shards
from knnmt.cluster.direct_shards import DirectShards
from knnmt.cluster.shard import ShardAnswer, ShardContents
from knnmt.errors import ClusterError, SettingsError
from knnmt.mixing.neighbours import Neighbours
from knnmt.retrieval.local_retriever import LocalRetriever, StoreSearcher, merge_neighbours
from knnmt.retrieval.searchers import Candidates, Opening, StorePiece, looked_up
from knnmt.search.allowed import Allowed
from knnmt.search.coarse import Assigned, Probing, probing
from knnmt.search.cutting import trained_part
from knnmt.search.index import check_quantiser, wider_of
from knnmt.search.internals import set_nprobe
from knnmt.search.nearest import Found, by_distance
from knnmt.store.datastore import Store
from knnmt.store.filters import Condition
from knnmt.store.tiers import IndexUnit

SHARDS = 2
SPARE_MEMORY = 300 << 20  # bytes of a shard beside its share of the indexes: libraries and centroids


class ShardedRetriever(LocalRetriever):
    """As `LocalRetriever`, with Ray connected; `patience` is how long, in seconds, an answer may take.

    Two threads may search at the same time.
    """

    waits = True

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        nprobe: int | None = None,
        where: Sequence[Condition] = (),
        trust: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
        shards: int = SHARDS,
        patience: float = PATIENCE,
    ):
        if shards < 1:
            raise SettingsError(f"--shards {shards}: must be at least 1")
        super().__init__(stores, nprobe=nprobe, where=where, trust=trust, names=names)
        opened = tuple((str(store.path.resolve()), store.manifest) for store in stores)
        contents = ShardContents(opened, nprobe, tuple(map(str, where)))
        files = [file for store in stores for index in store.manifest.indexes for file in index.files().values()]
        memory = sum(file.bytes for file in files) // shards + SPARE_MEMORY
        self.shards = Shards(contents, shards, memory=memory, patience=patience)
        self.lines = DirectShards(self.shards)
        held, expected = self.shards.entries(), sum(front.entries for front in self.fronts)
        if held != expected:
            raise ClusterError(f"{self.names[0]}: its shards have {held:,} entries instead of {expected:,}")

    def searcher(self, store: Store, nprobe: int | None, where: Sequence[Condition]) -> StoreSearcher:
        return StoreSearcher(store, nprobe, where, FrontOpening())

    @property
    def fronts(self) -> "list[Front]":
        return [piece for searcher in self.searchers for piece in searcher.pieces if isinstance(piece, Front)]

    def search_stores(self, queries: NDArray[np.float32], k: int) -> list[Neighbours]:
        """One round trip for all stores."""
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        request = Request(queries, k, [front.assign(queries) for front in self.fronts])
        answers = iter(zip(*self.lines.search(request), strict=True))
        found = []
        for searcher in self.searchers:
            pieces = [nearest_of_piece(next(answers), min(k, piece.entries), piece) for piece in searcher.pieces]
            if searcher.entries:
                found.append(pieces[0] if len(pieces) == 1 else merge_neighbours(pieces, min(k, searcher.entries)))
        return found


def nearest_of_piece(answers: Sequence[ShardAnswer | None], k: int, piece: StorePiece) -> Neighbours:
    """The k nearest of one piece, chosen from the candidates of the shards as local search would choose."""
    there = [answer for answer in answers if answer is not None]
    codes, distances, entries, tokens = (np.concatenate(column, axis=1) for column in zip(*there, strict=True))
    wanted = looked_up(k, piece.wider) if isinstance(piece, Front) and piece.has_keys else k
    if codes.shape[1] > wanted:
        order = np.sort(np.argsort(codes, axis=1, kind="stable")[:, :wanted], axis=1)
        rows = np.arange(len(order))[:, None]
        distances, entries, tokens = distances[rows, order], entries[rows, order], tokens[rows, order]
    return Neighbours(*by_distance(distances, entries, tokens, k=k))


class FrontOpening(Opening):
    """Opens only the part of each piece that finds the clusters of queries."""

    def kept(self, make: Callable[[], StorePiece], entries: int) -> StorePiece:  # noqa: ARG002
        return Front(entries, True)

    def indexed(
        self,
        store: Store,
        unit: IndexUnit,
        first: int,  # noqa: ARG002
        nprobe: int | None,
        allowed: Allowed | None,  # noqa: ARG002
    ) -> StorePiece:
        front = Front(unit.entries, unit.has_keys)
        probed = unit.index.nprobe and (nprobe or unit.index.nprobe)
        if probed is not None:
            file = store.index_file(unit.index)
            quantiser = trained_part(file, probed)
            check_quantiser(quantiser, file, unit.index.quantiser)
            front.wider = wider_of(quantiser)
            front.nprobe, front.probing = set_nprobe(quantiser, None), probing(quantiser)
        return front


class Front:
    """A piece whose entries are on shards."""

    def __init__(self, entries: int, has_keys: bool) -> None:
        self.entries, self.has_keys = entries, has_keys
        self.nprobe: int | None = None
        self.wider = 1
        self.probing: Probing | None = None

    def assign(self, queries: NDArray[np.float32]) -> Assigned | None:
        """The clusters of the queries; None where each shard finds them itself, or there are none."""
        return self.probing.assign(queries) if self.probing else None

    def candidates(self, queries: NDArray[np.float32], k: int, assigned: Assigned | None = None) -> Candidates:
        raise NotImplementedError

    def search(self, queries: NDArray[np.float32], k: int) -> Found:
        raise NotImplementedError
