"""What a run needs to go on after it was killed, and the average of its last weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from text import RecipeError

FULL = "checkpoint.pt"
BEFORE_DECAY = "before-decay.pt"


@dataclass(kw_only=True)
class Progress:
    """How far a run has come. The order of the data follows from the seed, so its position is two numbers."""

    step: int = 0
    seconds: float = 0.0
    source_tokens: int = 0
    target_tokens: int = 0
    round: int = 0
    round_step: int = 0
    decaying: bool = False
    scores: list[dict[str, Any]] = field(default_factory=list)

    def advance(self, *, source_tokens: int, target_tokens: int) -> None:
        self.step += 1
        self.round_step += 1
        self.source_tokens += source_tokens
        self.target_tokens += target_tokens

    def note_scores(self, losses: dict[str, float], *, mean: float, weights: str) -> None:
        by_corpus = {name: round(loss, 4) for name, loss in losses.items()}
        self.scores.append(
            {"step": self.step, "minutes": round(self.seconds / 60, 2), "target_tokens": self.target_tokens,
             "weights": weights, "loss": round(mean, 4), "by_corpus": by_corpus}
        )  # fmt: skip


def write_atomically(path: Path, content: object) -> None:
    """A kill leaves the old file or the new one, never half of one."""
    temporary = path.with_suffix(".partial")
    torch.save(content, temporary)
    temporary.replace(path)


def save_checkpoint(
    folder: Path,
    *,
    progress: Progress,
    weights: dict[str, Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
    budget: dict[str, Any],
    name: str = FULL,
) -> None:
    states = [optimizer.state_dict() for optimizer in optimizers]
    content = {"progress": vars(progress), "weights": weights, "optimizers": states, "budget": budget}
    write_atomically(folder / name, content)


def save_weights(folder: Path, *, step: int, weights: dict[str, Tensor], keep: int) -> None:
    write_atomically(folder / f"weights-{step:08d}.pt", weights)
    for old in weight_files(folder)[:-keep]:
        old.unlink()


def load_checkpoint(folder: Path, name: str = FULL) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        raise RecipeError(f"--resume: {path} does not exist; start the run without --resume")
    content = torch.load(path, weights_only=True)
    assert isinstance(content, dict)
    return content


def load_to_resume(folder: Path, *, budget: dict[str, Any]) -> dict[str, Any]:
    """The last checkpoint, or with another budget the one before the decay: a longer run must not start cooled down."""
    content = load_checkpoint(folder)
    if content["progress"]["decaying"] and content["budget"] != budget:
        return load_checkpoint(folder, BEFORE_DECAY)
    return content


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("weights-*.pt"))


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each tensor over the files, in the precision that they were trained in."""
    total: dict[str, Tensor] = torch.load(paths[0], weights_only=True)
    for path in paths[1:]:
        weights = torch.load(path, weights_only=True)
        # Not in place: tied weights share their memory and would each be added to all.
        total = {name: tensor + weights[name] for name, tensor in total.items()}
    return {name: tensor / len(paths) for name, tensor in total.items()}
