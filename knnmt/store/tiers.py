"""Which parts and indexes are joined: eight of a tier (a range of sizes) become one of the next, so a store has few.

An `IndexUnit` is an index with the parts that it covers. The first one covers what was built and is never joined. The
others are in the order in which they were added, and no tier is followed by a higher one. An addition joins small ones
(`index_files.grown`). `knnmt compact --tiers` joins large ones, beside readers and writers (`compacting_tiers`).

Joining deletes what was removed: its entries and text go, and an empty row keeps its number. So the numbers of segments
do not change until the store is compacted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from knnmt.layout.manifest import Manifest
from knnmt.layout.records import IndexRecord, PartRecord

FACTOR = 8  # units of a tier that become one of the next; a power of two
JOINED_BY_A_CHANGE = 4096  # entries at most
PATIENCE = 4  # times as many units as should be in a tier: a change then joins them, however large they are


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """An index with the parts that it covers."""

    index: IndexRecord
    parts: tuple[PartRecord, ...]

    @property
    def entries(self) -> int:
        return self.index.entries

    @property
    def tier(self) -> int:
        return tier_of(self.entries)

    @property
    def has_keys(self) -> bool:
        return all(part.has_keys for part in self.parts)


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent units: from `first` up to, and without, `end`."""

    first: int
    end: int


def tier_of(entries: int) -> int:
    """The logarithm of the number of entries to the base `FACTOR`."""
    return (max(1, entries).bit_length() - 1) // (FACTOR.bit_length() - 1)


def units_of(manifest: Manifest) -> list[IndexUnit]:
    """A manifest's indexes, each with its parts."""
    parts, units = iter(manifest.parts), []
    for index in manifest.indexes:
        mine, entries = list[PartRecord](), 0
        while entries < index.entries:
            mine.append(next(parts))
            entries += mine[-1].entries
        units.append(IndexUnit(index, tuple(mine)))
    rest = tuple(parts)  # without entries, at the end
    return [*units[:-1], IndexUnit(units[-1].index, (*units[-1].parts, *rest))]


def taken_in(units: Sequence[IndexUnit], added: int) -> int:
    """How many units at the end are joined with an addition of this many entries."""
    count, total = 0, added
    for unit in reversed(units[1:]):
        if not unit.has_keys or unit.tier >= tier_of(total):
            break
        count, total = count + 1, total + unit.entries
    return count


def due(units: Sequence[IndexUnit], *, most: int | None = None, patience: int = 1) -> Run | None:
    """The first units that should become one, small ones first; `most` is how many entries they may have."""
    sizes = [unit.tier if unit.has_keys else None for unit in units]
    for tier in sorted({size for size in sizes[1:] if size is not None}):
        for run in runs_up_to(sizes, tier):
            inside = units[run.first : run.end]
            small = most is None or sum(unit.entries for unit in inside) <= most
            if small and is_due(inside, tier, patience):
                return run
    return None


def is_due(inside: Sequence[IndexUnit], tier: int, patience: int) -> bool:
    """Whether units should be joined: enough of one tier, or a higher tier after a lower one, as after a merge."""
    enough = sum(unit.tier == tier for unit in inside) >= FACTOR * patience
    rising = patience == 1 and any(left.tier < right.tier == tier for left, right in pairwise(inside))
    return len(inside) > 1 and (enough or rising)


def runs_up_to(sizes: Sequence[int | None], tier: int) -> Iterator[Run]:
    """Runs of adjacent units, without the first unit, of that tier or lower."""
    at = 1
    for fits, group in groupby(sizes[1:], lambda size: size is not None and size <= tier):
        length = len(list(group))
        if fits:
            yield Run(at, at + length)
        at += length
