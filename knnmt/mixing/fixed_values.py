"""The values of the paper's mixing, and their limits."""

import math
from dataclasses import dataclass

from knnmt.errors import SettingsError

PAPER_K, PAPER_TEMPERATURE, PAPER_WEIGHT = 64, 10.0, 0.5
ALWAYS = 1.0  # a certainty that no model exceeds


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedValues:
    """How much to retrieve and how much to trust it, the same at every step; the defaults are the paper's."""

    k: int = PAPER_K
    temperature: float = PAPER_TEMPERATURE
    weight: float = PAPER_WEIGHT  # of the neighbours' distribution: 0 is the model alone, 1 the neighbours alone
    certain: float = ALWAYS  # where the model gives its best token more than this, nothing is retrieved

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingsError(f"--k {self.k}: must be at least 1")
        if not 0 < self.temperature < math.inf:
            raise SettingsError(f"--temperature {self.temperature:g}: must be above 0")
        if not 0 <= self.weight <= 1:
            raise SettingsError(f"--weight {self.weight:g}: must be between 0 and 1")
        if not 0 < self.certain <= 1:
            raise SettingsError(f"--certain {self.certain:g}: must be above 0 and at most 1")
