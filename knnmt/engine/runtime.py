"""What is kept for a network: its lock, its packed weights, its projection, and which fast paths suit it.

It is an attribute of the network and is freed with it. A copy of the network gets a runtime of its own.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType

import torch
from torch import nn

from knnmt.engine.packed_copies import Packing
from knnmt.models.network import Network

if TYPE_CHECKING:
    from knnmt.engine.attention import AligningHeads
    from knnmt.engine.compiled import Compiled
    from knnmt.engine.projection import Projection
    from knnmt.engine.stepping import Stepper

ATTRIBUTE = "_knnmt_runtime"

KEPT = 1 << 14  # tokens whose encoder states are kept at most: 32 MB of a model with 512 dimensions

log = logging.getLogger("knnmt.engine")


class Judged(NamedTuple):
    """The modules of a network when it was checked, and the objection to running it directly."""

    modules: list[ReferenceType[nn.Module]]
    objection: str | None


class Encodings:
    """The encoder's states of some sources, each [time, dimension], by their tokens; and the tokens of their texts."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.states: dict[tuple[int, ...], torch.Tensor] = {}
        self.room = KEPT

    def keep(self, ids: torch.Tensor, mask: torch.Tensor, encoded: torch.Tensor) -> None:
        """Keep those of a batch, as far as there is room."""
        for tokens, states in zip(sources_of(ids, mask), encoded, strict=True):
            if len(tokens) <= self.room and tokens not in self.states:
                self.room -= len(tokens)
                self.states[tokens] = states[: len(tokens)].clone()  # the batch is not kept

    def find(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor | None]:
        return [self.states.get(tokens) for tokens in sources_of(ids, mask)]


def sources_of(ids: torch.Tensor, mask: torch.Tensor) -> list[tuple[int, ...]]:
    """The tokens of each source of a batch [sentences, time], without padding."""
    return [tuple(row[:length]) for row, length in zip(ids.tolist(), mask.sum(dim=1).tolist(), strict=True)]


class Runtime:
    """What is kept for one network."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held by whoever runs the network: hooks see every forward pass
        self.packing = Packing()
        self.projection: Projection | None = None
        self.judged: Judged | None = None
        self.compiled: Compiled | None = None
        self.small_batches = 0
        self.heads: AligningHeads | None = None  # of its cross-attention, those that align words
        self.encodings: Encodings | None = None  # of sources that will be wanted again; None: none are kept
        self.host: Stepper | None = None  # has prepared the network for several steppers
        self.told: dict[str, str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Runtime, ()

    def not_taken(self, path: str, why: str | None) -> None:
        """Log why a fast path is not taken (None: it is taken), once for each reason."""
        if why and self.told.get(path) != why:
            log.debug("%s: not taken: %s", path, why)
        self.told[path] = why or ""


def runtime_of(network: Network) -> Runtime:
    """The network's runtime; made on first use."""
    found: Runtime = vars(network).setdefault(ATTRIBUTE, Runtime())
    return found


@contextmanager
def keeping_encodings(network: Network) -> Iterator[None]:
    """Inside, what is translated need not be encoded again for its attention."""
    runtime = runtime_of(network)
    runtime.encodings = runtime.encodings or Encodings()
    try:
        yield
    finally:
        runtime.encodings = None  # another thread that is inside only loses time


def lock_of(network: Network) -> threading.RLock:
    """The lock that a thread holds while it runs the network."""
    return runtime_of(network).lock
