"""TSV and CSV, with columns chosen by name or recognised by their header."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knnmt.errors import CorpusError
from knnmt.text.inputs import LONGEST, ending_of, read_wide_lines
from knnmt.text.jsonl import text_values
from knnmt.text.languages import best_first
from knnmt.text.units import Languages, Unit, described

TABLES = (".tsv", ".csv")
SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon"}

Row = tuple[int, list[str]]  # the line on which it ends, its cells; none where the line is blank
Columns = tuple[str, str] | None

# What a header calls a column by its language, so that no sentence is taken for one: de, deu, de-AT, zh_Hans_CN.
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_]([a-z]{4}|[a-z]{2}|\d{3}))*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which cell is what."""

    source: int
    target: int
    width: int
    others: tuple[tuple[int, str], ...] = ()  # further cells, and the names under which they are kept


def read_table(path: Path, languages: Languages, columns: Columns = None) -> Iterator[Unit]:
    """Two columns without a header, or the columns that the header names."""
    rows, separator = csv_rows(path) if ending_of(path) == ".csv" else (tsv_rows(path), "\t")
    layout: Layout | None = None
    for number, cells in rows:
        if layout is None and cells:
            layout = layout_of(cells, languages, columns, f"{path}: line {number}")
            if layout is not None:
                continue
            layout = Layout(0, 1, 2)
            check_two(cells, f"{path}: line {number}", separator)
        if cells and layout is not None and len(cells) != layout.width:
            raise CorpusError(f"{path}: line {number} has {counted(cells, separator)} instead of {layout.width}")
        yield unit_of_row(cells, layout)


def unit_of_row(cells: list[str], layout: Layout | None) -> Unit:
    if not cells or layout is None:
        return Unit("", "")
    if not layout.others:
        return Unit(cells[layout.source], cells[layout.target])
    fields = {name: cells[position] for position, name in layout.others if cells[position]}
    more = metadata_cell(fields)
    return described(cells[layout.source], cells[layout.target], fields, more)


def check_two(cells: list[str], where: str, separator: str) -> None:
    """Raise unless a first row without header names has two cells."""
    if len(cells) != 2:
        hint = "name source and target in a header, or choose two of its names with --columns"
        raise CorpusError(f"{where} has {counted(cells, separator)} instead of 2; {hint}")


def counted(cells: list[str], separator: str) -> str:
    return f"{len(cells)} {SEPARATORS[separator]}-separated columns"


def metadata_cell(fields: dict[str, str]) -> dict[str, str]:
    """The metadata that an export wrote as a JSON object. Anything else in that column is plain text."""
    if not fields.get("metadata", "").startswith("{"):
        return {}
    try:
        more = text_values(json.loads(fields["metadata"]))
    except (ValueError, RecursionError):
        return {}
    del fields["metadata"]
    return more


# Headers


def layout_of(cells: list[str], languages: Languages, columns: Columns, where: str) -> Layout | None:
    """The layout that the first row names, or None if it is a sentence pair."""
    names = [cell.strip() for cell in cells]
    if columns is not None:
        sides = tuple(position_of(column, names, where) for column in columns)
    else:
        sides = named_sides(names) or language_sides(names, languages) or ()
    return layout_of_header(names, *sides, where=where) if sides else None


def position_of(column: str, names: list[str], where: str) -> int:
    if column not in names:
        listed = ", ".join(repr(name) for name in names[:20])
        raise CorpusError(f"{where} names no column {column!r}; it has {listed}")
    return names.index(column)


def named_sides(names: list[str]) -> tuple[int, int] | None:
    lower = [name.lower() for name in names]
    return (lower.index("source"), lower.index("target")) if {"source", "target"} <= set(lower) else None


def language_sides(names: list[str], languages: Languages) -> tuple[int, int] | None:
    """The columns under the codes of the wanted languages, where both are there."""
    source, target = languages
    if source is None or target is None:
        return None
    codes = [(name, position) for position, name in enumerate(names) if LANGUAGE_CODE.fullmatch(name)]
    sources, targets = best_first(codes, source, target), best_first(codes, target, source)
    return (sources[0], targets[0]) if sources and targets and sources[0] != targets[0] else None


def layout_of_header(names: list[str], source: int, target: int, *, where: str) -> Layout:
    if source == target:
        raise CorpusError(f"{where}: the column {names[source]!r} is chosen for both sides")
    times = Counter(names)
    twice = next((name for name in names if name and times[name] > 1), None)
    if twice is not None:
        raise CorpusError(f"{where} names the column {twice!r} twice")
    others = [(at, other_name(name, at)) for at, name in enumerate(names) if at not in (source, target)]
    return Layout(source, target, len(names), tuple(others))


def other_name(name: str, position: int) -> str:
    """The name of a metadata column. Reserved names are recognised in any case."""
    return name.lower() if name.lower() in ("created", "corpus", "metadata") else name or f"column {position + 1}"


# Rows


def tsv_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_wide_lines(path), start=1):
        yield number, line.split("\t") if line.strip() else []


def csv_rows(path: Path) -> tuple[Iterator[Row], str]:
    first = next((line for line in read_wide_lines(path) if line.strip()), "")
    separator = separator_of(first)
    return quoted_rows(path, separator), separator


def separator_of(line: str) -> str:
    """The separator. Many spreadsheets write semicolons: used if commas give only one column."""
    widths = {separator: width_of(line, separator) for separator in (",", ";", "\t")}
    return "," if widths[","] > 1 else max(widths, key=lambda separator: widths[separator])


def width_of(line: str, separator: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=separator), []))
    except csv.Error:
        return 0


# What makes a spreadsheet take a cell for a formula, behind any apostrophes.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


def guarded(cell: str) -> str:
    """A cell for export, with an apostrophe before what a spreadsheet would compute."""
    return f"'{cell}" if FORMULA.match(cell) else cell


def unguarded(cell: str) -> str:
    """The cell without what `guarded` put before it."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def quoted_rows(path: Path, separator: str) -> Iterator[Row]:
    """Rows of a CSV file; a quoted cell may hold line breaks."""
    csv.field_size_limit(LONGEST)  # of the whole process, but 128 KB would be less than in every other format
    rows: Any = csv.reader((f"{line}\n" for line in read_wide_lines(path)), delimiter=separator, strict=True)
    while True:
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise CorpusError(f"{path}: line {rows.line_num} is not CSV: {error}; is a quote not closed?") from error
        if cells is None:
            return
        yield rows.line_num, [unguarded(cell) for cell in cells] if any(cell.strip() for cell in cells) else []
