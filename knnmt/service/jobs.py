"""Document jobs: each is a folder with the file, its progress, and at the end the translated file.

What is translated is on disk unit by unit, so that a job goes on after a restart where it was. Jobs share the model
with everyone else: a job asks for a few units at a time, as one client among others. Several jobs are worked on at a
time, and one owner's do not take all the places: a short document need not wait for a long one.
"""

import contextlib
import json
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from knnmt.documents.content import Content, DocumentUnit, Tag, UnitResult, plain_text
from knnmt.documents.document import Document, DocumentOptions
from knnmt.documents.kinds import KINDS, open_document
from knnmt.errors import KnnmtError
from knnmt.files import write_durably, write_json
from knnmt.layout.parts import now
from knnmt.service.access import Access
from knnmt.service.failures import BadRequest, NotFound, where
from knnmt.service.scopes import Scope
from knnmt.units.report import reasons

log = logging.getLogger(__name__)

AT_ONCE = 16  # units that a job has in the queue
PLACES, PLACES_EACH = 4, 3  # jobs that are worked on at a time, of all owners and of one
WAITING = 100  # documents of one owner that are not done
KEPT_FOR = 7 * 86_400  # seconds after its end that a document stays on the server
RECORD, DONE, RESULT = "job.json", "done.jsonl", "result"
ENDINGS = tuple(KINDS)

State = Literal["waiting", "working", "done", "failed"]
Translate = Callable[[Scope, str, Sequence[DocumentUnit]], list[UnitResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A document job. Only its `owner`, the key that sent it, can see it."""

    id: str
    name: str
    owner: str
    scope: Scope
    source: str
    target: str
    created: str
    state: State = "waiting"
    units: int = 0
    done: int = 0
    exact: int = 0
    flagged: int = 0
    error: str = ""

    @property
    def result(self) -> str:
        """What the translated file is called: `manual.en.xlf`."""
        stem, dot, ending = self.name.removesuffix(".gz").rpartition(".")
        return f"{stem}.{self.target}{dot}{ending}"

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Job":
        scope = record.pop("scope")
        filters, settings = tuple(scope["filters"]), tuple(tuple(pair) for pair in scope["settings"])
        return cls(**record, scope=Scope(scope["engine"], tuple(scope["stores"]), filters, settings))


class Jobs:
    """All documents of a server, and the threads that work on them."""

    def __init__(self, folder: Path, translate: Translate, engines: Sequence[str]) -> None:
        self.folder, self.translate = folder, translate
        self._jobs: dict[str, Job] = {}
        self._at_work: dict[str, str] = {}  # owners by job
        self._changed = threading.Condition()
        self._stopping = False
        folder.mkdir(parents=True, exist_ok=True)
        self._take_up(set(engines))
        self._threads = [threading.Thread(target=self._loop, name="documents", daemon=True) for _ in range(PLACES)]
        for thread in self._threads:
            thread.start()

    def _take_up(self, engines: set[str]) -> None:
        """Continue the jobs of an earlier run of the server; finished units stay finished."""
        for record in sorted(self.folder.glob(f"*/{RECORD}")):
            try:
                job = Job.from_json(json.loads(record.read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError):
                log.warning("%s: not a job; left alone", record)
                continue
            if job.state == "working":
                job = replace(job, state="waiting")
            if job.state == "waiting" and job.scope.engine not in engines:
                job = replace(job, state="failed", error="the server no longer has this model")
            self._jobs[job.id] = job

    def stop(self) -> None:
        """Stop after the units that are being translated; the next run continues."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # For callers

    def place(self) -> Path:
        """A folder for a file that is to become a job; its name is the job's id."""
        place = self.folder / secrets.token_hex(16)
        place.mkdir()
        return place

    def add(self, place: Path, file: Path, access: Access, scope: Scope, languages: tuple[str, str]) -> Job:
        """Begin with a file that is in its place; what cannot be read is known at once."""
        source, target = languages
        if sum(job.state in ("waiting", "working") for job in self.of(access)) >= WAITING:
            raise BadRequest(f"{WAITING} documents of this key are not done yet")
        try:
            open_document(file, options=options_of(source, target))
        except KnnmtError as error:
            self.discard(place)
            raise BadRequest(str(error).replace(f"{place}/", "")) from error
        job = Job(
            id=place.name,
            name=file.name,
            owner=access.name,
            scope=scope,
            source=source,
            target=target,
            created=now("microseconds"),
        )
        self._save(job)
        return job

    def beginning(self, place: Path, file: Path, units: int) -> str:
        """The first texts of a file, for language detection."""
        try:
            found = islice(open_document(file, options=DocumentOptions()).units(), units)
            return "\n".join(plain_text(unit.source) for unit in found)
        except KnnmtError as error:
            raise BadRequest(str(error).replace(f"{place}/", "")) from error

    def discard(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)

    def of(self, access: Access) -> list[Job]:
        """The newest first."""
        with self._changed:
            mine = [job for job in self._jobs.values() if job.owner == access.name]
        return sorted(mine, key=lambda job: (job.created, job.id), reverse=True)

    def job(self, identity: str, access: Access | None = None) -> Job:
        """A job of a caller; without a caller, of anyone who knows its id, which cannot be guessed."""
        with self._changed:
            job = self._jobs.get(identity)
        if job is None or (access is not None and job.owner != access.name):
            raise NotFound("no such document")
        return job

    def result_file(self, job: Job) -> Path:
        if job.state != "done":
            raise NotFound("the document is not translated yet" if job.state != "failed" else job.error)
        return self.folder / job.id / RESULT

    def results(self, job: Job) -> Iterator[tuple[DocumentUnit, UnitResult]]:
        """What is done of a job, with the units that it is of."""
        with self._changed:
            place = self.folder / job.id
        units = open_document(place / job.name, options=options_of(job.source, job.target)).units()
        yield from zip(units, read_results(place / DONE), strict=False)

    def remove(self, job: Job) -> None:
        with self._changed:
            self._jobs.pop(job.id, None)
        self.discard(self.folder / job.id)

    def wait(self, identity: str) -> Job:
        """Until the job has ended."""
        with self._changed:
            while True:
                job = self._jobs.get(identity)
                if job is None:
                    raise NotFound("no such document")
                if job.state in ("done", "failed") or self._stopping:
                    return job
                self._changed.wait()

    # The work

    def _save(self, job: Job) -> Job:
        """Write to disk, then make visible; a job that was removed meanwhile stays removed."""
        with self._changed:
            if job.state != "waiting" and job.id not in self._jobs:
                return job
            write_json(self.folder / job.id / RECORD, asdict(job))
            self._jobs[job.id] = job
            self._changed.notify_all()
        return job

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._work(job)
            except Stopped:
                return
            except Exception as error:
                self._fail(job, error)
            with self._changed:
                del self._at_work[job.id]
                self._changed.notify_all()

    def _fail(self, job: Job, error: Exception) -> None:
        known = isinstance(error, KnnmtError)
        if not known:
            log.error("a document failed: %s", where(error))
        message = str(error).replace(f"{self.folder / job.id}/", "") if known else "a fault of the server; see its log"
        with contextlib.suppress(OSError):
            self._save(replace(self._jobs.get(job.id, job), state="failed", error=message))

    def _next(self) -> Job | None:
        with self._changed:
            while not self._stopping:
                self._forget_old()
                if waiting := [job for job in self._jobs.values() if self._has_place(job)]:
                    job = min(waiting, key=lambda job: job.created)
                    self._at_work[job.id] = job.owner
                    return job
                self._changed.wait(3600)
        return None

    def _has_place(self, job: Job) -> bool:
        taken = sum(owner == job.owner for owner in self._at_work.values())
        return job.state == "waiting" and job.id not in self._at_work and taken < PLACES_EACH

    def _forget_old(self) -> None:
        for job in list(self._jobs.values()):
            record = self.folder / job.id / RECORD
            if job.state in ("done", "failed") and record.exists() and time.time() - record.stat().st_mtime > KEPT_FOR:
                del self._jobs[job.id]
                self.discard(record.parent)

    def _work(self, job: Job) -> None:
        place = self.folder / job.id
        document = open_document(place / job.name, options=options_of(job.source, job.target))
        done = whole_results(place / DONE)
        job = self._save(replace(job, state="working", units=sum(1 for _ in document.units()), **counts(done)))
        with (place / DONE).open("a", encoding="utf-8") as out:
            units = islice(document.units(), len(done), None)
            while some := list(islice(units, AT_ONCE)):
                self._check(job)
                results = self.translate(job.scope, f"document {job.id}", some)
                out.write("".join(f"{json.dumps(result_as_json(result), ensure_ascii=False)}\n" for result in results))
                out.flush()
                done += results
                job = self._save(replace(job, **counts(done)))
        self._finish(job, document, done)

    def _check(self, job: Job) -> None:
        with self._changed:
            if self._stopping or job.id not in self._jobs:
                raise Stopped if self._stopping else NotFound("removed")

    def _finish(self, job: Job, document: Document, results: list[UnitResult]) -> None:
        write_durably(self.folder / job.id / RESULT, lambda out: document.write(results, out))
        self._save(replace(job, state="done"))


class Stopped(Exception):  # noqa: N818 - not an error: the server ends
    pass


def counts(results: Sequence[UnitResult]) -> dict[str, Any]:
    exact = sum(result.origin == "exact" for result in results)
    return {"done": len(results), "exact": exact, "flagged": sum(map(is_doubtful, results))}


def is_doubtful(result: UnitResult) -> bool:
    return bool(reasons(result.flags, result.confidence))


def options_of(source: str, target: str) -> DocumentOptions:
    return DocumentOptions(source_lang=source, target_lang=target)


def result_as_json(result: UnitResult) -> dict[str, Any]:
    return asdict(result) | {"target": [one if isinstance(one, str) else asdict(one) for one in result.target]}


def result_from_json(record: dict[str, Any]) -> UnitResult:
    target: Content = tuple(one if isinstance(one, str) else Tag(**one) for one in record["target"])
    return UnitResult(target, record["origin"], record["confidence"], (), tuple(record["flags"]))


def read_results(file: Path) -> Iterator[UnitResult]:
    if file.exists():
        with file.open(encoding="utf-8") as lines:
            yield from (result_from_json(json.loads(line)) for line in lines if line.endswith("\n"))


def whole_results(file: Path) -> list[UnitResult]:
    """What an earlier run did; a line that a kill cut off is taken out of the file."""
    if not file.exists():
        return []
    text = file.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        file.write_bytes(whole)
    return list(read_results(file))
