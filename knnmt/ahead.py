"""Searching while the model goes on: a key is known before the last layer ends and the projection begins.

A step of few rows through a small model is no faster on two threads than on one. There the model takes one thread and
the search another. In larger steps both need all threads, and take turns.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import faiss
import torch
from torch import nn

SMALL = 1 << 26  # multiplications of a step, up to which a second thread gains nothing

Found = tuple[torch.Tensor, torch.Tensor]  # neighbours' tokens and weights, both [n, k]


def is_small_step(network: Any, rows: int) -> bool:
    """Whether one thread is enough for the decoder and its projection over so many rows."""
    head = network.get_output_embeddings()
    modules = [*network.get_decoder().modules(), *([] if head is None else [head])]
    weights = sum(module.weight.numel() for module in modules if isinstance(module, nn.Linear))
    return network.device.type == "cpu" and rows * weights <= SMALL


class SearchAhead:
    """One search at a time, in a thread of its own."""

    def __init__(self, search: Callable[[torch.Tensor], Found], pool: ThreadPoolExecutor) -> None:
        self.search, self.pool = search, pool
        self.pending: Future[Found] | None = None

    def begin(self, keys: torch.Tensor) -> None:
        """For keys [n, time, dimension], of which the last of each row counts."""
        self.pending = self.pool.submit(self.run, keys[:, -1])

    def run(self, keys: torch.Tensor) -> Found:
        with torch.inference_mode():
            return self.search(keys)

    def result(self) -> Found:
        """What the search that was begun last found."""
        assert self.pending is not None, "no key was seen"
        return self.pending.result()


@contextmanager
def searching_ahead(search: Callable[[torch.Tensor], Found]) -> Iterator[SearchAhead]:
    """Inside, the model has one thread, and the search has another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(1, initializer=take_one_thread) as pool:
            yield SearchAhead(search, pool)
    finally:
        torch.set_num_threads(threads)


def take_one_thread() -> None:
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
