"""JSON lines: one object per pair; other text fields become metadata."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from knnmt.errors import CorpusError
from knnmt.text.inputs import read_lines
from knnmt.text.languages import best_first
from knnmt.text.units import Languages, Unit, described

SIDES = ("source", "target", "translation")


def read_jsonl(path: Path, languages: Languages) -> Iterator[Unit]:
    """Objects with `source` and `target`, or with `translation` by language code as in Hugging Face data sets."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield unit_of_line(line, languages) if line.strip() else Unit("", "")
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}: line {number}, column {error.colno} is not JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{path}: line {number}: {error}") from error


def unit_of_line(line: str, languages: Languages) -> Unit:
    """The pair of one JSON object. Raises ValueError if there is none."""
    record = json.loads(line, object_pairs_hook=object_of_pairs)
    if not isinstance(record, dict):
        raise ValueError("not an object with 'source' and 'target'")
    fields = {name: text for name, text in text_values(record).items() if name not in SIDES}
    return described(*sides_of(record, languages), fields, text_values(record.get("metadata")))


def object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object as a dictionary. A repeated name is an error, because one value would be lost."""
    record = dict(pairs)
    if len(record) < len(pairs):
        times = Counter(name for name, _ in pairs)
        raise ValueError(f"has {next(name for name in times if times[name] > 1)!r} twice")
    return record


def sides_of(record: dict[str, Any], languages: Languages) -> tuple[str, str]:
    if isinstance(record.get("translation"), dict):
        return texts_by_language(record["translation"], languages)
    return text_under(record.get("source"), "source"), text_under(record.get("target"), "target")


def texts_by_language(record: dict[str, Any], languages: Languages) -> tuple[str, str]:
    """The texts under two language codes; `zh` finds `zh_CN`."""
    source, target = languages
    if source is None or target is None:
        raise ValueError("name the languages with --source-lang and --target-lang")
    sources, targets = best_first(record.items(), source, target), best_first(record.items(), target, source)
    return text_under(next(iter(sources), None), source), text_under(next(iter(targets), None), target)


def text_values(record: Any) -> dict[str, str]:
    """The values that are text."""
    items = record.items() if isinstance(record, dict) else ()
    return {name: text_under(value, name) for name, value in items if isinstance(value, str)}


def text_under(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"no text under {name!r}")
    try:
        (name + value).encode()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise ValueError(f"the text under {name!r} holds half a character") from error
    return value
