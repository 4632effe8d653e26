"""Builds a store with the workers of a Ray cluster.

This process reads the corpus, cuts it into slices and writes each to a file; a task makes a part of it. Parts are put
in place in their order. So the folder always looks like that of a build on one machine, and either kind of build can
resume it. If a worker or machine dies, Ray starts its task again.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError

from knnmt.cluster.build_tasks import assign_part, make_part_of_slice
from knnmt.cluster.connection import explained
from knnmt.cluster.slices import write_slice
from knnmt.files import rename_durably
from knnmt.layout.manifest import PARTS
from knnmt.layout.parts import PART_RECORD, read_part_record
from knnmt.layout.records import ModelRecord, PartRecord
from knnmt.models.translation_model import TranslationModel
from knnmt.progress import Advance
from knnmt.search.distances import BLOCK, Keys
from knnmt.search.index import Assign
from knnmt.store.building import SCRATCH, Slice, model_record

RETRIES = 20  # of a slice whose worker or machine died
AHEAD = 2  # slices that wait, for each worker
GLANCE = 0.2  # seconds between two looks at the progress
DONE, SLICES, OWNERS = "done", "slices", "owners"


class Tally:
    """Counts the progress of each slice. If it is lost, only the progress bar is wrong."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[int, int]] = {}

    def report(self, number: int, segments: int, tokens: int) -> None:
        self.done[number] = (segments, tokens)

    def read(self) -> dict[int, tuple[int, int]]:
        return self.done


def make(file: str, final: str, model: ModelRecord, batch_tokens: int, number: int, tally: Any) -> None:
    report = partial(tally.report.remote, number)
    make_part_of_slice(Path(file), Path(final), model, batch_tokens, report)


def assign(centroids: str, keys: str, final: str) -> None:
    assign_part(Path(centroids), Path(keys), Path(final))


TALLY: Any = ray.remote(num_cpus=0, max_restarts=-1)(Tally)
MAKE: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(make)
ASSIGN: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(assign)


@dataclass
class Gauge:
    """One progress bar over all workers, which never runs backwards."""

    advance: Advance
    tally: Any
    reached: dict[int, tuple[int, int]] = field(default_factory=dict)
    looked: float = 0.0

    def look(self) -> None:
        if time.monotonic() - self.looked < GLANCE:
            return
        self.looked = time.monotonic()
        try:
            known = ray.get(self.tally.read.remote(), timeout=GLANCE)
        except RayError:  # it comes back
            return
        for number, (segments, tokens) in known.items():
            self.set(number, segments, tokens)

    def set(self, number: int, segments: int, tokens: int) -> None:
        before = self.reached.get(number, (0, 0))
        now = max(before[0], segments), max(before[1], tokens)
        self.reached[number] = now
        self.advance(now[0] - before[0], now[1] - before[1])


class RayWorkers:
    """`build_store(…, workers=RayWorkers())`, with Ray connected."""

    def make_parts(
        self, path: Path, model: TranslationModel, slices: Iterator[Slice], batch_tokens: int, advance: Advance
    ) -> Iterator[PartRecord]:
        """The parts of some slices, in their order."""
        return Making(path.resolve(), model_record(model), batch_tokens, advance).parts(slices)

    def assigning(self, path: Path, parts: list[PartRecord]) -> Assign:
        """Tasks that find the clusters of each part's keys."""
        return partial(assigned, path.resolve(), parts)


class Making:
    """The slices of one build that are being worked on."""

    def __init__(self, path: Path, model: ModelRecord, batch_tokens: int, advance: Advance) -> None:
        self.path, self.scratch = path, path / SCRATCH
        self.tally = TALLY.remote()
        self.gauge = Gauge(advance, self.tally)
        self.call = partial(MAKE.remote, model=model, batch_tokens=batch_tokens, tally=self.tally)
        self.at_work: dict[Any, Slice] = {}
        self.made: dict[int, Slice] = {}
        for folder in (self.scratch / DONE, self.scratch / SLICES, path / PARTS):
            folder.mkdir(parents=True, exist_ok=True)

    def parts(self, slices: Iterator[Slice]) -> Iterator[PartRecord]:
        following: int | None = None
        for one in slices:
            following = one.number if following is None else following
            self.begin(one)
            while len(self.at_work) >= AHEAD * workers():
                self.wait()
            while following in self.made:
                yield self.place(following)
                following += 1
        while self.at_work or self.made:
            self.wait()
            while following is not None and following in self.made:
                yield self.place(following)
                following += 1

    def begin(self, one: Slice) -> None:
        """Give a slice to the cluster, unless an earlier build has already made its part."""
        if (self.done(one.number) / PART_RECORD).is_file():
            self.finish(one)
            return
        file = self.scratch / SLICES / f"{one.number:06d}.parquet"
        write_slice(file, one)
        task = self.call(str(file), str(self.done(one.number)), number=one.number)
        self.at_work[task] = without_text(one)

    def wait(self) -> None:
        """Wait until some slices are done or the progress bar should be updated."""
        ready, _ = (
            ray.wait(list(self.at_work), num_returns=1, timeout=GLANCE, fetch_local=False) if self.at_work else ([], [])
        )
        self.gauge.look()
        for task in ready:
            one = self.at_work.pop(task)
            try:
                ray.get(task)
            except RayError as error:
                raise explained(error, f"slice {one.number} of the corpus") from error
            self.finish(one)

    def finish(self, one: Slice) -> None:
        self.made[one.number] = without_text(one)

    def done(self, number: int) -> Path:
        return self.scratch / DONE / f"{number:06d}"

    def place(self, number: int) -> PartRecord:
        """Put a part where a build on one machine would write it."""
        one = self.made.pop(number)
        final = self.path / PARTS / f"{number:06d}"
        rename_durably(self.done(number), final)
        (self.scratch / SLICES / f"{number:06d}.parquet").unlink(missing_ok=True)
        record = read_part_record(final)
        self.gauge.set(number, one.read, record.entries)
        return record


def without_text(one: Slice) -> Slice:
    return Slice(one.number, [], one.consumed, one.skipped, one.read)


def workers() -> int:
    """How many tasks the cluster can run at once now."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def assigned(path: Path, parts: list[PartRecord], centroids: Keys) -> Iterator[NDArray[np.int64]]:
    """The clusters of all keys, in the blocks in which an index takes them; each part's are found by a task."""
    folder = path / SCRATCH / OWNERS
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "centroids.npy"
    np.save(file, centroids)
    files = [folder / f"{part.name}.npy" for part in parts]
    tasks = [
        ASSIGN.remote(str(file), str(path / PARTS / part.name / "keys.npy"), str(final))
        for part, final in zip(parts, files, strict=True)
    ]
    for task, final, part in zip(tasks, files, parts, strict=True):
        try:
            ray.get(task)
        except RayError as error:
            raise explained(error, f"clusters of part {part.name}") from error
        owners = np.load(final)
        final.unlink()
        for first in range(0, len(owners), BLOCK):
            yield owners[first : first + BLOCK]
