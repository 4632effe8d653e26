"""A progress bar on stderr, silent when nobody is looking."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Advance = Callable[[int, int], None]  # (steps done, tokens done)


class TokensPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        tokens, elapsed = task.fields["tokens"], task.elapsed or 0.0
        return Text(f"{tokens / elapsed:,.0f} tokens/s" if tokens and elapsed else "", style="cyan")


@contextmanager
def progress_bar(label: str, total: int, *, done: int = 0, show: bool = True) -> Iterator[Advance]:
    """Inside, call the given function with (steps, tokens) whenever some are done."""
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
