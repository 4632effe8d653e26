"""Finds the nearest centroids: the first step of a search over clusters.

A few centroids are all compared. For many, FAISS scans 4-bit codes, which is several times as fast, and rescores the
best of them. For very many, it scans only the codes of the nearest groups.
"""

import logging
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.packed_weights import PackedWeights, can_be_packed
from knnmt.search.exact import Keys, distances_less_norms, norms_of, smallest
from knnmt.search.groups import (
    GROUPED_FROM,
    SEARCHED_FOR_A_KEY,
    SEARCHED_FOR_A_QUERY,
    in_groups_of_codes,
    searching,
    searching_all,
)
from knnmt.search.library import faiss
from knnmt.switches import left_out

log = logging.getLogger(__name__)

MANY = 4096  # centroids, from which on they have codes
NUMBERS_A_CODE = 4  # of a centroid
FEWEST_CODES = 32  # of a centroid: with fewer they tell too little apart
CANDIDATES = 4  # times as many as wanted are compared as they are
MORE_CANDIDATES = 8  # the same for the one that is nearest to a key, and among groups
SAMPLE = 1024  # centroids, of which codes of 16 values learn enough
ROUNDS = 10  # of that learning
TRIED = 64  # points near centroids, by which codes are judged
NOISE = 0.5  # of such a point, in standard deviations of the centroids
ENOUGH = 0.8  # of those points must be found to be nearest to what they are nearest to
ENOUGH_IN_GROUPS = 0.9  # the same: otherwise the codes of all are scanned
AT_ONCE = 1 << 22  # distances of keys to centroids: they stay in the processor's cache
CODED_AT_ONCE = 4096  # keys that are compared with codes

Found = tuple[NDArray[np.float32], NDArray[np.int64]]  # squared distances and numbers, both [queries, n], nearest first


class Coded(NamedTuple):
    """A FAISS index of the centroids' codes, in groups or not, that rescores the best of them."""

    index: Any
    in_groups: bool

    def nearest(self, queries: Keys, n: int) -> Found | None:
        """The n nearest of each query; None if so many are not found."""
        if not self.in_groups:
            return self.found(queries, n, searching_all(CANDIDATES))
        found = self.found(queries, n, searching(max(n, SEARCHED_FOR_A_QUERY), MORE_CANDIDATES))
        return found if (found[1] >= 0).all() else None

    def owners(self, keys: Keys) -> NDArray[np.int64]:
        """The nearest of each key; what it is looked for among is smaller than for a query, because keys are many."""
        few = searching(SEARCHED_FOR_A_KEY, MORE_CANDIDATES) if self.in_groups else searching_all(MORE_CANDIDATES)
        return self.found(keys, 1, few)[1][:, 0]

    def found(self, queries: Keys, n: int, parameters: Any) -> Found:
        found: Found = self.index.search(queries, n, params=parameters)
        return found


class Centroids:
    """The centroids [n, dimension]; `held` is a FAISS index of just these, if there is one already."""

    def __init__(self, centroids: Keys, held: Any = None) -> None:
        self.all = torch.from_numpy(centroids)
        self.coded: Coded | None = None
        objection = objection_to_codes(centroids)
        if objection is None:
            self.coded = next(filter(self.sufficient, codes_of(centroids, held)), None)
            objection = None if self.coded else "codes tell too few of them apart"
        if objection:
            log.debug("centroids: not taken: %s", objection)

    @property
    def in_groups(self) -> bool:
        """Whether few of them are compared, however many there are."""
        return self.coded is not None and self.coded.in_groups

    def nearest(self, queries: Keys, n: int) -> Found:
        """The n nearest of each query."""
        found = None
        if self.coded is not None and n * MORE_CANDIDATES < self.all.shape[0]:
            found = self.coded.nearest(queries, n)
        return self.compared(queries, n) if found is None else found

    def owners(self, keys: Keys) -> NDArray[np.int64]:
        """The nearest centroid of each key, [n]."""
        rows = CODED_AT_ONCE if self.coded is not None else max(1, AT_ONCE // len(self.all))
        blocks = (keys[first : first + rows] for first in range(0, max(1, len(keys)), rows))
        return np.concatenate([self.owners_at_once(block) for block in blocks])

    def owners_at_once(self, keys: Keys) -> NDArray[np.int64]:
        """The same for keys whose distances to all centroids fit into the processor's cache."""
        if self.coded is not None:
            return self.coded.owners(keys)
        return np.asarray(self.products(torch.from_numpy(keys)).numpy().argmin(axis=1))  # torch's takes thrice as long

    def compared(self, queries: Keys, n: int) -> Found:
        """The n nearest of each query, by comparing all centroids."""
        asked = torch.from_numpy(queries)
        near, numbers = smallest(self.products(asked), n)
        return (near + norms_of(asked)[:, None]).clamp_min(0.0).numpy(), numbers.contiguous().numpy()

    def products(self, asked: torch.Tensor) -> torch.Tensor:
        """Squared distances to all centroids less each query's own norm, [queries, centroids]."""
        return self.packed.product(asked) if self.packed else distances_less_norms(asked, self.all, self.norms)

    def sufficient(self, coded: Coded) -> bool:
        """Whether codes find the nearest centroids. They fail if a few dimensions dominate."""
        random = np.random.default_rng(0)
        spread = self.all.std(dim=0).numpy()
        some = self.all.numpy()[random.choice(len(self.all), TRIED, replace=False)]
        points = (some + NOISE * spread * random.normal(size=some.shape)).astype(np.float32)
        true = distances_less_norms(torch.from_numpy(points), self.all, self.norms).argmin(dim=1).numpy()
        found = float((coded.owners(points) == true).mean())
        if coded.in_groups and found < ENOUGH_IN_GROUPS:
            log.debug("groups: not taken: %.0f %% of the nearest are in the groups that are searched", 100 * found)
        return found >= (ENOUGH_IN_GROUPS if coded.in_groups else ENOUGH)

    @cached_property
    def norms(self) -> torch.Tensor:
        return norms_of(self.all)

    @cached_property
    def packed(self) -> PackedWeights | None:
        return PackedWeights(-2 * self.all, self.norms) if can_be_packed(self.all) else None


def objection_to_codes(centroids: Keys) -> str | None:
    """Why all centroids are compared instead of their codes."""
    objections = {
        "KNNMT_PLAIN": left_out("centroids"),
        f"fewer than {MANY:,} clusters": len(centroids) < MANY,
        "keys of few dimensions": code_pieces(centroids.shape[1]) < FEWEST_CODES,
    }
    return next((why for why, holds in objections.items() if holds), None)


def code_pieces(dimension: int) -> int:
    """The largest number of pieces, of at least four numbers each, that divides the dimension evenly."""
    return next(n for n in range(max(1, dimension // NUMBERS_A_CODE), 0, -1) if dimension % n == 0)


def objection_to_groups(centroids: Keys) -> str | None:
    """Why the codes of all centroids are scanned."""
    objections = {
        "KNNMT_PLAIN": left_out("groups"),
        f"fewer than {GROUPED_FROM:,} clusters": len(centroids) < GROUPED_FROM,
    }
    return next((why for why, holds in objections.items() if holds), None)


def codes_of(centroids: Keys, held: Any) -> Iterator[Coded]:
    """The ways to find centroids by their codes, the fastest first."""
    dimension, engine = centroids.shape[1], cast(Any, faiss)
    codes = engine.IndexPQFastScan(dimension, code_pieces(dimension), 4)
    codes.pq.cp.niter = ROUNDS
    codes.train(np.ascontiguousarray(centroids[:: max(1, len(centroids) // SAMPLE)]))
    if held is None:
        held = engine.IndexFlatL2(dimension)
        held.add(centroids)
    objection = objection_to_groups(centroids)
    if objection is None:
        yield Coded(rescored(in_groups_of_codes(codes, centroids), held), in_groups=True)
    else:
        log.debug("groups: not taken: %s", objection)
    codes.add(centroids)
    yield Coded(rescored(codes, held), in_groups=False)


def rescored(codes: Any, held: Any) -> Any:
    """An index of codes whose best candidates are compared exactly."""
    both = cast(Any, faiss).IndexRefine(codes, held)
    both.referenced_objects = [codes, held]  # it owns neither
    return both
