"""The reasons for a head's weight at a step.

A reason is a kind of evidence with what it did to the memory's weight: how much smaller the weight would be if that
evidence were as it is on average where the head was fitted.
"""

from collections.abc import Callable, Mapping

import torch

Reasons = Mapping[str, torch.Tensor]  # by kind of evidence, each [n]: what it added to the weight
Why = Callable[[], Reasons]  # computed only where somebody asks

# In words, where the evidence raised the weight and where it lowered it.
IN_WORDS = {
    "coverage": ("the memory covers the sentence", "the memory hardly covers the sentence"),
    "distance": ("the neighbours are near", "the neighbours are far"),
    "agreement": ("the neighbours agree", "the neighbours disagree"),
    "model": ("the model is unsure", "the model is sure"),
}
SLIGHT = 0.02  # of the weight: less is not worth a word


def because(reasons: Mapping[str, float], most: int = 2) -> str:
    """`the neighbours are near (+0.31), the model is sure (-0.08)`: the strongest reasons first."""
    strongest = sorted(reasons.items(), key=lambda one: -abs(one[1]))[:most]
    told = [f"{IN_WORDS[kind][effect < 0]} ({effect:+.2f})" for kind, effect in strongest if abs(effect) >= SLIGHT]
    return ", ".join(told)
