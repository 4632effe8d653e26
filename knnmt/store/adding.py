"""Adds sentence pairs to a store that is in use. Known pairs are skipped, the others are appended."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from knnmt.errors import CorpusError, SettingsError, StoreError
from knnmt.layout.hashes import hash_of
from knnmt.layout.parts import PartWriter, next_part
from knnmt.layout.records import PartRecord, summed
from knnmt.models.translation_model import TranslationModel
from knnmt.progress import progress_bar
from knnmt.store.building import chunks, corpus_record, encode_segments, fits, model_record, write_keys
from knnmt.store.datastore import Store, StoredSegment
from knnmt.store.index_files import grown, outgrown
from knnmt.store.versions import changing, commit
from knnmt.text.corpus import Corpus, Segment, Skipped, read_segments, survey

SEGMENTS_COMPARED_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSettings:
    replace: bool = False  # whether a new translation of a known source takes the place of the old one
    limit: int | None = None
    batch_tokens: int = 4096
    part_entries: int = 131_072
    show_progress: bool = False

    def __post_init__(self) -> None:
        for flag, value in (("--limit", self.limit), ("--batch-tokens", self.batch_tokens)):
            if value is not None and value < 1:
                raise SettingsError(f"{flag} {value}: must be at least 1")


@dataclass(frozen=True, slots=True)
class Conflict:
    """One source sentence with two translations."""

    source: str
    before: str
    now: str


@dataclass(slots=True)
class Added:
    """The result of an addition."""

    store: Store | None = None
    segments: int = 0
    entries: int = 0
    duplicates: int = 0
    replaced: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    skipped: Skipped = field(default_factory=Skipped)
    compact_suggested: bool = False


def add_to_store(
    path: str | Path, model: TranslationModel, corpora: Sequence[Corpus], settings: AddSettings | None = None
) -> Added:
    """Append sentence pairs. The cost depends on the pairs, not on the size of the store."""
    settings = settings or AddSettings()
    total = survey(corpora, limit=settings.limit)
    with changing(Path(path)) as store:
        check_model(store, model)
        added = Added()
        last = last_of_each_source(short_enough(corpora, model, settings, Skipped())) if settings.replace else None
        newcomers = Newcomers(store, added, last)
        pairs = newcomers.new(short_enough(corpora, model, settings, added.skipped))
        parts = write_new_parts(store, model, pairs, total, settings, added)
        finish(store, corpora, parts, newcomers.outdated, added)
    return added


def short_enough(
    corpora: Sequence[Corpus], model: TranslationModel, settings: AddSettings, skipped: Skipped
) -> Iterator[Segment]:
    """The pairs that are short enough for the model. A pair that is not must not replace one that is."""
    for encoded in encode_segments(islice(read_segments(corpora, skipped), settings.limit), model):
        if fits(encoded, model):
            yield encoded.segment
        else:
            skipped.add(f"longer than the model's {model.positions} tokens")


def check_model(store: Store, model: TranslationModel) -> None:
    theirs, ours = (replace(record, name="") for record in (store.manifest.model, model_record(model)))
    if theirs.fingerprint != ours.fingerprint:
        raise StoreError(f"{store.path}: made with another model than {model.name}; build it again with this one")
    if theirs != ours:
        raise StoreError(f"{store.path}: made with other settings of {model.name} (languages, prefix or key site)")


def write_new_parts(
    store: Store,
    model: TranslationModel,
    pairs: Iterable[Segment],
    total: int,
    settings: AddSettings,
    added: Added,
) -> list[PartRecord]:
    parts: list[PartRecord] = []
    number = next_part(store.path)
    with progress_bar("adding", total, show=settings.show_progress) as advance:
        for chunk in chunks(pairs, model, added.skipped, settings.part_entries):
            writer = PartWriter(store.path, number + len(parts), chunk.segments, dimension=model.dimension, packed=True)
            write_keys(writer, model, settings.batch_tokens, advance)
            parts.append(writer.finish(consumed=0, skipped={}))
    return parts


def finish(store: Store, corpora: Sequence[Corpus], parts: list[PartRecord], outdated: set[int], added: Added) -> None:
    """Write the store's next version with the new parts; if nothing is new, the store stays as it is."""
    added.store = store
    if not parts and not outdated:
        if not added.duplicates:
            raise CorpusError(f"{corpora[0].source}: no pair is short enough for the model ({added.skipped})")
        return
    manifest = store.manifest
    added.segments, added.entries = sum(part.segments for part in parts), sum(part.entries for part in parts)
    added.replaced += len(outdated)
    names = [record for record in map(corpus_record, corpora) if record not in manifest.corpora]
    added.store = commit(
        store,
        f"added {added.segments:,} segment{'' if added.segments == 1 else 's'}",
        corpora=[*manifest.corpora, *names],
        skipped=summed(manifest.skipped, added.skipped.counts),
        **grown(store, parts, outdated),
    )
    added.compact_suggested = outgrown(added.store)


class Newcomers:
    """Tells new pairs from known ones, in the store and in the same addition.

    Hashes raise the suspicion and the text decides. What is held in memory grows with the addition, not with the store.
    """

    def __init__(self, store: Store, added: Added, last: dict[str, int] | None) -> None:
        self.store = store
        self.added = added
        self.last = last  # by source, the number of its last pair in the addition: the one that wins; None: all stay
        self.outdated: set[int] = set()  # segments of the store whose source has a newer translation
        self.seen: dict[str, list[str]] = defaultdict(list)  # targets by source, of this addition

    def new(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        """The pairs that are to be added."""
        numbered = enumerate(segments)
        while block := list(islice(numbered, SEGMENTS_COMPARED_AT_ONCE)):
            known = self.known_pairs([segment for _, segment in block])
            for number, segment in block:
                if self.last is not None and self.last[segment.source] != number:
                    self.added.replaced += 1
                elif self.is_new(segment, known.get(segment.source, [])):
                    yield segment

    def is_new(self, segment: Segment, known: Sequence[StoredSegment]) -> bool:
        """Whether the pair is in neither; other translations of its source are noted."""
        here = self.seen[segment.source]
        others = [pair for pair in known if pair.target != segment.target]
        if self.last is not None:
            self.outdated.update(pair.segment for pair in others)
        if segment.target in here or len(others) < len(known):
            self.added.duplicates += 1
            return False
        before = here or [pair.target for pair in others]
        if before:
            self.added.conflicts.append(Conflict(segment.source, before[-1], segment.target))
        here.append(segment.target)
        return True

    def known_pairs(self, segments: Sequence[Segment]) -> dict[str, list[StoredSegment]]:
        """The pairs of the store with the same sources as some segments."""
        hashes = np.array([hash_of(segment.source) for segment in segments], np.uint64)
        sources = {segment.source for segment in segments}
        known: dict[str, list[StoredSegment]] = defaultdict(list)
        for part, first in enumerate(self.store.first_segments):
            rows = self.store.part_files.rows_with(part, hashes)
            if not len(rows):
                continue  # as of nearly all parts
            for pair in self.store.segments_at(rows + first):
                if pair.source in sources and pair.segment not in self.store.removed:
                    known[pair.source].append(pair)
        return known


def last_of_each_source(segments: Iterable[Segment]) -> dict[str, int]:
    return {segment.source: number for number, segment in enumerate(segments)}
