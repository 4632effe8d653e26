"""The precision in which a network's linear layers multiply: `float32`, or `bfloat16` if the processor supports it.

Attention, norms and the projection stay in float32. int8 is not offered: in batches, 8-bit weights are slower here than
float32 (docs/performance.md).
"""

import torch

from knnmt.errors import SettingsError
from knnmt.packed_weights import can_be_packed, has_bfloat16
from knnmt.switches import left_out

BFLOAT16 = "bfloat16"


def objection_to_bfloat16() -> str | None:
    """Why this machine computes in float32."""
    objections = {
        "KNNMT_PLAIN": left_out("packed"),
        "PyTorch cannot pack weights here": not can_be_packed(torch.empty(1, 1)),
        "this processor does not multiply bfloat16": not has_bfloat16(),
    }
    return next((why for why, holds in objections.items() if holds), None)


def dtype_of(name: str | None) -> torch.dtype:
    """The type for a named precision; float32 for None and for `auto` without tuning."""
    if name != BFLOAT16:
        return torch.float32
    objection = objection_to_bfloat16()
    if objection:
        raise SettingsError(f"--precision {name}: {objection}")
    return torch.bfloat16
