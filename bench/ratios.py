"""Two or more things timed in turn, so that a busy moment hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

DIGITS = {"tokens_per_second": 1, "bleu": 1}


class Done(NamedTuple):
    tokens: int
    seconds: float


Work = Callable[[], int]  # does the work and returns how many tokens it handled
TimedWork = Callable[[], Done]  # knows itself how long it took


def speeds(works: Mapping[str, Work], repeats: int) -> dict[str, list[float]]:
    """Tokens per second of each work in each round; the first round, which warms everything up, is not counted."""
    return speeds_of_timed({name: partial(timed, work) for name, work in works.items()}, repeats)


def speeds_of_timed(works: Mapping[str, TimedWork], repeats: int) -> dict[str, list[float]]:
    """The same of works that are timed elsewhere."""
    measured: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(repeats + 1):
        for name, work in works.items():
            done = work()
            if round_:
                measured[name].append(done.tokens / done.seconds)
    return measured


def timed(work: Work) -> Done:
    began = time.perf_counter()
    tokens = work()
    return Done(tokens, time.perf_counter() - began)


def show(
    title: str,
    measured: dict[str, list[float]],
    reference: str,
    *,
    tokens: dict[str, int] | None = None,
    bleu: dict[str, float] | None = None,
) -> dict[str, dict[str, float]]:
    """A table of median speeds and of ratios to the reference, each ratio taken within a round.

    With the tokens that each wrote for the same text, also how much sooner it was done with it.
    """
    rows = {name: compared(values, measured[reference]) for name, values in measured.items()}
    for name, written in (tokens or {}).items():
        rows[name]["sooner"] = round(rows[name]["ratio"] * (tokens or {})[reference] / written, 3)
    for name, score in (bleu or {}).items():
        rows[name]["bleu"] = score
    table = Table(title=title, box=None)
    further = [*(["sooner"] if tokens else []), *(["BLEU"] if bleu else [])]
    for column in ("", "tokens/s", "ratio", "lowest", "highest", *further):
        table.add_column(column, justify="left" if not column else "right", no_wrap=not column)
    for name, row in rows.items():
        table.add_row(name, *(f"{value:,.{DIGITS.get(key, 2)}f}" for key, value in row.items()))
    Console().print(table)
    return rows


def compared(values: list[float], reference: list[float]) -> dict[str, float]:
    """The median speed, and the median and the spread of its ratio to the reference."""
    ratios = [value / base for value, base in zip(values, reference, strict=True)]
    return {
        "tokens_per_second": round(statistics.median(values), 1),
        "ratio": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
    }
