"""Parallel text on disk: one sentence a line, plain or gzipped."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO, cast


class RecipeError(Exception):
    """What the user can put right: a file or a flag, named in the message."""


def open_text(path: Path) -> TextIO:
    try:
        # Only "\n" ends a line: real corpora hold "\r" and "\x85" inside sentences.
        if path.suffix == ".gz":
            return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline="\n"))
        return path.open(encoding="utf-8", newline="\n")
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def read_lines(path: Path) -> Iterator[str]:
    with open_text(path) as stream:
        for line in stream:
            yield line.strip()


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    try:
        yield from zip(read_lines(source), read_lines(target), strict=True)
    except ValueError as error:
        raise RecipeError(f"{source} and {target} differ in their number of lines") from error


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for line in lines)
