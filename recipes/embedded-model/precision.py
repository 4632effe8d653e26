"""Which number format the matrix products are computed in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

PRECISIONS = ("auto", "bfloat16", "float32")
# Without one of these, bfloat16 is emulated and slower than float32.
FAST = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def processor_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What Linux says of the first processor; nothing elsewhere."""
    if not path.is_file():
        return frozenset()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lower().startswith(("flags", "features")):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def resolve(precision: str, flags: frozenset[str] | None = None) -> str:
    """`auto` is bfloat16 on a processor that computes in it."""
    if precision != "auto":
        return precision
    return "bfloat16" if FAST & (processor_flags() if flags is None else flags) else "float32"


def computing(precision: str) -> AbstractContextManager[object]:
    """Weights, normalisation and the loss stay in float32; see `loss_sum`."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast("cpu", dtype=torch.bfloat16)
