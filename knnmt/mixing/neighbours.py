"""The neighbours that a search found."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The k nearest entries of each query, nearest first."""

    distances: NDArray[np.float32]  # [queries, k] squared; infinite where fewer than k were found
    entries: NDArray[np.int64]  # [queries, k] numbered through all stores; −1 where none
    tokens: NDArray[np.int64]  # [queries, k]; 0 where none
    trust: NDArray[np.float32] | None = None  # [queries, k] the weight of each one's store; None: all alike

    @classmethod
    def none(cls, queries: int, k: int) -> "Neighbours":
        """Nothing was found, or nothing was looked for."""
        shape = (queries, k)
        return cls(np.full(shape, np.inf, np.float32), np.full(shape, -1), np.zeros(shape, np.int64))

    def beside(self, other: "Neighbours") -> "Neighbours":
        """These, and after them others of the same queries."""
        trust = None
        if self.trust is not None:
            trust = np.concatenate([self.trust, np.ones_like(other.distances)], axis=1)
        return Neighbours(
            np.concatenate([self.distances, other.distances], axis=1),
            np.concatenate([self.entries, other.entries], axis=1),
            np.concatenate([self.tokens, other.tokens], axis=1),
            trust,
        )
