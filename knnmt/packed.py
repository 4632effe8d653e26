"""Products with weights that were laid out beforehand as the processor reads them: for few rows several times as fast.

oneDNN does it. PyTorch's own compiler calls it in the same way, by names that are not promised to stay; where they are
missing, weights are multiplied as they are.
"""

import torch


def can_be_packed(weight: torch.Tensor) -> bool:
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    named = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and named and weight.device.type == "cpu" and weight.dtype == torch.float32


class PackedWeights:
    """Weights [outputs, dimension] and what is added to their product, [outputs]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)  # for any number of rows
        self.bias = bias

    def product(self, states: torch.Tensor) -> torch.Tensor:
        """Of states [n, dimension]: [n, outputs]."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")
        return result
