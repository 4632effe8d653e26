"""Which part of a memory may be used: what was removed is out, and so is what a filter does not let through."""

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knnmt.errors import SettingsError, StoreError
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

Mask = NDArray[np.bool_]


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
        """A segment that lacks the key is only unequal to everything."""
        if value is None:
            return self.comparison == "!="
        return bool(COMPARISONS[self.comparison](value, self.value))


def matching_segments(store: Store, conditions: Sequence[Condition]) -> Mask:
    """Which segments [segments] meet every condition; of several `=` on one name, one is enough."""
    meets = np.ones(store.manifest.segments, bool)
    for name in dict.fromkeys(condition.name for condition in conditions):
        values = np.concatenate([values_of(store, part, name) for part in range(len(store.manifest.parts))])
        equal = [c for c in conditions if c.name == name and c.comparison == "="]
        others = [c for c in conditions if c.name == name and c.comparison != "="]
        known = {value: met(value, equal, others) for value in set(values)}
        meets &= np.array([known[value] for value in values], bool)
    return meets


def met(value: str | None, equal: Sequence[Condition], others: Sequence[Condition]) -> bool:
    return (not equal or any(c.holds(value) for c in equal)) and all(c.holds(value) for c in others)


def values_of(store: Store, part: int, name: str) -> NDArray[Any]:
    """A field of each segment of a part, None where it has none."""
    if name not in FIELDS:
        from pyarrow import compute

        column = store.pairs_file(part).read(columns=["metadata"]).column("metadata")
        return np.array(compute.map_lookup(column, name, "first").to_pylist(), dtype=object)
    values = store.pairs_file(part).read(columns=[name]).column(name).to_pylist()
    if name == "created":
        values = [value or store.manifest.parts[part].created for value in values]
    return np.array(values, dtype=object)


def live_segments(store: Store) -> Mask:
    """Which segments [segments] have not been removed."""
    live = np.ones(store.manifest.segments, bool)
    live[store.removed] = False
    return live


def segments_where(store: Store, where: Sequence[str]) -> Mask:
    """Which segments [segments] are there and meet the conditions; that none does is an error, for it may be a slip."""
    found = live_segments(store) & matching_segments(store, [Condition.parse(text) for text in where])
    if where and not found.any():
        raise SettingsError(f"--where {' --where '.join(where)}: no segment of {store.path} meets it")
    return found


def chosen_segments(store: Store, where: Sequence[str]) -> "Iterator[Segment]":
    """The pairs of the memory that meet every condition, as they were read; that there is none is known at once."""
    from knnmt.text.corpus import Segment  # with readers of every format, which translating does without

    chosen = segments_where(store, where)
    if not chosen.any():
        raise StoreError(f"{store.path}: every sentence pair has been removed; nothing is left to export")
    return (
        Segment(pair.source, pair.target, pair.corpus, pair.number, pair.created, pair.metadata)
        for pair in store.all_segments()
        if chosen[pair.segment]
    )


def allowed_entries(store: Store, conditions: Sequence[Condition] = ()) -> Mask | None:
    """Which entries [entries] may be neighbours; None where all may."""
    if not conditions and not len(store.removed):
        return None
    segments = live_segments(store) & matching_segments(store, conditions)
    columns = zip(store.columns("segments"), store.first_segments, strict=True)
    return np.concatenate([segments[first + np.asarray(column, dtype=np.int64)] for column, first in columns])
