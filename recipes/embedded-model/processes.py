"""The processes of a run: who am I, and sums over all."""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor


def rank_and_world() -> tuple[int, int]:
    if not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def share(count: int) -> range:
    """The positions out of `count` that this process works on."""
    rank, world = rank_and_world()
    return range(rank, count, world)


def sum_over_processes(tensor: Tensor) -> Tensor:
    """In place."""
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
    return tensor


def leaders(value: float) -> float:
    """The first process's value, in all of them."""
    tensor = torch.tensor([value], dtype=torch.float64)
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(tensor, src=0)
    return tensor.item()
