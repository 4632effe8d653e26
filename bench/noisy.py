"""Keys in any number: copies of some with noise, made when they are needed and never stored."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knnmt.search.distances import Keys, squared_distances
from knnmt.search.internals import found_among, plain_clusters

BLOCK = 65_536
POOL = 65_521  # directions of noise; a prime, so that copies of one key have different ones
STRONGEST = 0.6  # noise of a copy, in standard deviations of the keys; all strengths up to it are equally frequent
GOLDEN = 0.6180339887498949
CANDIDATES = 8  # clusters of an original, in one of which its copies are
JUDGED = 4096  # copies whose cluster is also looked for among all

Numbers = NDArray[np.int64]


class NoisyKeys:
    """Copy number r is of original r modulo how many there are; the first of each is the original itself."""

    def __init__(self, originals: Keys) -> None:
        self.originals = originals
        noise = np.random.default_rng(0).normal(size=(POOL, originals.shape[1]))
        self.noise = np.asarray(noise * originals.std(axis=0), np.float32)

    def copies(self, numbers: Numbers) -> Keys:
        strengths = STRONGEST * (numbers * GOLDEN % 1) * (numbers >= len(self.originals))
        made = self.noise[numbers % POOL]
        made *= strengths.astype(np.float32)[:, None]
        made += self.originals[numbers % len(self.originals)]
        return made

    def blocks(self, entries: int) -> Iterator[tuple[Numbers, Keys]]:
        for first in range(0, entries, BLOCK):
            numbers = np.arange(first, min(entries, first + BLOCK))
            yield numbers, self.copies(numbers)


class NearOwners:
    """The cluster of each copy: the nearest among those that are nearest to its original.

    Looking among all clusters is what a build does; of 10⁸ keys it takes hours. `agreement` says how often both are the
    same, and `seconds` what one key takes that is looked for among all.
    """

    def __init__(self, index: object, keys: NoisyKeys) -> None:
        self.among, self.keys = found_among(plain_clusters(index)), keys
        self.centroids = self.among.all.numpy()
        originals = range(0, len(keys.originals), BLOCK)
        some = min(CANDIDATES, len(self.centroids))
        found = [self.among.nearest(keys.originals[first : first + BLOCK], some)[1] for first in originals]
        self.candidates = np.concatenate(found)

    def owners(self, numbers: Numbers, copies: Keys) -> Numbers:
        near = np.ascontiguousarray(self.candidates[numbers % len(self.candidates)])
        chosen = squared_distances(copies, self.centroids, near).argmin(axis=1)
        return np.ascontiguousarray(near[np.arange(len(near)), chosen])
