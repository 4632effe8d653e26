"""JSON lines: the source field of each object is translated into its target field; the rest of the line stays."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from knnmt.documents.content import DocumentUnit, UnitResult, plain_text
from knnmt.documents.document import DocumentOptions, Piece, Slot, SplicedDocument
from knnmt.documents.plain import around
from knnmt.errors import DocumentError
from knnmt.scanning.encodings import MARK, EncodedFile, open_text
from knnmt.text.jsonl import object_of_pairs, text_under
from knnmt.text.languages import best_first

SPACE = " \t\r\n"
DECODER = json.JSONDecoder(object_pairs_hook=object_of_pairs)


def open_jsonl(path: Path, options: DocumentOptions) -> SplicedDocument:
    file = open_text(path)
    return SplicedDocument(path, "JSONL", file.encoding, partial(pieces, file, options))


def pieces(file: EncodedFile, options: DocumentOptions) -> Iterator[Piece]:
    for number, line in enumerate(file.lines(), start=1):
        if line.strip(SPACE + MARK):
            yield piece_of(line, options, f"{file.path}: line {number}")
        else:
            yield line


@dataclass(frozen=True, slots=True)
class Field:
    """A value of an object and its offsets in the line."""

    name: str
    value: Any
    start: int
    end: int


def piece_of(line: str, options: DocumentOptions, place: str) -> Piece:
    try:
        source, target, new_name, end = sides_of(line, options)
        existing = "" if target is None or target.value is None else text_under(target.value, target.name)
        text = around(text_under(source.value, source.name))[1]
    except json.JSONDecodeError as error:
        raise DocumentError(f"{place}, column {error.colno} is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{place}: {error}") from error
    if not text or (existing.strip() and not options.all_units):
        return line
    unit = DocumentUnit(0, (text,), place, None, (existing,) if existing.strip() else None, has_lines=True)
    return Slot((unit,), partial(written_line, line, source, target, new_name, end))


def sides_of(line: str, options: DocumentOptions) -> tuple[Field, Field | None, str, int]:
    """The source, the target if there is one, its name, and where the last value of their object ends."""
    start = 1 if line.startswith(MARK) else 0
    fields = object_fields(line, skip(line, start))
    if line[fields_end(line, fields, skip(line, start)) :].strip(SPACE):
        raise ValueError("has text after its object")
    named = {field.name: field for field in fields}
    if options.columns is None and isinstance(getattr(named.get("translation"), "value", None), dict):
        return sides_by_language(line, named["translation"], options)
    source, target = options.columns or ("source", "target")
    if source not in named:
        raise ValueError(f"no text under {source!r}")
    return named[source], named.get(target), target, fields[-1].end


def sides_by_language(line: str, inside: Field, options: DocumentOptions) -> tuple[Field, Field | None, str, int]:
    source, target = options.source_lang, options.target_lang
    if source is None or target is None:
        raise ValueError("name the languages with --source-lang and --target-lang")
    fields = object_fields(line, inside.start)
    coded = [(field.name, field) for field in fields]
    sources, targets = best_first(coded, source, target), best_first(coded, target, source)
    if not sources:
        raise ValueError(f"no text under {source!r}")
    return sources[0], targets[0] if targets else None, target, fields[-1].end


def written_line(
    line: str, source: Field, target: Field | None, name: str, end: int, results: tuple[UnitResult, ...]
) -> str:
    before, _, after = around(str(source.value))
    text = before + plain_text(results[0].target) + after
    raw = line[source.start : source.end]
    value = raw if text == source.value else json.dumps(text, ensure_ascii=spells_escapes(line))
    if target is not None:
        return line[: target.start] + value + line[target.end :]
    comma, colon = (", ", ": ") if '": ' in line else (",", ":")
    return f"{line[:end]}{comma}{json.dumps(name)}{colon}{value}{line[end:]}"


def spells_escapes(line: str) -> bool:
    """Whether the line writes letters as \\u00e4, and none as they are."""
    return "\\u" in line and line.removeprefix(MARK).isascii()


# Places in a line


def skip(line: str, at: int) -> int:
    while at < len(line) and line[at] in SPACE:
        at += 1
    return at


def object_fields(line: str, at: int) -> list[Field]:
    """The fields of the object that begins at a place; ValueError where there is none."""
    value, _ = DECODER.raw_decode(line, at)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    fields: list[Field] = []
    while value and (not fields or line[skip(line, fields[-1].end)] == ","):
        begin = skip(line, (skip(line, fields[-1].end) if fields else at) + 1)
        name, stop = DECODER.raw_decode(line, begin)
        start = skip(line, skip(line, stop) + 1)
        inner, stop = DECODER.raw_decode(line, start)
        fields.append(Field(name, inner, start, stop))
    return fields


def fields_end(line: str, fields: list[Field], at: int) -> int:
    """Behind the closing brace."""
    return skip(line, fields[-1].end if fields else at + 1) + 1
