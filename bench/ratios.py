"""Two or more things timed in turn, so that a busy moment hits all of them."""

import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

Work = Callable[[], int]  # does the work and returns how many tokens it handled


def speeds(works: dict[str, Work], repeats: int) -> dict[str, list[float]]:
    """Tokens per second of each work in each round; the first round, which warms everything up, is not counted."""
    measured: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(repeats + 1):
        for name, work in works.items():
            began = time.perf_counter()
            tokens = work()
            if round_:
                measured[name].append(tokens / (time.perf_counter() - began))
    return measured


def show(title: str, measured: dict[str, list[float]], reference: str) -> dict[str, dict[str, float]]:
    """A table of median speeds and of ratios to the reference, each ratio taken within a round."""
    table = Table(title=title, box=None)
    for column in ("", "tokens/s", "ratio", "lowest", "highest"):
        table.add_column(column, justify="left" if not column else "right")
    rows = {}
    for name, values in measured.items():
        ratios = [value / base for value, base in zip(values, measured[reference], strict=True)]
        rows[name] = {
            "tokens_per_second": round(statistics.median(values), 1),
            "ratio": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
        }
        numbers = [
            f"{value:,.1f}" if key == "tokens_per_second" else f"{value:.2f}" for key, value in rows[name].items()
        ]
        table.add_row(name, *numbers)
    Console().print(table)
    return rows
