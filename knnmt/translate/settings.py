"""How to translate: one object that is passed from the command line to decoding. Each field is an option."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from knnmt.errors import SettingsError
from knnmt.mixing.fixed_values import ALWAYS, FixedValues
from knnmt.text.endings import either_of

PRECISIONS = ("auto", "float32", "bfloat16")
BY_HAND = ("k", "temperature", "weight")  # any of these asks for the paper's fixed mixing
KINDS = ("learned", "fixed", "paper", "adaptive", "robust")


def option(default: Any, about: str, *, memory: bool = True) -> Any:
    """A field that is an option of every command that translates. `memory`: it has no effect without a datastore."""
    return field(default=default, metadata={"help": about, "memory": memory})


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateSettings:
    """How to translate. None means the value that the datastore was tuned to, otherwise the default."""

    k: int | None = option(None, "Number of neighbours per step. [default: as tuned, else 64]")
    temperature: float | None = option(
        None, "Temperature of the softmax over neighbours. [default: as tuned or fitted, else from the keys]"
    )
    weight: float | None = option(
        None, "Weight of the neighbours, from 0 to 1. [default: as tuned or fitted, else 0.5]"
    )
    beam: int = option(5, "Beam size. [default: 5]", memory=False)
    nprobe: int | None = option(None, "Number of clusters searched. [default: the store's, 8 to 16]")
    certain: float | None = option(
        None, "Skip the search where the model's best token has a higher probability. [default: as tuned, else 1]"
    )
    mixing: str | None = option(None, f"Mixing method: {either_of(KINDS)}. [default: as the store was fitted]")
    exact: bool = option(False, "Use the paper's method without approximations. Slower.", memory=False)
    where: tuple[str, ...] = option(
        (), "Use only segments that match this condition, such as corpus=house; may be repeated."
    )
    precision: str | None = option(
        None, "Precision of the model: float32, bfloat16, or auto (as tuned). [default: auto]", memory=False
    )

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise SettingsError(f"--beam {self.beam}: must be at least 1")
        if self.nprobe is not None and self.nprobe < 1:
            raise SettingsError(f"--nprobe {self.nprobe}: must be at least 1")
        if self.precision not in (None, *PRECISIONS):
            raise SettingsError(f"--precision {self.precision}: must be one of {', '.join(PRECISIONS)}")
        if self.precision == "auto":
            object.__setattr__(self, "precision", None)  # left open, so that tuning fills it in
        FixedValues(**self.given(*BY_HAND, "certain"))  # it knows its own limits
        if self.mixing is not None and self.mixing not in KINDS:
            raise SettingsError(f"--mixing {self.mixing}: must be one of {', '.join(KINDS)}")
        if self.by_hand and self.mixing not in (None, "fixed", "paper"):
            raise SettingsError(f"--mixing {self.mixing}: chooses its own k, temperature and weight; leave those out")

    @property
    def by_hand(self) -> bool:
        """Whether one of the values of the paper's mixing is given."""
        return any(getattr(self, name) is not None for name in BY_HAND)

    def given(self, *names: str) -> dict[str, Any]:
        """The named fields that are not None."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def filled(self, values: Mapping[str, Any]) -> "TranslateSettings":
        """The settings with open fields filled in."""
        known = {one.name for one in fields(self)}
        return replace(
            self, **{name: value for name, value in values.items() if name in known and getattr(self, name) is None}
        )

    def for_memory(self) -> dict[str, Any]:
        """The given fields that have no effect without a datastore."""
        memory = (one.name for one in fields(self) if one.metadata["memory"])
        return {name: value for name, value in self.given(*memory).items() if value != ()}

    @property
    def fixed(self) -> FixedValues:
        """The paper's mixing with the given values, otherwise the paper's values."""
        mixer = FixedValues(**self.given(*BY_HAND, "certain"))
        return replace(mixer, certain=ALWAYS) if self.exact else mixer


def check_enough(k: int, entries: int) -> None:
    if k > entries:
        raise SettingsError(f"--k {k}: larger than the datastore, which has {entries:,} entries")
