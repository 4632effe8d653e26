"""Products with weights in half precision: reading them takes half the memory bandwidth, and nothing is rounded.

Many models are stored in half precision, such as the embedded one. Their weights are loaded in single precision, and
converting them back loses nothing. States and sums stay in single precision.
"""

from typing import Any

import torch

from knnmt.engine.int8 import has_bytes
from knnmt.switches import left_out


def objection_to(weight: torch.Tensor) -> str | None:
    """Why this weight is not read in half precision."""
    objections = {
        "KNNMT_PLAIN": left_out("halves"),
        "this processor has no product of halves": not has_bytes(weight.device),  # one library has both
    }
    found = next((why for why, holds in objections.items() if holds), None)
    return found or (None if torch.equal(weight.half().float(), weight) else "the weights are no halves")


def pack_halves(weight: torch.Tensor, bias: torch.Tensor) -> Any:
    """Weights [outputs, dimension] in half precision, and the bias, [outputs]."""
    return torch.ops.quantized.linear_prepack_fp16(weight, bias)


def by_halves(states: torch.Tensor, packed: Any) -> torch.Tensor:
    """The product of states [n, dimension] and packed weights, [n, outputs]."""
    product: torch.Tensor = torch.ops.quantized.linear_dynamic_fp16(states, packed)
    return product
