"""Builds a datastore from parallel text: tokens, one forward pass, parts, index, manifest.

A part depends only on the corpus and the settings. So a build that was killed continues after its last whole part and
makes the same store as one that was not killed.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.engine.keys import teacher_forced_keys
from knnmt.engine.packed_layers import packed_layers
from knnmt.engine.runtime import lock_of
from knnmt.errors import CorpusError, SettingsError, StoreError
from knnmt.files import sha256_of, write_json
from knnmt.layout.manifest import BUILDING, MANIFEST, Manifest
from knnmt.layout.parts import EncodedSegment, PartWriter, finished_parts, now
from knnmt.layout.records import IndexRecord, ModelRecord, PartRecord
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel
from knnmt.progress import Advance, progress_bar
from knnmt.release import __version__
from knnmt.search.factories import make_index
from knnmt.search.index import Assign
from knnmt.store.datastore import Store
from knnmt.store.downsampling import Downsampling
from knnmt.store.index_files import make_store_index
from knnmt.store.versions import LOCK, SHORTLY, locked, write_version
from knnmt.text.corpus import Corpus, Segment, Skipped, read_segments, survey

SEGMENTS_ENCODED_AT_ONCE = 512
SCRATCH = ".cluster"  # what many machines have made of a store that is being built, until it has its place


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How to build a datastore. The defaults are for a laptop."""

    index: str | None = None  # a FAISS factory string; None: chosen by size
    limit: int | None = None  # segments at most
    cap: int | None = None  # entries of one target token at most; None: all
    batch_tokens: int = 4096  # padded tokens a forward pass
    memory: int | None = None  # bytes that indexing may take; None: half of the machine's memory decides
    part_entries: int = 131_072  # entries a part: what a kill can cost
    resume: bool = False
    show_progress: bool = False

    def __post_init__(self) -> None:
        for flag, value in (("--limit", self.limit), ("--cap", self.cap), ("--batch-tokens", self.batch_tokens)):
            if value is not None and value < 1:
                raise SettingsError(f"{flag} {value}: must be at least 1")
        if self.part_entries < 1:
            raise SettingsError(f"part_entries {self.part_entries}: must be at least 1")


@dataclass(frozen=True, slots=True)
class Slice:
    """The input of one part."""

    number: int
    segments: list[EncodedSegment]
    consumed: int  # segments of the corpus read up to its end, those left out too
    skipped: dict[str, int]  # and how many of them were left out, by reason
    read: int  # segments read for this one alone


class Workers(Protocol):
    """Runs the work of a build: on this process, or on many machines."""

    def make_parts(
        self, path: Path, model: TranslationModel, slices: Iterator[Slice], batch_tokens: int, advance: Advance
    ) -> Iterator[PartRecord]:
        """The parts of some slices, in their order; each is in the store's folder when it comes."""

    def assigning(self, path: Path, parts: list[PartRecord]) -> Assign | None:
        """What finds the clusters of the parts' keys; None: the index does it itself."""


class ThisProcess:
    """Builds one slice after another in this process."""

    def make_parts(
        self, path: Path, model: TranslationModel, slices: Iterator[Slice], batch_tokens: int, advance: Advance
    ) -> Iterator[PartRecord]:
        for one in slices:
            advance(one.read - len(one.segments), 0)
            yield make_part(path, model, one, batch_tokens, advance)

    def assigning(self, path: Path, parts: list[PartRecord]) -> Assign | None:  # noqa: ARG002
        return None


def build_store(
    path: str | Path,
    model: TranslationModel,
    corpora: Sequence[Corpus],
    settings: BuildSettings | None = None,
    *,
    workers: Workers | None = None,
) -> Store:
    """Build a datastore in the folder `path` from parallel text."""
    settings, workers = settings or BuildSettings(), workers or ThisProcess()
    path = Path(path)
    check_place(path, settings.resume)
    if settings.index is not None:
        make_index(settings.index, model.dimension)
    total = survey(corpora, limit=settings.limit)
    plan = plan_of(model, corpora, settings)
    make_folder(path)
    with locked(path, patience=SHORTLY):
        check_place(path, settings.resume)  # again: another build may have begun, and died, since
        begin(path, plan, settings.resume)
        if not (path / MANIFEST).is_file():
            finish(path, model, corpora, total, settings, workers)
        shutil.rmtree(path / SCRATCH, ignore_errors=True)
        (path / BUILDING).unlink()  # the last step: a build killed just before has nothing else left to do
        return Store.open(path)


def finish(
    path: Path,
    model: TranslationModel,
    corpora: Sequence[Corpus],
    total: int,
    settings: BuildSettings,
    workers: Workers,
) -> None:
    """Write what is not there yet: parts, index, manifest."""
    downsampling = count_tokens(path, model, corpora, total, settings)
    parts, skipped = write_parts(path, model, corpora, total, settings, workers, downsampling)
    index = make_store_index(
        path,
        parts,
        factory=settings.index,
        memory=settings.memory,
        show_progress=settings.show_progress,
        assign=workers.assigning(path, parts),
    )
    records = [corpus_record(corpus) for corpus in corpora]
    thinned = downsampling.to_json() if downsampling else None
    write_manifest(path, model, records, parts, index, skipped.counts, thinned)


def write_manifest(
    path: Path,
    model: TranslationModel,
    corpora: list[dict[str, Any]],
    parts: list[PartRecord],
    index: IndexRecord,
    skipped: dict[str, int],
    downsampling: dict[str, Any] | None = None,
) -> None:
    """The last file of a build: with it, the folder is a datastore."""
    manifest = Manifest(
        model=model_record(model),
        corpora=corpora,
        entries=sum(part.entries for part in parts),
        segments=sum(part.segments for part in parts),
        skipped=skipped,
        parts=parts,
        indexes=[index],
        created=now(),
        changed=now(),
        change="built",
        knnmt=__version__,
        downsampling=downsampling,
    )
    write_version(path, manifest)


def check_place(path: Path, resume: bool) -> None:
    """Raise if anything in the folder could be lost."""
    if (path / MANIFEST).exists() and not (resume and (path / BUILDING).is_file()):
        state = "already a datastore, with nothing left to resume" if resume else "already a datastore"
        raise StoreError(f"{path}: {state}; choose another place or remove it first")
    if (path / BUILDING).is_file():
        if not resume:
            raise StoreError(f"{path}: holds an unfinished build; go on with --resume or remove it first")
    elif path.is_dir() and any(file.name not in (LOCK, f".{BUILDING}.partial") for file in path.iterdir()):
        raise StoreError(f"{path}: the folder is not empty; choose another place")
    elif path.exists() and not path.is_dir():
        raise StoreError(f"{path}: a file, not a folder; choose another place")
    check_may_write(path)


def check_may_write(path: Path) -> None:
    """Raise before the work begins if the store cannot be written."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"{path}: no permission to write in {existing}")


def plan_of(model: TranslationModel, corpora: Sequence[Corpus], settings: BuildSettings) -> dict[str, Any]:
    """What a resumed build must have in common with the build that it continues."""
    return {
        "model": model.fingerprint,
        "key_site": model.key_site.path,
        "languages": [model.source_lang, model.target_lang],
        "source_prefix": model.source_prefix,
        "corpora": [corpus_content(corpus) for corpus in corpora],
        "limit": settings.limit,
        "cap": settings.cap,
        "batch_tokens": settings.batch_tokens,
        "part_entries": settings.part_entries,
    }


def corpus_content(corpus: Corpus) -> dict[str, Any]:
    checksums = [sha256_of(path) for path in corpus.paths]
    options = {"columns": corpus.columns and list(corpus.columns), "unfinished": corpus.unfinished}
    return corpus_record(corpus) | {"languages": list(corpus.languages), "sha256": checksums} | options


def corpus_record(corpus: Corpus) -> dict[str, Any]:
    return {"name": corpus.name, "files": [path.name for path in corpus.paths]}


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({(error.strerror or str(error)).lower()})") from error


def begin(path: Path, plan: dict[str, Any], resume: bool) -> None:
    """Write the plan, or check that the begun build has the same one. Call it with the lock held."""
    begun = path / BUILDING
    if resume and begun.is_file():
        before = read_plan(begun)
        changed = [name for name, value in plan.items() if before.get(name) != value]
        if changed:
            raise StoreError(f"{path}: --resume needs the same build as before, but {', '.join(changed)} changed")
        return
    try:
        write_json(begun, plan)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({(error.strerror or str(error)).lower()})") from error


def read_plan(file: Path) -> dict[str, Any]:
    try:
        plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return plan | {}
    except (ValueError, TypeError) as error:
        raise StoreError(f"{file}: damaged; remove the folder and build again") from error


def count_tokens(
    path: Path, model: TranslationModel, corpora: Sequence[Corpus], total: int, settings: BuildSettings
) -> Downsampling | None:
    """With --cap, read the whole text first and count each target token."""
    if settings.cap is None:
        return None
    parts, downsampling = finished_parts(path), Downsampling(settings.cap)
    segments = islice(read_segments(corpora, Skipped()), settings.limit)
    with progress_bar("counting", total, show=settings.show_progress) as advance:

        def target_of(encoded: EncodedSegment) -> list[int]:
            advance(1, len(encoded.target))
            return encoded.target if fits(encoded, model) else []

        downsampling.count(map(target_of, encode_segments(segments, model)), done=parts[-1].consumed if parts else 0)
    return downsampling


def write_parts(
    path: Path,
    model: TranslationModel,
    corpora: Sequence[Corpus],
    total: int,
    settings: BuildSettings,
    workers: Workers,
    downsampling: Downsampling | None = None,
) -> tuple[list[PartRecord], Skipped]:
    """Write the parts that are not there yet."""
    parts = finished_parts(path)
    consumed = parts[-1].consumed if parts else 0
    empty, overlong = Skipped(), Skipped(dict(parts[-1].skipped) if parts else {})
    segments = islice(read_segments(corpora, empty), consumed, settings.limit)
    thin = downsampling.thin if downsampling else list
    cut = slices(chunks(segments, model, overlong, settings.part_entries), len(parts), consumed, overlong, thin)
    with progress_bar("building", total, done=consumed, show=settings.show_progress) as advance:
        parts += workers.make_parts(path, model, cut, settings.batch_tokens, advance)
    if not parts:
        (path / BUILDING).unlink()  # nothing was made, so nothing stands in the way of a better call
        names = ", ".join(str(file) for corpus in corpora for file in corpus.paths)
        raise CorpusError(f"{names}: no pair is short enough for the model ({overlong})")
    return parts, Skipped(empty.counts | overlong.counts)


def slices(
    cut: "Iterator[Chunk]",
    first: int,
    consumed: int,
    overlong: Skipped,
    thin: Callable[[list[EncodedSegment]], list[EncodedSegment]],
) -> Iterator[Slice]:
    """The inputs of the next parts; `first` is the number of the first one."""
    for number, chunk in enumerate(cut, start=first):
        consumed += chunk.consumed
        yield Slice(number, thin(chunk.segments), consumed, dict(overlong.counts), chunk.consumed)


def make_part(path: Path, model: TranslationModel, one: Slice, batch_tokens: int, advance: Advance) -> PartRecord:
    """Run the model over a slice and write its part."""
    writer = PartWriter(path, one.number, one.segments, dimension=model.dimension)
    write_keys(writer, model, batch_tokens, advance)
    return writer.finish(consumed=one.consumed, skipped=one.skipped)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The segments of one part."""

    segments: list[EncodedSegment]
    consumed: int  # segments read for it, those left out too


def chunks(
    segments: Iterable[Segment], model: TranslationModel, overlong: Skipped, part_entries: int
) -> Iterator[Chunk]:
    """Encoded segments, grouped into parts of a given number of entries."""
    kept: list[EncodedSegment] = []
    consumed = entries = 0
    for encoded in encode_segments(segments, model):
        consumed += 1
        if fits(encoded, model):
            kept.append(encoded)
            entries += len(encoded.target)
        else:
            overlong.add(f"longer than the model's {model.positions} tokens")
        if entries >= part_entries:
            yield Chunk(kept, consumed)
            kept, consumed, entries = [], 0, 0
    if kept:
        yield Chunk(kept, consumed)


def encode_segments(segments: Iterable[Segment], model: TranslationModel) -> Iterator[EncodedSegment]:
    """Segments with their tokens."""
    segments = iter(segments)
    while block := list(islice(segments, SEGMENTS_ENCODED_AT_ONCE)):
        sources = model.encode_sources([segment.source for segment in block])
        targets = model.encode_targets([segment.target for segment in block])
        yield from map(EncodedSegment, block, sources, targets)


def fits(encoded: EncodedSegment, model: TranslationModel) -> bool:
    target = len(model.decoder_prefix) - 1 + len(encoded.target)
    return max(len(encoded.source), target) <= model.positions


def write_keys(writer: PartWriter, model: TranslationModel, batch_tokens: int, advance: Advance) -> None:
    """One teacher-forced pass over the part's segments, in batches of similar length."""
    first = len(model.decoder_prefix) - 1
    lengths = [max(len(segment.source), first + len(segment.target)) for segment in writer.segments]
    for batch in batches_by_tokens(lengths, batch_tokens):
        segments = [writer.segments[position] for position in batch]
        for position, segment, row in zip(batch, segments, forced_keys(model, segments), strict=True):
            writer.put(position, row[first : first + len(segment.target)])
        advance(len(batch), sum(len(segment.target) for segment in segments))


@torch.inference_mode()
def forced_keys(model: TranslationModel, segments: Sequence[EncodedSegment]) -> NDArray[np.float16]:
    """Keys [batch, time, dimension] of one teacher-forced pass."""
    inputs = model.teacher_forcing([s.source for s in segments], [s.target for s in segments])
    with lock_of(model.network), packed_layers(model.network):
        keys = teacher_forced_keys(model.network, model.key_site, inputs)
    return np.asarray(keys.to("cpu", torch.float16).numpy(), np.float16)


def model_record(model: TranslationModel) -> ModelRecord:
    folder = Path(model.name)
    return ModelRecord(
        name=str(folder.resolve()) if folder.is_dir() else model.name,
        type=model.network.config.model_type,
        fingerprint=model.fingerprint,
        dimension=model.dimension,
        key_site=model.key_site.path,
        source_lang=model.source_lang,
        target_lang=model.target_lang,
        source_prefix=model.source_prefix,
    )
