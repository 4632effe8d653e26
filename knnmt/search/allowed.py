"""The entries that a search may find. Without FAISS, so that commands that only change a store start fast."""

import numpy as np
from numpy.typing import NDArray


class Allowed:
    """Which entries may be found: all except those that are gone; with `chosen`, only chosen ones of these."""

    def __init__(
        self, entries: int, gone: NDArray[np.int64], chosen: NDArray[np.bool_] | None = None, first: int = 0
    ) -> None:
        low, high = np.searchsorted(gone, [first, first + entries])
        self.entries = entries
        self.gone = gone[low:high] - first  # ascending
        self.bits = None if chosen is None else np.packbits(chosen, bitorder="little")
        self.count = entries - len(self.gone) if chosen is None else int(chosen.sum())

    def __contains__(self, entry: int) -> bool:
        return bool(self.holds(np.array([entry]))[0])

    def holds(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some entries of any shape may be found."""
        if self.bits is not None:
            found: NDArray[np.bool_] = (self.bits[entries >> 3] >> (entries & 7).astype(np.uint8) & 1).astype(bool)
            return found
        if not len(self.gone):
            return np.ones(entries.shape, bool)
        places = np.minimum(np.searchsorted(self.gone, entries), len(self.gone) - 1)
        return np.asarray(self.gone[places] != entries)

    def mask(self) -> NDArray[np.bool_]:
        """[entries]"""
        if self.bits is not None:
            return np.unpackbits(self.bits, count=self.entries, bitorder="little").astype(bool)
        mask = np.ones(self.entries, bool)
        mask[self.gone] = False
        return mask

    def packed(self) -> NDArray[np.uint8]:
        if self.bits is None:
            self.bits = np.packbits(self.mask(), bitorder="little")
        return self.bits
