"""The protocol `Mixer`: it decides how neighbours and model are mixed."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from knnmt.engine.projection import Ranking
from knnmt.mixing.mixture import Mixture
from knnmt.mixing.neighbours import Neighbours


class Needs(NamedTuple):
    """What a mixer wants to see of each row."""

    neighbours: int
    ranked: int = 1  # of the model's best tokens, at least


class Mixer(Protocol):
    """Decides, row by row, how much weight the memory gets. `knnmt.mixing` lists the implementations."""

    @property
    def needs(self) -> Needs:
        """How many neighbours to search for, and how many of the model's best tokens to rank."""

    @property
    def signature(self) -> str:
        """What a score depends on, such as `k:64|T:10|weight:0.5`."""

    def signals(self, sources: Sequence[Sequence[int]]) -> torch.Tensor:
        """What is known of each sentence before it is decoded, [sentences, signals], from its tokens."""

    def asks(self, ranking: Ranking, signals: torch.Tensor) -> torch.Tensor:
        """In which rows neighbours are worth a search, [n]; `signals` [n, signals] are those of each row's sentence."""

    def mixture(self, found: Neighbours, ranking: Ranking, logits: torch.Tensor, signals: torch.Tensor) -> Mixture:
        """Mix; `logits` [n, k] are the model's for the neighbours' tokens. Rows without neighbours are the model's."""
