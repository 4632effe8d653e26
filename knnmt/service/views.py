"""A view: a model and stores at one version, seen through filters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from knnmt.layout.bitmaps import as_array
from knnmt.layout.hashes import hash_of
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.local_retriever import LocalRetriever, SearchedBy
from knnmt.retrieval.lookup import Hit
from knnmt.retrieval.memories import Memory
from knnmt.store.datastore import Store, StoredSegment
from knnmt.store.filters import Condition, live_segments, matching_segments
from knnmt.text.corpus import one_line
from knnmt.translate.explanation import Explanation
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import Translation, Translator
from knnmt.translate.unit_translator import UnitOptions, UnitTranslator

Mask = NDArray[np.bool_]
SIDES = ("source", "target")


@dataclass
class Shown:
    """One store of a view: what of it may be seen."""

    name: str
    store: Store
    filters: tuple[str, ...]
    nothing: bool = False  # filters that no pair can meet

    @cached_property
    def visible(self) -> BitMap:
        """Segments that are there and meet the filters."""
        if self.nothing:
            return BitMap()
        conditions = [Condition.parse(text) for text in self.filters]
        return live_segments(self.store) & matching_segments(self.store, conditions)

    def with_source(self, source: str) -> list[StoredSegment]:
        """The visible pairs of a source sentence, letter for letter after white space; the newest first."""
        wanted = one_line(source)
        numbers = [number for number in self.store.suspects(hash_of(wanted)) if number in self.visible]
        pairs = self.store.segments_at(np.array(numbers, np.int64))
        found = [pair for pair in pairs if pair.source == wanted]
        return sorted(found, key=lambda pair: (pair.moment, pair.segment), reverse=True)

    def search(self, text: str, *, sides: Sequence[str] = SIDES, limit: int, after: int = 0) -> list[StoredSegment]:
        """Visible pairs that have the text in one of the sides, whatever its case; the newest first."""
        found: list[int] = []
        for part in reversed(range(len(self.store.manifest.parts))):
            first = int(self.store.first_segments[part])
            rows = np.flatnonzero(containing(self.store.table(part), text, sides)) + first
            found += as_array(BitMap(rows.astype(np.uint32)) & self.visible)[::-1].tolist()
            if len(found) >= after + limit:
                break
        wanted = found[after : after + limit]
        pairs = {pair.segment: pair for pair in self.store.segments_at(np.array(sorted(wanted), np.int64))}
        return [pairs[number] for number in wanted]


def containing(table: Any, text: str, sides: Sequence[str]) -> Mask:
    """Which rows of a table of pairs have the text in one of the sides."""
    from pyarrow import compute

    found = np.zeros(len(table), bool)
    for side in sides:
        found |= compute.match_substring(table.column(side), text, ignore_case=True).to_numpy(zero_copy_only=False)
    return found


@dataclass
class View:
    """What requests of one scope translate with."""

    translator: Translator
    shown: tuple[Shown, ...] = field(default=())

    @property
    def versions(self) -> dict[str, int]:
        return {shown.name: shown.store.manifest.version for shown in self.shown}

    def told(self) -> dict[str, Any]:
        """How it mixes, for a reader."""
        return self.translator.told()

    def exact(self, source: str) -> tuple[str, StoredSegment] | None:
        """The newest visible pair of that very source, and its store's name."""
        found = [(shown.name, pair) for shown in self.shown for pair in shown.with_source(source)[:1]]
        return max(found, key=lambda one: one[1].moment, default=None)

    @cached_property
    def units(self) -> dict[bool, UnitTranslator]:
        """What translates units, with and without taking known ones from the memory."""
        where = self.shown[0].filters if self.shown else ()
        return {
            exact: UnitTranslator(self.translator, UnitOptions(exact_matches="use" if exact else "ignore", where=where))
            for exact in (True, False)
        }

    def near(self, text: str, *, least: float, most: int) -> list[Hit]:
        """Visible pairs whose source is like the text, best first."""
        return self.units[True].lookup.near(text, least=least, most=most)

    def explain(self, source: str, target: str) -> Explanation | None:
        """The words of a translation with the sentences behind each; None if no memory was used."""
        if self.translator.retriever is None or not target.strip():
            return None
        tokens = self.translator.translation_model.encode_targets([target])[0]
        return self.translator.explain_translation(Translation(source, target, tuple(tokens)))

    def pair(self, store: str, segment: int) -> StoredSegment:
        """A pair that an explanation names."""
        return next(shown.store for shown in self.shown if shown.name == store).segment(segment)


def open_view(
    model: TranslationModel,
    memories: Sequence[Memory],
    filters: tuple[str, ...],
    given: dict[str, Any],
    searched_by: SearchedBy = LocalRetriever,
) -> View:
    """Open it; where the filters leave nothing, the model translates alone."""
    shown = tuple(Shown(memory.name, memory.store, filters) for memory in memories)
    asked = TranslateSettings(**given)
    if not any(one.visible for one in shown):
        return View(Translator(model, None, asked), shown)
    retriever = searched_by(
        [memory.store for memory in memories],
        where=[Condition.parse(text) for text in filters],
        trust=[memory.weight for memory in memories],
        names=[memory.name for memory in memories],
    )
    return View(Translator.with_memory(model, retriever, asked), shown)
