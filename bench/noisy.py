"""Keys in any number: copies of some with noise, made when they are needed and never stored."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from knnmt.arrays import Array
from knnmt.search.distances import Keys

BLOCK = 65_536
POOL = 65_521  # directions of noise; a prime, so that copies of one key have different ones
STRONGEST = 0.6  # noise of a copy, in standard deviations of the keys; all strengths up to it are equally frequent
GOLDEN = 0.6180339887498949

Numbers = NDArray[np.int64]


class NoisyKeys:
    """Copy number r is of original r modulo how many there are; the first of each is the original itself."""

    def __init__(self, originals: Array, spread: Keys | None = None) -> None:
        self.originals = originals
        spread = originals.std(axis=0, dtype=np.float32) if spread is None else spread
        self.noise = np.random.default_rng(0).normal(size=(POOL, originals.shape[1])).astype(np.float32)
        self.noise *= spread

    def copies(self, numbers: Numbers) -> Keys:
        strengths = STRONGEST * (numbers * GOLDEN % 1) * (numbers >= len(self.originals))
        made = self.noise[numbers % POOL]
        made *= strengths.astype(np.float32)[:, None]
        made += self.originals[numbers % len(self.originals)]
        return made

    def blocks(self, entries: int, first: int = 0) -> Iterator[Keys]:
        """Copies from number `first` up to `entries`."""
        for begin in range(first, entries, BLOCK):
            yield self.copies(np.arange(begin, min(entries, begin + BLOCK)))
