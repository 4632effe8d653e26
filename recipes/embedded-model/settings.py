"""What a run depends on, checked, and how the command line says it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from data import Source, parse_source
from model import Shape
from precision import PRECISIONS
from schedule import Budget
from text import RecipeError


@dataclass(frozen=True, kw_only=True)
class Settings:
    corpora: tuple[Source, ...]
    output: Path
    cache: Path
    budget: Budget
    shape: Shape = field(default_factory=Shape)
    architecture: str = "marian"
    start: Path | None = None
    exclude: tuple[Path, ...] = ()
    languages: tuple[str, str] = ("de", "en")
    vocabulary: int = 10000
    processes: int = 2
    tokens: int = 1536
    accumulate: int = 4
    longest: int = 128
    optimizer: str = "muon"
    rate: float = 2e-3
    warmup: int = 100
    decay: float = 0.2
    precision: str = "auto"
    smoothing: float = 0.1
    dropout: float = 0.0
    held_out: int = 500
    validate_every: int = 200
    save_every: int = 50
    average: int = 4
    seed: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        for name in ("processes", "tokens", "accumulate", "longest", "held_out", "validate_every", "save_every"):
            require(getattr(self, name) >= 1, name, "must be at least 1")
        require(self.average >= 1, "average", "must be at least 1")
        require(self.rate > 0, "rate", "must be above zero")
        require(0 < self.decay <= 1, "decay", "must be above 0 and at most 1")
        for name in ("smoothing", "dropout"):
            require(0 <= getattr(self, name) < 1, name, "must be from 0 to below 1")
        require(not self.start or self.architecture == "marian", "start", "takes a Marian folder; m2m_100 starts anew")

    @property
    def run(self) -> Path:
        """Where checkpoints lie."""
        return self.output / "run"

    @property
    def export(self) -> Path:
        """The Marian folder; its vocabulary is made first and its weights last."""
        return self.output / "model"

    @property
    def before_decay(self) -> Path:
        """A model folder with the weights that a longer training starts from."""
        return self.output / "before-decay"

    def describe(self) -> dict[str, Any]:
        """For the model card: names of files, never whole paths."""
        hidden = ("corpora", "output", "cache", "resume")
        return {key: value for key, value in vars(self).items() if key not in hidden} | {
            "start": self.start.name if self.start else None,
            "shape": None if self.start else vars(self.shape),
            "vocabulary": None if self.start else self.vocabulary,
            "languages": None if self.start else self.languages,
            "budget": vars(self.budget),
            "exclude": [path.name for path in self.exclude],
        }


def require(fulfilled: bool, name: str, demand: str) -> None:
    if not fulfilled:
        raise RecipeError(f"--{name.replace('_', '-')} {demand}")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--corpus", nargs="+", action="append", required=True, metavar="PATH",
        help="SOURCE TARGET [WEIGHT]: text, plain or .gz, and how often a round draws it; repeatable",
    )  # fmt: skip
    parser.add_argument("--exclude", type=Path, action="append", help="source lines to leave out; repeatable")
    parser.add_argument("--output", type=Path, required=True, help="gets model/ (the result) and run/")
    parser.add_argument("--cache", type=Path, help="where tokenised text is kept (OUTPUT/cache)")
    parser.add_argument("--held-out", type=int, help="validation pairs taken from each corpus")
    parser.add_argument("--longest", type=int, help="longer pairs, in tokens, are left out and counted")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start", type=Path, help="Marian folder to start from; else a model is made anew")
    parser.add_argument("--architecture", choices=("marian", "m2m_100"), help="of a new model")
    parser.add_argument("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help="of a new tokenizer")
    parser.add_argument("--vocabulary", type=int, help="size of a new vocabulary")
    for shape in fields(Shape):
        parser.add_argument(f"--{shape.name.replace('_', '-')}", type=int, help="of a new model")


def add_training_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="the budget in updates")
    parser.add_argument("--minutes", type=float, help="the budget in minutes of training")
    parser.add_argument("--optimizer", choices=("muon", "adamw"))
    parser.add_argument("--rate", type=float, help="the peak learning rate")
    parser.add_argument("--warmup", type=int, help="steps up to the peak rate")
    parser.add_argument("--decay", type=float, help="the last part of the budget, in which the rate falls to zero")
    parser.add_argument("--precision", choices=PRECISIONS, help="of the matrix products")
    parser.add_argument("--smoothing", type=float, help="label smoothing")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--tokens", type=int, help="padded source and target tokens of one batch")
    parser.add_argument("--accumulate", type=int, help="batches of each process in one step")
    parser.add_argument("--processes", type=int, help="single-threaded processes, one a core")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--validate-every", type=int, metavar="STEPS")
    parser.add_argument("--save-every", type=int, metavar="STEPS")
    parser.add_argument("--average", type=int, metavar="CHECKPOINTS", help="last checkpoints to average")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in OUTPUT/run")


def parse_settings(arguments: Sequence[str] | None, *, description: str | None) -> Settings:
    """Options that are not given keep the defaults of `Settings`."""
    parser = argparse.ArgumentParser(description=description, argument_default=argparse.SUPPRESS)
    for add in (add_data_options, add_model_options, add_training_options, add_run_options):
        add(parser)
    given = vars(parser.parse_args(arguments))
    shape = Shape(**{part.name: given.pop(part.name) for part in fields(Shape) if part.name in given})
    budget = Budget(steps=given.pop("steps", None), minutes=given.pop("minutes", None))
    many_languages = given.get("architecture") == "m2m_100"
    corpora = tuple(parse_source(words, many_languages=many_languages) for words in given.pop("corpus"))
    lists: dict[str, Any] = {name: tuple(given.pop(name)) for name in ("exclude", "languages") if name in given}
    cache = given.pop("cache", given["output"] / "cache")
    return Settings(corpora=corpora, shape=shape, budget=budget, cache=cache, **lists, **given)
