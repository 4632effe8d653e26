"""Translates whole documents unit by unit. A document is written whole or not at all; a killed run can be resumed."""

import gzip
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from knnmt.documents.content import DocumentUnit, plain_text
from knnmt.documents.document import Document
from knnmt.documents.kinds import open_document
from knnmt.engine.attention import AligningHeads
from knnmt.files import sha256_of, write_durably
from knnmt.progress import Advance, progress_bar
from knnmt.text.inputs import is_gzipped
from knnmt.translate.document_settings import DocumentSettings
from knnmt.translate.translator import Translator
from knnmt.translate.unit_translator import UnitTranslator
from knnmt.units.destinations import check_destinations, journal_of
from knnmt.units.journal import FinishedFiles, Journal, content_of
from knnmt.units.report import Report, check_report

BLOCK = 512  # units translated together: what a kill can cost
KEPT = 1 << 20  # characters of a document's units that are kept at most, so that it need not be read again and again
UNIT = 200  # characters that a unit counts for beside its text

Say = Callable[[Path, str], None]


def in_silence(target: Path, words: str) -> None:
    """Reports nothing."""


class DocumentTranslator:
    """Translates documents one after another, and reports on all of them."""

    def __init__(
        self,
        translator: Translator,
        settings: DocumentSettings | None = None,
        *,
        report: Path | None = None,
        show_progress: bool = False,
    ) -> None:
        if report is not None:
            check_report(report)
        self.translator = translator
        self.settings = settings or DocumentSettings()
        self.report_file, self.show_progress = report, show_progress
        self.units = UnitTranslator(translator, self.settings.unit_options(details=report is not None))
        self.report = Report()

    def translate(self, jobs: Sequence[tuple[Path, Path]], *, say: Say = in_silence) -> Report:
        """Translate each source to its target; `say` gets a short message about each."""
        check_destinations(jobs, force=self.settings.force, resume=self.settings.resume)
        self.check(jobs)
        self.begin_again(jobs)
        finished = None if self.report_file is None else FinishedFiles(self.report_file, self.plan())
        if finished is not None:
            finished.begin(resume=self.settings.resume)
        for source, target in jobs:
            if self.is_done(target):
                self.pass_over(source, target, finished)
                say(target, "there already; nothing to resume")
            else:
                say(target, self.translate_one(self.open(source), target, finished))
        if finished is not None:
            self.write_report(finished)
        return self.report

    def begin_again(self, jobs: Sequence[tuple[Path, Path]]) -> None:
        """Mark a document that is written over as not done, for runs that continue this one."""
        for source, target in jobs[1:]:
            if target.exists() and not self.settings.resume:
                Journal(target, self.plan(source)).begin(resume=False)

    def pass_over(self, source: Path, target: Path, finished: FinishedFiles | None) -> None:
        """Skip a document that is done; its report is that of the earlier run."""
        known = finished.of(target) if finished is not None else None
        if known is None:
            self.report.pass_over(source, target)
        else:
            self.report.include(known)

    def write_report(self, finished: FinishedFiles) -> None:
        """Write the report, unless an earlier run has written it."""
        assert self.report_file is not None
        if not self.report_file.exists() or any(file["units"] is not None for file in self.report.files):
            self.report.write(self.report_file)
        finished.remove()

    def check(self, jobs: Sequence[tuple[Path, Path]]) -> None:
        """Read each of several documents before the first is translated, so that none fails after hours of work."""
        for source, target in jobs if len(jobs) > 1 else []:
            if not self.is_done(target):
                deque(self.open(source).units(), maxlen=0)

    def is_done(self, target: Path) -> bool:
        """Whether an earlier run has finished this file."""
        return self.settings.resume and target.exists() and not journal_of(target).exists()

    def open(self, source: Path) -> Document:
        model = self.translator.translation_model
        return open_document(source, options=self.settings.document_options(model.source_lang, model.target_lang))

    def translate_one(self, document: Document, target: Path, finished: FinishedFiles | None) -> str:
        """Translate one document; returns a short message."""
        units = Units(document)  # a broken file is known before any work
        journal = Journal(target, self.plan(document.path))
        journal.begin(resume=self.settings.resume)
        if journal.heads is not None:
            self.units.aligner.heads = AligningHeads.from_json(journal.heads)
        with progress_bar(target.name, units.count, done=journal.done, show=self.show_progress) as advance:
            self.fill(units, journal, advance)
        write_durably(target, lambda file: write(document, journal, file, packed=is_gzipped(target)))
        report = document_report(units, target, journal)
        if finished is not None:
            finished.add(target, report)
        journal.remove()
        self.report.include(report)
        return summary_of(report)

    def fill(self, units: "Units", journal: Journal, advance: Advance) -> None:
        """Translate what the journal does not have yet."""
        for block in unit_blocks(islice(units, journal.done, None)):
            outcomes = self.units.outcomes(block)
            heads = self.units.aligner.heads
            journal.add(outcomes, None if heads is None else heads.to_json())
            advance(len(block), sum(outcome.tokens for outcome in outcomes))

    def plan(self, document: Path | None = None) -> dict[str, Any]:
        """What a run must have in common with the one that it continues."""
        mine = {name: value for name, value in asdict(self.settings).items() if name not in ("force", "resume")}
        return ({} if document is None else {"document": sha256_of(document)}) | {
            "model": self.translator.translation_model.fingerprint,
            "stores": [store.fingerprint for store in self.translator.stores],
            "settings": mine | {"details": self.units.options.details},
            "translation": {name: as_listed(value) for name, value in asdict(self.translator.settings).items()},
        }


class Units:
    """The units of a document, as often as they are asked for. Those of a large one are read again each time."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = size = 0
        self.kept: list[DocumentUnit] | None = []
        for self.count, unit in enumerate(document.units(), start=1):
            size += UNIT + len(plain_text(unit.source))
            if self.kept is not None:
                self.kept.append(unit)
            if size > KEPT:
                self.kept = None

    def __iter__(self) -> Iterator[DocumentUnit]:
        return iter(self.kept) if self.kept is not None else self.document.units()


def document_report(units: Units, target: Path, journal: Journal) -> Report:
    """What is reported about a document."""
    report = Report()
    report.begin_file(units.document.path, target)
    for unit, record in zip(units, journal.records(), strict=True):
        report.add(unit, record, content_of(record["target"]))
    return report


def as_listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def unit_blocks(units: Iterator[DocumentUnit]) -> Iterator[list[DocumentUnit]]:
    while block := list(islice(units, BLOCK)):
        yield block


def write(document: Document, journal: Journal, file: BinaryIO, *, packed: bool) -> None:
    if not packed:
        document.write(journal.results(), file)
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as inner:
        document.write(journal.results(), cast(BinaryIO, inner))


def summary_of(report: Report) -> str:
    units = f"{report.units:,} unit{'' if report.units == 1 else 's'}"
    return f"{units}, {report.exact:,} from the memory, {len(report.doubtful):,} to look at"
