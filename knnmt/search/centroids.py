"""Finds the nearest centroids: the first step of a search over clusters.

A few centroids are all compared. For many, FAISS scans 4-bit codes, which is several times as fast, and rescores the
best of them.
"""

import logging
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.packed_weights import PackedWeights, can_be_packed
from knnmt.search.exact import Keys, distances_less_norms, norms_of, smallest
from knnmt.search.library import faiss
from knnmt.switches import left_out

log = logging.getLogger(__name__)

MANY = 4096  # centroids, from which on they have codes
NUMBERS_A_CODE = 4  # of a centroid
FEWEST_CODES = 32  # of a centroid: with fewer they tell too little apart
CANDIDATES = 4  # times as many as wanted are compared as they are
SAMPLE = 1024  # centroids, of which codes of 16 values learn enough
ROUNDS = 10  # of that learning
TRIED = 64  # points near centroids, by which codes are judged
NOISE = 0.5  # of such a point, in standard deviations of the centroids
ENOUGH = 0.8  # of those points must be found to be nearest to what they are nearest to
AT_ONCE = 1 << 22  # distances of keys to centroids: they stay in the processor's cache
CODED_AT_ONCE = 4096  # keys that are compared with codes

Found = tuple[NDArray[np.float32], NDArray[np.int64]]  # squared distances and numbers, both [queries, n], nearest first


class Centroids:
    """The centroids [n, dimension]; `held` is a FAISS index of just these, if there is one already."""

    def __init__(self, centroids: Keys, held: Any = None) -> None:
        self.all = torch.from_numpy(centroids)
        self.coded: Any = None
        objection = objection_to_codes(centroids)
        if objection is None:
            self.coded = with_codes(centroids, held)
            objection = None if self.codes_suffice() else "codes tell too few of them apart"
        if objection:
            self.coded = None
            log.debug("centroids: not taken: %s", objection)

    def nearest(self, queries: Keys, n: int) -> Found:
        """The n nearest of each query."""
        if self.coded is not None and n * CANDIDATES < self.all.shape[0]:
            found: Found = self.coded.search(queries, n)
            return found
        return self.compared(queries, n)

    def owners(self, keys: Keys) -> NDArray[np.int64]:
        """The nearest centroid of each key, [n]."""
        rows = CODED_AT_ONCE if self.coded is not None else max(1, AT_ONCE // len(self.all))
        starts = range(0, max(1, len(keys)), rows)
        return np.concatenate([self.nearest(keys[first : first + rows], 1)[1][:, 0] for first in starts])

    def compared(self, queries: Keys, n: int) -> Found:
        """The n nearest of each query, by comparing all centroids."""
        asked = torch.from_numpy(queries)
        product = self.packed.product(asked) if self.packed else distances_less_norms(asked, self.all, self.norms)
        near, numbers = smallest(product, n)
        return (near + norms_of(asked)[:, None]).clamp_min(0.0).numpy(), numbers.contiguous().numpy()

    def codes_suffice(self) -> bool:
        """Whether codes find the nearest centroids. They fail if a few dimensions dominate."""
        random = np.random.default_rng(0)
        spread = self.all.std(dim=0).numpy()
        some = self.all.numpy()[random.choice(len(self.all), TRIED, replace=False)]
        points = (some + NOISE * spread * random.normal(size=some.shape)).astype(np.float32)
        true = distances_less_norms(torch.from_numpy(points), self.all, self.norms).argmin(dim=1).numpy()
        return bool((self.nearest(points, 1)[1][:, 0] == true).mean() >= ENOUGH)

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


def with_codes(centroids: Keys, held: Any) -> Any:
    """A FAISS index of the centroids' codes that rescores the best of them."""
    dimension, engine = centroids.shape[1], cast(Any, faiss)
    codes = engine.IndexPQFastScan(dimension, code_pieces(dimension), 4)
    codes.pq.cp.niter = ROUNDS
    codes.train(np.ascontiguousarray(centroids[:: max(1, len(centroids) // SAMPLE)]))
    codes.add(centroids)
    if held is None:
        held = engine.IndexFlatL2(dimension)
        held.add(centroids)
    both = engine.IndexRefine(codes, held)
    both.k_factor = CANDIDATES
    both.referenced_objects = [codes, held]  # it owns neither
    return both
