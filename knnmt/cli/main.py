"""The entry point: commands, exit codes and error messages."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from knnmt.cli.measuring_commands import measuring_commands
from knnmt.cli.options import errors, output
from knnmt.cli.serving_commands import serving_commands
from knnmt.cli.store_commands import store_commands
from knnmt.cli.translating_commands import translating_commands
from knnmt.errors import KnnmtError, SettingsError
from knnmt.progress import silence_libraries
from knnmt.release import __version__

WRONG_CALL: type[typer.BadParameter] = typer.BadParameter.__bases__[0]  # every error that the option parser raises

STOPPED = 130  # as shells count an interrupt

app = typer.Typer(
    name="knnmt",
    help="Nearest-neighbour machine translation: adapt a model to your translation memory, without training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(store_commands)
app.add_typer(translating_commands)
app.add_typer(measuring_commands)
app.add_typer(serving_commands)


def main() -> None:
    """Run a command. Exit codes: 0 success; 2 wrong call or bad input, one line on stderr; 1 internal error."""
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input is read, whatever the locale
    silence_libraries()
    try:
        check_arguments(sys.argv[1:])
        code = app(with_addresses(sys.argv[1:]) or ["--help"], standalone_mode=False)
    except KnnmtError as error:
        code = fail(str(error))
    except WRONG_CALL as error:
        code = fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has gone
        code = 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        code = fail(f"{place}{(error.strerror or str(error)).lower()}")
    if code == STOPPED:
        fail("stopped")
    sys.exit(code if isinstance(code, int) else 0)


def check_arguments(arguments: list[str]) -> None:
    """Refuse arguments that are not valid text in the locale's encoding."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in argument):
            raise SettingsError(f"{argument.encode('utf-8', 'replace').decode()}: not UTF-8 text")


def with_addresses(arguments: list[str]) -> list[str]:
    """`--ray` may have no value: the next argument is its value only if it is an address."""
    from knnmt.cluster.connection import FOUND, is_address

    spread: list[str] = []
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        spread += [argument, FOUND] if argument == "--ray" and not is_address(following) else [argument]
    return spread


def fail(message: str) -> int:
    """One line on stderr; the exit code of bad input."""
    errors.print(f"knnmt: {' '.join(message.split())}")
    return 2


def show_version(wanted: bool) -> None:
    if wanted:
        output.print(f"knnmt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the datastore, memory and test set in this new folder.")
    ] = None,
) -> None:
    """Build, translate, score and explain with the embedded model and a small translation memory."""
    from knnmt.cli.demo import run_demo

    run_demo(output, keep=keep)
