"""A network whose linear layers multiply packed weights."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from knnmt.packing import PackedWeights, can_be_packed, version_of

SHARE_OF_MEMORY = 0.25
SMALL_MACHINE = 8 << 30  # bytes
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


_PACKED: WeakKeyDictionary[nn.Linear, PackedWeights] = WeakKeyDictionary()


def packed_layer(layer: nn.Linear) -> PackedWeights:
    """Of a layer that can be packed; kept until its weights change."""
    packed = _PACKED.get(layer)
    if packed is None or packed.version != version_of(layer.weight) or packed.bias is not layer.bias:
        packed = _PACKED[layer] = PackedWeights(layer.weight, layer.bias, version_of(layer.weight))
    return packed


@contextmanager
def packed_layers(network: Any, *, without: Collection[nn.Module] = ()) -> Iterator[None]:
    """Inside, the network's linear layers multiply packed weights; afterwards it is as it was.

    Its projection is left out, as it has a way of its own, and so is what the caller names. Packed weights are a copy:
    a network too large for two in memory stays as it is.
    """
    left_out = {network.get_output_embeddings(), *without}
    layers = [module for module in network.modules() if is_plain(module) and module not in left_out]
    if sum(layer.weight.nbytes for layer in layers) > SHARE_OF_MEMORY * memory_of_machine():
        layers = []
    try:
        for layer in layers:
            layer.forward = packed_layer(layer).product
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


@cache
def memory_of_machine() -> int:
    """In bytes, or what a container allows; where the system does not tell, what a small machine has."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = SMALL_MACHINE
    try:
        return min(memory, int(CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):  # not Linux, or no limit
        return memory


def is_plain(module: nn.Module) -> bool:
    """Whether it is a linear layer and nothing more: one that somebody has given another forward pass keeps it."""
    return type(module) is nn.Linear and "forward" not in vars(module) and can_be_packed(module.weight)


def is_hooked(module: nn.Module | None) -> bool:
    """Whether somebody wants to be told when it is called."""
    return module is not None and bool(module._forward_hooks or module._forward_pre_hooks)


def is_watched(module: nn.Module) -> bool:
    """Whether somebody has a hook on it or has given it another forward pass: it must be called to be seen."""
    return is_hooked(module) or "forward" in vars(module)
