"""Muon for the hidden matrices, AdamW for all else, shared out among the processes.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces a matrix's momentum by
the nearest orthogonal matrix. PyTorch's own computes the same update in every process; here each process
orthogonalises its share of the matrices, in bfloat16 where the processor is quick at it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from processes import share, sum_over_processes

# Jordan et al. 2024: the quintic that drives every singular value near 1 in five iterations.
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MOMENTUM = 0.95
# Liu et al. 2025, https://arxiv.org/abs/2502.16982, section 2.2: makes an update as large as AdamW's,
# so that one rate serves both.
ADAMW_SIZE = 0.2


def orthogonalise(matrix: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """The orthogonal matrix nearest to `matrix` (rows, columns), roughly."""
    if matrix.size(0) > matrix.size(1):
        return orthogonalise(matrix.T, dtype=dtype).T
    first, third, fifth = QUINTIC
    result: Tensor = (matrix / (torch.linalg.norm(matrix) + 1e-7)).to(dtype)
    for _ in range(ITERATIONS):
        gram = result @ result.T  # (rows, rows)
        result = first * result + (third * gram + fifth * gram @ gram) @ result
    return result.to(matrix.dtype)


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    return parameter.dim() == 2 and not any(part in name for part in ("shared", "embed", "lm_head"))


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[nn.Parameter], *, lr: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(parameters, {"lr": lr})
        self.dtype = dtype

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            # Every process keeps all of the momentum, which is cheap, so that any of them can checkpoint it.
            momenta = [self.momentum(parameter) for parameter in group["params"]]
            updates = [torch.zeros_like(momentum) for momentum in momenta]
            for position in share(len(momenta)):
                scale = ADAMW_SIZE * max(momenta[position].shape) ** 0.5
                updates[position] = scale * orthogonalise(momenta[position], dtype=self.dtype)
            flat = sum_over_processes(torch.cat([update.flatten() for update in updates]))
            for parameter, update in zip(group["params"], split_like(flat, group["params"]), strict=True):
                parameter.add_(update, alpha=-group["lr"])

    def momentum(self, parameter: nn.Parameter) -> Tensor:
        """Nesterov's momentum."""
        assert parameter.grad is not None
        state = self.state[parameter]
        buffer: Tensor = state.setdefault("momentum", torch.zeros_like(parameter))
        buffer.lerp_(parameter.grad, 1 - MOMENTUM)
        return parameter.grad.lerp(buffer, MOMENTUM)


def split_like(flat: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Views of a flat tensor in the shapes of `tensors`."""
    shapes = [tensor.shape for tensor in tensors]
    parts = torch.split(flat, [shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def make_optimizers(
    model: nn.Module, *, name: str, lr: float, dtype: torch.dtype = torch.float32
) -> list[torch.optim.Optimizer]:
    """Optimizers for all trained parameters; `name` is "muon" (with AdamW for the rest) or "adamw"."""
    trained = [(key, parameter) for key, parameter in model.named_parameters() if parameter.requires_grad]
    hidden = [parameter for key, parameter in trained if name == "muon" and is_hidden_matrix(key, parameter)]
    chosen = {id(parameter) for parameter in hidden}
    others = [parameter for _, parameter in trained if id(parameter) not in chosen]
    adamw = torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0)
    return [Muon(hidden, lr=lr, dtype=dtype), adamw] if hidden else [adamw]
