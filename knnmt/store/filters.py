"""Which entries of a store may be found: it hides removed segments and those that a filter excludes."""

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.arrays import starts
from knnmt.errors import SettingsError, StoreError
from knnmt.files import reading
from knnmt.layout.bitmaps import as_array
from knnmt.search.allowed import Allowed
from knnmt.store.datastore import Store

if TYPE_CHECKING:
    from knnmt.text.corpus import Segment

FIELDS = ("corpus", "created")  # columns of their own; every other name is looked up in the metadata
COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`corpus=clientA`, `created>=2026-01-01`, `project!=X`: a field or a key of the metadata, compared as text."""

    name: str
    comparison: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Condition":
        matched = re.fullmatch(r"([^=!<>]+)(=|!=|<=|>=|<|>)(.*)", text, re.DOTALL)
        if not matched:
            raise SettingsError(f"--where {text}: must be a name, a comparison and a value, such as corpus=house")
        return cls(matched[1].strip(), matched[2], matched[3].strip())

    def __str__(self) -> str:
        return f"{self.name}{self.comparison}{self.value}"

    def holds(self, value: str | None) -> bool:
        """Whether a value meets the condition. A segment without the key only meets `!=`."""
        if value is None:
            return self.comparison == "!="
        return bool(COMPARISONS[self.comparison](value, self.value))


def matching_segments(store: Store, conditions: Sequence[Condition]) -> BitMap:
    """Segments that meet every condition; of several `=` on one name, one is enough."""
    found = numbers_below(store.manifest.segments)
    for name in dict.fromkeys(condition.name for condition in conditions):
        equal = [c for c in conditions if c.name == name and c.comparison == "="]
        others = [c for c in conditions if c.name == name and c.comparison != "="]
        parts = enumerate(store.first_segments)
        found &= BitMap.union(
            BitMap(), *(matching_rows(store, part, name, equal, others, first) for part, first in parts)
        )
    return found


def numbers_below(end: int) -> BitMap:
    numbers = BitMap()
    numbers.add_range(0, end)
    return numbers


def matching_rows(
    store: Store, part: int, name: str, equal: Sequence[Condition], others: Sequence[Condition], first: int
) -> BitMap:
    """The matching segments of a part; each distinct value is tested once."""
    places, values = coded_values(store, part, name)
    good = np.array([*(met(value, equal, others) for value in values), met(None, equal, others)], bool)
    return BitMap((np.flatnonzero(good[places]) + first).astype(np.uint32))


def met(value: str | None, equal: Sequence[Condition], others: Sequence[Condition]) -> bool:
    return (not equal or any(c.holds(value) for c in equal)) and all(c.holds(value) for c in others)


def coded_values(store: Store, part: int, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """A field of each segment of a part, as an index into a list of values; −1 if it has none."""
    from pyarrow import ChunkedArray, compute

    column: ChunkedArray = store.part_files.read_pairs(part, [name if name in FIELDS else "metadata"]).column(0)
    with reading(store.part_files.pairs_path(part)):
        if name not in FIELDS:
            column = compute.map_lookup(column, name, "first")
        coded = column.combine_chunks().dictionary_encode()
        places = compute.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        values = coded.dictionary.to_pylist()
    if name == "created":
        values = [value or store.manifest.parts[part].created for value in values]
    return places, values


def live_segments(store: Store) -> BitMap:
    """Segments that have not been removed."""
    return numbers_below(store.manifest.segments) - store.removed


def segments_where(store: Store, where: Sequence[str]) -> BitMap:
    """Live segments that meet the conditions. If there are none, that is an error, because it may be a typing
    mistake.
    """
    found = live_segments(store) & matching_segments(store, [Condition.parse(text) for text in where])
    if where and not found:
        raise SettingsError(f"--where {' --where '.join(where)}: no segment of {store.path} meets it")
    return found


def chosen_segments(store: Store, where: Sequence[str]) -> "Iterator[Segment]":
    """The pairs that meet every condition, one by one; an error at once if there are none."""
    from knnmt.text.corpus import Segment  # with readers of every format, which translating does without

    chosen = segments_where(store, where)
    if not chosen:
        raise StoreError(f"{store.path}: every sentence pair has been removed; nothing is left to export")
    return (
        Segment(pair.source, pair.target, pair.corpus, pair.number, pair.created, pair.metadata)
        for pair in store.all_segments()
        if pair.segment in chosen
    )


def allowed_entries(store: Store, conditions: Sequence[Condition] = ()) -> list[Allowed] | None:
    """Which entries of each index may be neighbours; None where all may."""
    if not conditions and not store.removed:
        return None
    gone = store.entries_of(as_array(store.removed))
    counts = [index.entries for index in store.manifest.indexes]
    pieces = zip(starts(counts).tolist(), counts, strict=True)
    if not conditions:
        return [Allowed(entries, gone, first=first) for first, entries in pieces]
    mask = np.zeros(store.entries, bool)
    mask[store.entries_of(as_array(live_segments(store) & matching_segments(store, conditions)))] = True
    return [Allowed(entries, gone, mask[first : first + entries], first) for first, entries in pieces]
