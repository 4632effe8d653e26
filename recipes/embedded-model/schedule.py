"""The learning rate over a budget of steps or of minutes."""

from __future__ import annotations

from dataclasses import dataclass

from text import RecipeError


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to train: exactly one of steps and minutes, over all runs that resume one another."""

    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise RecipeError("give exactly one of --steps and --minutes")
        if (self.steps or self.minutes or 0) <= 0:
            raise RecipeError("--steps or --minutes must be above zero")

    def used(self, *, step: int, seconds: float) -> float:
        """The fraction of the budget that is spent, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.minutes is not None
        return min(1.0, seconds / (60 * self.minutes))


def decays(used: float, *, decay: float) -> bool:
    return used >= 1.0 - decay


def rate_factor(*, step: int, warmup: int, used: float, decay: float) -> float:
    """The factor of the peak rate: a linear warm-up in steps, then 1, then a linear decay to zero.

    `decay` is the last part of the budget, in which the rate falls. A run that is taken up again from before it
    goes on at the peak, as if it had had the larger budget from the start.

    The decay follows the budget and not the step, so that a machine that slows down half-way
    still ends its minutes at a rate of zero.
    """
    return min(1.0, (step + 1) / max(1, warmup)) * min(1.0, (1.0 - used) / decay)
