"""Coverage: how much of a sentence the memory contains, from a set of hashed n-grams of its sources.

The set is a roaring bitmap of 32-bit hashes: 9 bytes an n-gram where there are 10,000, 6 at 100,000, 2.5 at a million.
An n-gram that the memory has not seen is taken for a known one with a probability of n / 2³², n being the n-grams in
the set: 1 in 4,300 at a million. A second bitmap
has the n-grams of more than one sentence: what remains known of a sentence when it is itself left out.

Sets grow by adding sentences, and those of two memories are joined without reading either memory again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.errors import StoreError

ORDERS = (1, 2, 3)  # tokens of an n-gram
SENTENCES_AT_ONCE = 4096
LENGTH_BYTES = 8
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits well spread: multiplying by it hashes

Hashes = NDArray[np.uint32]


def ngram_hashes(tokens: Sequence[int]) -> list[Hashes]:
    """The n-grams of a sentence as numbers, an array for each order; an n-gram that comes again is there again."""
    state = np.zeros(len(tokens), np.uint64)
    ids = np.asarray(tokens, np.uint64) + np.uint64(1)
    found = []
    for order in ORDERS:
        state = state[: max(0, len(ids) - order + 1)]
        state = (state ^ ids[order - 1 :][: len(state)]) * MIX
        state ^= state >> np.uint64(29)
        found.append((state * MIX >> np.uint64(32)).astype(np.uint32))
    return found


@dataclass(slots=True)
class Coverage:
    """The n-grams of a memory's sources."""

    seen: BitMap = field(default_factory=BitMap)
    again: BitMap = field(default_factory=BitMap)  # in more than one sentence

    def add(self, sources: Iterable[Sequence[int]]) -> None:
        """Take in sentences, given as tokens without those that every sentence has."""
        block: list[Hashes] = []
        for tokens in sources:
            block.append(np.unique(np.concatenate(ngram_hashes(tokens))))
            if len(block) >= SENTENCES_AT_ONCE:
                self._take(block)
                block = []
        self._take(block)

    def _take(self, block: list[Hashes]) -> None:
        if not block:
            return
        hashes, counts = np.unique(np.concatenate(block), return_counts=True)
        new = BitMap(hashes)
        self.again |= BitMap(hashes[counts > 1]) | (new & self.seen)
        self.seen |= new

    def joined(self, other: "Coverage") -> "Coverage":
        """Of two memories together; a sentence that both have counts as two."""
        return Coverage(self.seen | other.seen, self.again | other.again | (self.seen & other.seen))

    def shares(self, tokens: Sequence[int], *, without_itself: bool = False) -> list[float]:
        """The shares of a sentence's n-grams that are known, one for each order; of none, none is known.

        `without_itself`: as if the sentence, which is one of the memory's, were not there.
        """
        known = self.again if without_itself else self.seen
        return [
            sum(map(known.__contains__, order.tolist())) / len(order) if len(order) else 0.0
            for order in ngram_hashes(tokens)
        ]

    def to_bytes(self) -> bytes:
        first = self.seen.serialize()
        return len(first).to_bytes(LENGTH_BYTES, "little") + first + self.again.serialize()

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "Coverage":
        length = int.from_bytes(content[:LENGTH_BYTES], "little")
        try:
            first, second = content[LENGTH_BYTES : LENGTH_BYTES + length], content[LENGTH_BYTES + length :]
            return cls(BitMap.deserialize(first), BitMap.deserialize(second))
        except (ValueError, RuntimeError, MemoryError) as error:
            raise StoreError(f"{name}: damaged ({error}); restore it from a copy or build again") from error
