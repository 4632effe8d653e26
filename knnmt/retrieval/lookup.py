"""Finds sentence pairs by their text: equal, similar, or containing a text.

The similarity is RapidFuzz's `ratio` in per cent: twice the number of characters in common, in order, divided by the
characters of both texts. Texts cannot have more in common than their counts of characters allow. These counts take a
few bytes per segment. They exclude nearly all of a memory before any text is compared, and no match is missed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap
from rapidfuzz import fuzz

from knnmt.layout.bitmaps import as_array
from knnmt.layout.hashes import hash_of
from knnmt.store.datastore import Store, StoredSegment
from knnmt.store.filters import Condition, live_segments, matching_segments
from knnmt.text.corpus import one_line

LEAST = 70.0  # percent: what is less alike helps nobody
BUCKETS = 32  # characters are counted by their number modulo this: the letters of an alphabet stay apart
COMPARED_AT_ONCE = 512
PARTS_TRIED = 4096  # texts at most in which a part that is not there letter for letter is looked for
CONTEXTS = ("msgctxt", "id", "resname", "name", "context", "key")  # metadata that says where a text stands

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
Counts = NDArray[np.uint16]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hit:
    """A sentence pair that was found."""

    percent: float
    kind: Literal["whole", "part"]  # the whole side is alike, or a part of it is
    side: Side
    segment: StoredSegment
    store: str

    def to_json(self) -> dict[str, Any]:
        record = {"percent": round(self.percent, 1), "match": self.kind, "side": self.side}
        return record | asdict(self.segment) | {"store": self.store}


class Lookup:
    """Finds sentence pairs of stores that are not removed and meet the conditions."""

    def __init__(self, stores: Sequence[Store], *, where: Sequence[str] = ()) -> None:
        self.memories = [StoreTexts(store, where) for store in stores]

    def exact(self, text: str, *, context: str | None = None) -> StoredSegment | None:
        """The pair with this source, apart from white space. Of several: the one in the same context, then the
        newest.
        """
        found = [pair for memory in self.memories for pair in memory.with_source(one_line(text))]
        return max(found, key=lambda pair: (has_context(pair, context), pair.moment, pair.segment), default=None)

    def near(self, text: str, *, least: float = LEAST, most: int = 5, side: Side = "source") -> list[Hit]:
        """The pairs whose source is most like a text, best first."""
        hits = [hit for memory in self.memories for hit in memory.near(one_line(text), side, least, most)]
        return by_percent(hits, most)

    def concordance(self, text: str, *, least: float = LEAST, most: int = 20) -> list[Hit]:
        """Pairs of which one side is similar to a text or contains something similar; whole sides first, best first."""
        text = one_line(text)
        if not text:
            return []
        whole = [hit for side in SIDES for hit in self.near(text, least=least, most=most, side=side)]
        parts = [hit for memory in self.memories for side in SIDES for hit in memory.holding(text, side, least, most)]
        known = {(hit.store, hit.segment.segment) for hit in whole}
        others = [hit for hit in parts if (hit.store, hit.segment.segment) not in known]
        return one_each([*by_percent(whole, most), *by_percent(others, most)])[:most]


class StoreTexts:
    """The texts of one store, with counts that make search fast."""

    def __init__(self, store: Store, where: Sequence[str]) -> None:
        self.store = store
        self.where = where
        self._counts: dict[Side, Counts] = {}

    @cached_property
    def chosen(self) -> BitMap:
        """The segments that may be found."""
        return live_segments(self.store) & matching_segments(self.store, [Condition.parse(text) for text in self.where])

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """The same as a mask, [segments]."""
        mask = np.zeros(self.store.manifest.segments, bool)
        mask[as_array(self.chosen)] = True
        return mask

    def with_source(self, text: str) -> list[StoredSegment]:
        """The pairs with this source; the texts are compared, not only hashes."""
        numbers = [number for number in self.store.suspects(hash_of(text)) if number in self.chosen]
        return [pair for pair in self.pairs(np.array(numbers, np.int64)) if pair.source == text]

    def pairs(self, numbers: Numbers) -> list[StoredSegment]:
        return self.store.segments_at(numbers) if len(numbers) else []

    def counts(self, side: Side) -> Counts:
        """How often each kind of character comes in each text of a side, [segments, buckets]."""
        if side not in self._counts:
            parts = range(len(self.store.manifest.parts))
            each = [character_counts(self.store.table(part).column(side).to_pylist()) for part in parts]
            self._counts[side] = np.concatenate([np.empty((0, BUCKETS), np.uint16), *each])
        return self._counts[side]

    def near(self, text: str, side: Side, least: float, most: int) -> list[Hit]:
        """The texts of a side that are most like a text."""
        counts = self.counts(side)
        common = np.minimum(counts, character_counts([text])).sum(axis=1, dtype=np.int64)
        lengths = counts.sum(axis=1, dtype=np.int64) + len(text)
        bounds = 200.0 * common / np.maximum(lengths, 1)  # no text can be more alike than this
        return self.scored(text, side, bounds, least, most)

    def scored(self, text: str, side: Side, bounds: NDArray[np.float64], least: float, most: int) -> list[Hit]:
        """The best by their true percentage. Texts whose bound is below the worst of them are not read."""
        chosen = np.flatnonzero((bounds >= least) & self.allowed)
        chosen = chosen[np.argsort(-bounds[chosen], kind="stable")]
        best: list[Hit] = []
        for first in range(0, len(chosen), COMPARED_AT_ONCE):
            block = chosen[first : first + COMPARED_AT_ONCE]
            if len(best) == most and bounds[block[0]] < best[-1].percent:
                break
            best = by_percent([*best, *self.compared(text, side, np.sort(block), least)], most)
        return best

    def compared(self, text: str, side: Side, numbers: Numbers, least: float) -> Iterator[Hit]:
        for pair in self.pairs(numbers):
            percent = fuzz.ratio(text, getattr(pair, side), score_cutoff=least)
            if percent:
                yield Hit(percent, "whole", side, pair, str(self.store.path))

    def holding(self, text: str, side: Side, least: float, most: int) -> list[Hit]:
        """The texts of a side that hold a text, or else something like it."""
        from pyarrow import compute

        parts = range(len(self.store.manifest.parts))
        columns = [self.store.table(part).column(side) for part in parts]
        found = [compute.match_substring(column, text, ignore_case=True).to_numpy() for column in columns]
        holds = np.concatenate([np.empty(0, bool), *found]).astype(bool) & self.allowed
        numbers = np.flatnonzero(holds)[-most:]
        if not len(numbers):
            numbers = self.perhaps_holding(text, side, least)
        return by_percent([*self.in_part(text, side, numbers, least)], most)

    def perhaps_holding(self, text: str, side: Side, least: float) -> Numbers:
        """Texts that have nearly all characters of a text, the likeliest ones at most."""
        common = np.minimum(self.counts(side), character_counts([text])).sum(axis=1, dtype=np.int64)
        chosen = np.flatnonzero((100.0 * common / len(text) >= least) & self.allowed)
        return np.sort(chosen[np.argsort(-common[chosen], kind="stable")][:PARTS_TRIED])

    def in_part(self, text: str, side: Side, numbers: Numbers, least: float) -> Iterator[Hit]:
        for pair in self.pairs(numbers):
            whole: str = getattr(pair, side)
            longer = len(whole) >= len(text)
            percent = fuzz.partial_ratio(text.lower(), whole.lower(), score_cutoff=least) if longer else 0
            if percent:
                yield Hit(percent, "part", side, pair, str(self.store.path))


def character_counts(texts: Sequence[str]) -> Counts:
    """How often each kind of character comes in each text, [texts, buckets]."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32) % BUCKETS
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    counts = np.bincount(rows * BUCKETS + codes, minlength=len(texts) * BUCKETS)
    return np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16).reshape(len(texts), BUCKETS)


def has_context(pair: StoredSegment, context: str | None) -> bool:
    return context is not None and any(pair.metadata.get(name) == context for name in CONTEXTS)


def by_percent(hits: Sequence[Hit], most: int) -> list[Hit]:
    """The highest percentages first; of equals, the newest."""
    newest = sorted(hits, key=lambda hit: (hit.segment.moment, hit.segment.segment), reverse=True)
    return sorted(newest, key=lambda hit: -hit.percent)[:most]


def one_each(hits: Sequence[Hit]) -> list[Hit]:
    """Each pair once, with its best hit."""
    first: dict[tuple[str, int], Hit] = {}
    for hit in hits:
        first.setdefault((hit.store, hit.segment.segment), hit)
    return list(first.values())
