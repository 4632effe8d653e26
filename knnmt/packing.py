"""Products with weights that were laid out beforehand as the processor reads them: two to four times as fast.

oneDNN does it. PyTorch's own compiler calls it in the same way, by names that are not promised to stay; where they are
missing, weights are multiplied as they are.
"""

from typing import Any

import torch


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
