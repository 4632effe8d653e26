"""Products with weights that are laid out in advance for the processor: two to four times as fast.

oneDNN does it. PyTorch's own compiler calls oneDNN in the same way, through functions that are not public. If they are
missing, weights are multiplied as they are.
"""

from collections.abc import Sequence

import torch

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # whole numbers as wide as a number of so many bytes


def can_be_packed(weight: torch.Tensor) -> bool:
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    named = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and named and weight.device.type == "cpu" and weight.dtype == torch.float32


def has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16, which is then about twice as fast as float32."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, check, bool)() for check in checks)


class PackedWeights:
    """Weights [outputs, dimension] and what is added to their product, [outputs].

    With `dtype` bfloat16 the product alone is in that precision; what goes in and comes out is float32.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype = torch.float32) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype), None)  # for any number of rows
        self.bias, self.dtype = bias, dtype
        self.product = self.in_float32 if dtype == torch.float32 else self.in_less

    def in_float32(self, states: torch.Tensor) -> torch.Tensor:
        """The product with states [n, dimension] or [n, time, dimension]."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")
        return result

    def in_less(self, states: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            states.to(self.dtype), self.weight, None, "none", [], ""
        )
        return result.float() if self.bias is None else result + self.bias


class WeightSums:
    """Checksums of weights, to detect whether any of them has changed.

    PyTorch does not count every change (one through `.data` it does not), so the bits of every row are summed. That
    reads 70 GB a second here: a hundredth of the time that a batch takes.
    """

    def __init__(self, weights: Sequence[torch.Tensor | None]) -> None:
        self.sums = [None if weight is None else sums_of_bits(weight.detach()) for weight in weights]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightSums) or len(self.sums) != len(other.sums):
            return False
        return all(equal(ours, theirs) for ours, theirs in zip(self.sums, other.sums, strict=True))

    __hash__ = None  # type: ignore[assignment]


def equal(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return ours.device == theirs.device and torch.equal(ours, theirs)


def sums_of_bits(weight: torch.Tensor) -> torch.Tensor:
    """One for each row of a matrix."""
    weight = weight.contiguous()
    pairs = 8 // weight.element_size()
    whole = weight.dim() > 0 and weight.shape[-1] % pairs == 0 and weight.storage_offset() % pairs == 0
    return weight.view(torch.int64 if whole else BITS[weight.element_size()]).sum(dim=-1)
