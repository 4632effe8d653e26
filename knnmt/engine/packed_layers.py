"""Lets the linear layers of a network multiply packed weights inside a context manager."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import nn

from knnmt.engine.packed_copies import Layers
from knnmt.engine.runtime import runtime_of
from knnmt.errors import SettingsError
from knnmt.models.network import Network
from knnmt.packed_weights import can_be_packed
from knnmt.switches import left_out

SHARE_OF_MEMORY = 0.25
SMALL_MACHINE = 8 << 30  # bytes
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@contextmanager
def packed_layers(
    network: Network, *, jointly: Collection[Layers] = (), dtype: torch.dtype = torch.float32
) -> Iterator[None]:
    """Inside, the network's linear layers multiply packed weights; afterwards it is as it was.

    Its projection is left out, as it has a way of its own. Layers that are named `jointly` are packed together, for a
    caller who multiplies by them himself. Products are in the precision `dtype`, all else in float32.
    """
    runtime, head = runtime_of(network), network.get_output_embeddings()
    plain = [module for module in network.modules() if is_plain(module) and module is not head]
    objection = objection_to_packing(network, plain)
    runtime.not_taken("packed", objection)
    if objection and dtype != torch.float32:
        raise SettingsError(f"--precision {str(dtype).removeprefix('torch.')}: {objection}")
    groups = [layers for layers in jointly if all(layer in plain and layer.bias is not None for layer in layers)]
    together = {layer for layers in groups for layer in layers}
    alone = [] if objection else [layer for layer in plain if layer not in together]
    runtime.packing.prepare([] if objection else [*groups, *((layer,) for layer in alone)], dtype)
    try:
        for layer in alone:
            layer.forward = runtime.packing.copies[(layer,)].packed.product  # type: ignore[method-assign, assignment]
        yield
    finally:
        for layer in alone:
            layer.__dict__.pop("forward", None)


def objection_to_packing(network: Network, layers: Iterable[nn.Linear]) -> str | None:
    """Why this network does not get packed weights. They are a copy, so there must be memory for both."""
    if left_out("packed"):
        return "KNNMT_PLAIN"
    if sum(layer.weight.nbytes for layer in layers) > SHARE_OF_MEMORY * memory_of_machine():
        return f"the layers of {type(network).__name__} take more than {SHARE_OF_MEMORY:.0%} of the memory"
    return None


@cache
def memory_of_machine() -> int:
    """In bytes; a container's limit if there is one. If the system does not say, that of a small machine."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = SMALL_MACHINE
    try:
        return min(memory, int(CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):  # not Linux, or no limit
        return memory


def is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether it is a plain linear layer. One with another forward function keeps it."""
    return type(module) is nn.Linear and "forward" not in vars(module) and can_be_packed(module.weight)


def is_hooked(module: Any) -> bool:
    """Whether it has forward hooks."""
    return module is not None and bool(module._forward_hooks or module._forward_pre_hooks)


def is_watched(module: nn.Module) -> bool:
    """Whether it has hooks or another forward function, so that it must be called."""
    return is_hooked(module) or "forward" in vars(module)
