"""Progress bars on stderr, shown only on a terminal."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Advance = Callable[[int, int], None]  # (steps done, tokens done)


QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


class TokensPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        tokens, elapsed = task.fields["tokens"], task.elapsed or 0.0
        return Text(f"{tokens / elapsed:,.0f} tokens/s" if tokens and elapsed else "", style="cyan")


@contextmanager
def progress_bar(label: str, total: int, *, done: int = 0, show: bool = True) -> Iterator[Advance]:
    """Yield a function to call with (steps, tokens) when some are done."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TokensPerSecond(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as progress:
        task = progress.add_task(label, total=total, completed=done, tokens=0)

        def advance(steps: int, tokens: int = 0) -> None:
            progress.update(task, advance=steps, tokens=progress.tasks[0].fields["tokens"] + tokens)

        yield advance


def silence_libraries() -> None:
    """Silence transformers while it loads a model. Call it before transformers is imported, in a process of our own.

    A variable that the user has set is left alone.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
