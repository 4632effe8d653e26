"""Products with weights that were laid out beforehand as the processor reads them: two to four times as fast.

oneDNN does it. PyTorch's own compiler calls it in the same way, by names that are not promised to stay; where they are
missing, weights are multiplied as they are.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

SHARE_OF_MEMORY = 0.25
SMALL_MACHINE = 8 << 30  # bytes
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def can_be_packed(weight: torch.Tensor) -> bool:
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    named = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and named and weight.device.type == "cpu" and weight.dtype == torch.float32


def version_of(weight: torch.Tensor) -> tuple[int, int, float]:
    """Another once the weights have been changed: what was packed of them is then out of date.

    Not every change is counted by PyTorch (one through `.data` is not), so one weight of a matrix is looked at, too.
    """
    middle = float(weight.detach()[len(weight) // 2, 0]) if weight.dim() == 2 else 0.0
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version, middle


class PackedWeights:
    """Weights [outputs, dimension] and what is added to their product, [outputs]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, version: Any = None) -> None:
        self.version = version  # of what was packed, for whoever wants to know whether it has changed since
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)  # for any number of rows
        self.bias = bias

    def product(self, states: torch.Tensor) -> torch.Tensor:
        """Of states [n, dimension] or [n, time, dimension]: the same with `outputs` in place of the dimension."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")
        return result


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


def is_hooked(module: nn.Module) -> bool:
    """Whether somebody wants to be told when it is called."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
