"""Reads stores of earlier formats as if they were of the current one.

The second format differs from the third only in what may be absent, so it needs no code here. The first had one index,
no versions, no hashes of sentences and no metadata, and numbered the rows in its column of segments through all parts.
"""

from itertools import accumulate
from typing import Any

FIRST_INDEX = "index.faiss"


def as_second(record: dict[str, Any]) -> dict[str, Any]:
    """A manifest of the first format as one of the second."""
    made, counts = record["created"], [part["segments"] for part in record["parts"]]
    origins = accumulate([0, *counts[:-1]])
    parts = [{**part, "created": made, "origin": origin} for part, origin in zip(record["parts"], origins, strict=True)]
    index = {**record["index"], "name": FIRST_INDEX, "entries": record["entries"]}
    rest = {name: value for name, value in record.items() if name != "index"}
    new = {"changed": made, "change": "built", "removed": None, "oldest": record.get("version", 1)}
    return rest | new | {"parts": parts, "indexes": [index], "format": 2}


def with_later_fields(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table of sentence pairs with the fields that came later."""
    later: dict[str, Any] = {"created": "", "metadata": []}
    return later | {name: value for name, value in row.items() if name != "segment"}
