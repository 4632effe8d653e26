"""Write docs/cli.md from the command line itself; `python docs/generate_cli.py --check` fails if it is out of date."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from knnmt.cli.main import app

PAGE = Path(__file__).with_name("cli.md")
HEAD = """# The command line

This page lists all commands and options. `make docs` generates it from the program.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | an error in knnmt itself |
| 2 | a wrong call or bad input; one line on stderr names the file or flag |
| 130 | interrupted (Ctrl-C) |

- Results go to stdout. Progress and messages go to stderr.
- All commands read files that end in `.gz`.
- `MODEL` is a name on the Hugging Face Hub, a folder, or `builtin:de-en`, the embedded model.
"""


def page() -> str:
    """All commands with their arguments and options."""
    program: Any = typer.main.get_command(app)
    return "\n".join([HEAD, *sections(program)])


def sections(group: Any, before: str = "") -> Iterator[str]:
    """Every command, those of groups too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from sections(command, f"{before}{name} ")
        else:
            yield section(before + name, command)


def section(name: str, command: Any) -> str:
    arguments = [f" {each.metavar or each.name.upper()}" for each in of_kind(command, "argument")]
    rows = [row(option) for option in of_kind(command, "option")]
    table = "\n".join(["| option | |", "| --- | --- |", *rows]) + "\n" if rows else ""
    return f"## `knnmt {name}{''.join(arguments)}`\n\n{command.help}\n\n{table}"


def of_kind(command: Any, kind: str) -> list[Any]:
    return [parameter for parameter in command.params if parameter.param_type_name == kind]


def row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    text = (option.help or "").replace("|", "\\|")
    return f"| {names} | {text}{' **Required.**' if option.required else ''} |"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != page() and "docs/cli.md is out of date: run `make docs`")
    PAGE.write_text(page(), encoding="utf-8")
