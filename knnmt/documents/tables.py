"""CSV and TSV: the source column is translated into the target column; every other cell stays as it is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from knnmt.documents.content import DocumentUnit, UnitResult, plain_text
from knnmt.documents.document import DocumentOptions, Piece, Slot, SplicedDocument
from knnmt.documents.plain import around
from knnmt.errors import DocumentError
from knnmt.scanning.encodings import MARK, EncodedFile, open_text
from knnmt.text.inputs import LONGEST, ending_of
from knnmt.text.languages import best_first
from knnmt.text.tables import FORMULA, LANGUAGE_CODE, counted, position_of, separator_of, unguarded

CALL = r"[^\W\d][\w.]*\("
CELL = r"\$?[A-Z]{1,3}\$?\d+"
# What a spreadsheet computes, and no text begins like: `=SUM(A1:A3)`, `=A1&" kg"`, `=1+2`, `+SUM(A1)`, `=cmd|'…'!A1`.
COMPUTED = re.compile(
    rf"""=\s*[-+(]*(?:{CALL}|{CELL}\s*(?:$|[-+*/^&:,;)=<>%])|"|[\d.][\d.,()+\-*/^% ]*$|'[^']+'!|\w+!)
    |[-+@][A-Z][A-Z0-9._]*\(.*\)\s*$|[=+\-@]\s*\w+\|'""",
    re.VERBOSE | re.DOTALL,
)


def open_table(path: Path, options: DocumentOptions) -> SplicedDocument:
    file = open_text(path)
    kind = ending_of(path)[1:].upper()
    if kind == "TSV":
        table = Table(file, options, "\t", quoted=False)
    else:
        table = Table(file, options, separator_of(first_line(file)), quoted=True)
    return SplicedDocument(path, kind, file.encoding, table.pieces)


def first_line(file: EncodedFile) -> str:
    """The first line that is not blank, without its byte order mark."""
    return next((line.strip("\r\n").removeprefix(MARK) for line in file.lines() if line.strip(f"{MARK}\r\n ")), "")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the two texts of a row are."""

    source: int
    target: int | None  # None: a column after the last
    width: int
    new_name: str | None = None  # of that column; None: there is no header


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells as they are written in the file, and the line end after them."""

    number: int  # of its first line
    cells: list[str]
    end: str
    before: str = ""  # a byte order mark

    @property
    def is_blank(self) -> bool:
        return self.is_blank_from(0)

    @property
    def names_separator(self) -> bool:
        """`sep=;`, which Excel writes before the header."""
        return self.cells[0].lower() == "sep=" and self.is_blank_from(1)

    def is_blank_from(self, first: int) -> bool:
        return not any(cell.strip(' \t"') for cell in self.cells[first:])

    def written(self, separator: str) -> str:
        return self.before + separator.join(self.cells) + self.end


@dataclass(frozen=True, slots=True)
class Table:
    file: EncodedFile
    options: DocumentOptions
    separator: str
    quoted: bool

    def pieces(self) -> Iterator[Piece]:
        columns: Columns | None = None
        for row in self.rows():
            if row.is_blank or (columns is None and row.names_separator):
                yield row.written(self.separator)
            elif columns is None:
                columns = self.columns_of(row)
                yield self.header(row, columns) if self.has_header(row) else self.piece(row, columns)
            else:
                yield self.piece(row, columns)

    def rows(self) -> Iterator[TableRow]:
        rows = quoted_rows(self.file, self.separator) if self.quoted else plain_rows(self.file)
        for at, row in enumerate(rows):
            if at == 0 and row.cells[0].startswith(MARK):
                yield TableRow(row.number, [row.cells[0][1:], *row.cells[1:]], row.end, MARK)
            else:
                yield row

    # Columns

    def names(self, row: TableRow) -> list[str]:
        return [self.value(cell).strip() for cell in row.cells]

    def has_header(self, row: TableRow) -> bool:
        return self.named_columns(row) is not None

    def columns_of(self, row: TableRow) -> Columns:
        found = self.named_columns(row)
        if found is not None:
            return found
        if len(row.cells) > 2:
            hint = "name source and target in a header, or choose two of its names with --columns"
            raise DocumentError(f"{self.place(row)} has {counted(row.cells, self.separator)} and no header; {hint}")
        return Columns(0, 1 if len(row.cells) == 2 else None, len(row.cells))

    def named_columns(self, row: TableRow) -> Columns | None:
        """The columns that a header names: as chosen, as `source` and `target`, or by language."""
        names = self.names(row)
        if self.options.columns is not None:
            source, target = self.options.columns
            at, to = position_of(source, names, self.place(row)), names.index(target) if target in names else None
            return self.checked(Columns(at, to, len(names), target), row)
        lower = [name.lower() for name in names]
        if "source" in lower:
            to = lower.index("target") if "target" in lower else None
            return self.checked(Columns(lower.index("source"), to, len(names), "target"), row)
        return self.language_columns(names, row)

    def language_columns(self, names: list[str], row: TableRow) -> Columns | None:
        source, target = self.options.source_lang, self.options.target_lang
        if source is None or target is None:
            return None
        codes = [(name, position) for position, name in enumerate(names) if LANGUAGE_CODE.fullmatch(name)]
        sources, targets = best_first(codes, source, target), best_first(codes, target, source)
        if not sources:
            return None
        return self.checked(Columns(sources[0], targets[0] if targets else None, len(names), target), row)

    def checked(self, columns: Columns, row: TableRow) -> Columns:
        if columns.source == columns.target:
            raise DocumentError(f"{self.place(row)}: one column is chosen for both sides")
        return columns

    def header(self, row: TableRow, columns: Columns) -> str:
        if columns.target is not None:
            return row.written(self.separator)
        name = self.spelled(columns.new_name or "", row.cells[columns.source])
        return TableRow(row.number, [*row.cells, name], row.end, row.before).written(self.separator)

    # Rows

    def place(self, row: TableRow) -> str:
        return f"{self.file.path}: line {row.number}"

    def piece(self, row: TableRow, columns: Columns) -> Piece:
        if len(row.cells) != columns.width:
            found = counted(row.cells, self.separator)
            raise DocumentError(f"{self.place(row)} has {found} instead of {columns.width}")
        source = around(self.text_of(row.cells[columns.source]))[1]
        existing = self.text_of(row.cells[columns.target]) if columns.target is not None else ""
        if not source or self.is_computed(row, columns) or (existing.strip() and not self.options.all_units):
            return self.with_target(row, columns, None).written(self.separator)
        old = (existing,) if existing.strip() else None
        unit = DocumentUnit(0, (source,), self.place(row), None, old, has_lines=True)
        return Slot((unit,), partial(self.written, row, columns))

    def written(self, row: TableRow, columns: Columns, results: tuple[UnitResult, ...]) -> str:
        raw = row.cells[columns.source]
        before, _, after = around(self.text_of(raw))
        text = before + plain_text(results[0].target) + after
        cell = self.spelled(self.guarded(text, raw), raw)
        return self.with_target(row, columns, cell).written(self.separator)

    def with_target(self, row: TableRow, columns: Columns, cell: str | None) -> TableRow:
        """The row with another target; None leaves the one that it has."""
        if columns.target is None:
            return TableRow(row.number, [*row.cells, cell or ""], row.end, row.before)
        if cell is None:
            return row
        cells = [*row.cells]
        cells[columns.target] = cell
        return TableRow(row.number, cells, row.end, row.before)

    # Cells

    def is_computed(self, row: TableRow, columns: Columns) -> bool:
        """Whether the source is no text but a formula, whose result is not in the file."""
        return COMPUTED.match(self.value(row.cells[columns.source]).strip()) is not None

    def value(self, cell: str) -> str:
        return cell[1:-1].replace('""', '"') if self.quoted and cell.startswith('"') else cell

    def text_of(self, cell: str) -> str:
        return unguarded(self.value(cell)) if self.quoted else cell

    def guarded(self, text: str, source: str) -> str:
        """With an apostrophe where a spreadsheet would compute the cell, unless the source is written like that too."""
        value = self.value(source)
        bare = FORMULA.match(value) and not value.startswith("'")
        return f"'{text}" if self.quoted and FORMULA.match(text) and not bare else text

    def spelled(self, text: str, source: str) -> str:
        """A text as a cell, in quotes where it must be or where the source's cell is."""
        if not self.quoted:
            return " ".join(text.split("\n")).replace("\t", " ").replace("\r", " ")
        special = any(letter in text for letter in (self.separator, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if special or source.startswith('"') else text


# Reading rows


def line_end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def plain_rows(file: EncodedFile) -> Iterator[TableRow]:
    for number, line in enumerate(file.lines(), start=1):
        end = line_end_of(line)
        yield TableRow(number, line[: len(line) - len(end)].split("\t"), end)


@dataclass(slots=True)
class Pending:
    """A row of which some lines have been read; its last cell may continue."""

    number: int
    cells: list[str] = field(default_factory=list)
    quoted: list[str] = field(default_factory=list)  # the beginning of a cell whose quote is open
    size: int = 0


def quoted_rows(file: EncodedFile, separator: str) -> Iterator[TableRow]:
    """Rows of CSV; a quoted cell may have several lines."""
    row = Pending(1)
    for number, line in enumerate(file.lines(), start=1):
        row.size += len(line)
        if row.size > LONGEST:
            raise DocumentError(f"{file.path}: the row at line {row.number} is longer than {LONGEST >> 20} MB")
        end = add_line(row, line, separator, f"{file.path}: line {number}")
        if end is not None:
            yield TableRow(row.number, row.cells, end)
            row = Pending(number + 1)
    if row.quoted:
        raise DocumentError(f"{file.path}: line {row.number} is not CSV: a quote is not closed")


def add_line(row: Pending, line: str, separator: str, where: str) -> str | None:
    """The line end where the row ends; None where a quote is still open."""
    at = 0
    mark = MARK if line.startswith(MARK) else ""
    while True:
        if row.quoted or line.startswith('"', at + len(mark)):
            closed = closing_quote(line, at if row.quoted else at + len(mark) + 1)
            row.quoted.append(line[at : closed + 1 if closed >= 0 else None])
            if closed < 0:
                return None
            row.cells.append("".join(row.quoted))
            row.quoted, at = [], closed + 1
        else:
            stop = next_of(line, at, separator)
            row.cells.append(line[at:stop])
            at = stop
        rest = line[at:]
        if not rest.strip("\r\n"):
            return rest
        if not rest.startswith(separator):
            raise DocumentError(f"{where} is not CSV: text after a closed quote")
        at, mark = at + 1, ""


def closing_quote(line: str, at: int) -> int:
    while (at := line.find('"', at)) >= 0:
        if not line.startswith('""', at):
            return at
        at += 2
    return -1


def next_of(line: str, at: int, separator: str) -> int:
    """Where an unquoted cell ends."""
    stop = line.find(separator, at)
    return stop if stop >= 0 else len(line.rstrip("\r\n"))
