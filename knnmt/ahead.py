"""Searching while the model goes on: a key is known before the last layer ends and the projection begins.

A step of few rows through a small model is no faster on two threads than on one. There the model takes one thread and
the search another. In larger steps both need all threads, and take turns.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from knnmt.engine import faiss

SMALL = 1 << 26  # multiplications of a step, up to which a second thread gains nothing

Found = tuple[torch.Tensor, torch.Tensor]  # neighbours' tokens and weights, both [n, k]
Search = Callable[[torch.Tensor], Found]  # of keys [n, dimension]


def rows_of_small_steps(network: Any) -> int:
    """Up to how many rows one thread is enough for the decoder and its projection."""
    head = network.get_output_embeddings()
    modules = [*network.get_decoder().modules(), *([] if head is None else [head])]
    weights = sum(module.weight.numel() for module in modules if isinstance(module, nn.Linear))
    return SMALL // max(1, weights) if network.device.type == "cpu" else 0


class SearchAhead:
    """Searches for the keys of each pass: in a thread of its own while there are few rows, else when asked."""

    def __init__(self, search: Search, few: int, pool: ThreadPoolExecutor) -> None:
        self.search, self.few, self.pool = search, few, pool
        self.keys = torch.empty(0)
        self.pending: Future[Found] | None = None

    def begin(self, keys: torch.Tensor) -> None:
        """For keys [n, time, dimension], of which the last of each row counts."""
        self.keys = keys[:, -1]
        self.pending = None
        if len(keys) <= self.few:
            if torch.get_num_threads() > 1:
                torch.set_num_threads(1)
            self.pending = self.pool.submit(self.run)

    def run(self) -> Found:
        with torch.inference_mode():
            return self.search(self.keys)

    def result(self, wanted: torch.Tensor | None = None) -> Found:
        """Of the search for the keys that were seen last; rows that are not `wanted` [n] have no weights."""
        if self.pending is not None:
            tokens, weights = self.pending.result()
            return tokens, weights if wanted is None else weights * wanted[:, None]
        if wanted is None or bool(wanted.all()):
            return self.run()
        rows = torch.nonzero(wanted)[:, 0]
        return spread(self.search(self.keys[rows]), rows, len(wanted)) if len(rows) else nothing(self.keys)


def spread(found: Found, rows: torch.Tensor, height: int) -> Found:
    """What was found for some rows, among rows without neighbours."""
    tokens, weights = (part.new_zeros(height, part.shape[1]) for part in found)
    tokens[rows], weights[rows] = found
    return tokens, weights


def nothing(keys: torch.Tensor) -> Found:
    """One neighbour for each key, of no weight."""
    return keys.new_zeros(len(keys), 1, dtype=torch.long), keys.new_zeros(len(keys), 1, dtype=torch.float)


@contextmanager
def searching_ahead(search: Search, few: int) -> Iterator[SearchAhead]:
    """Inside, while there are at most so few rows, the model has one thread and the search has another."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(1, initializer=take_one_thread) as pool:
            yield SearchAhead(search, few, pool)
    finally:
        torch.set_num_threads(threads)


def take_one_thread() -> None:
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
