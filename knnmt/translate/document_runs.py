"""Whole documents translated: read, translated unit by unit, written whole or not at all; a killed run can go on."""

import gzip
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from knnmt.documents.content import DocumentUnit
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
from knnmt.units.journal import Journal, content_of
from knnmt.units.report import Report, check_report

BLOCK = 512  # units translated together: what a kill can cost


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

    def translate(self, jobs: Sequence[tuple[Path, Path]]) -> Report:
        """Translate each source to its target."""
        check_destinations(jobs, force=self.settings.force, resume=self.settings.resume)
        self.check(jobs)
        for source, target in jobs:
            if not self.is_done(target):
                self.translate_one(self.open(source), target)
        if self.report_file is not None:
            self.report.write(self.report_file)
        return self.report

    def check(self, jobs: Sequence[tuple[Path, Path]]) -> None:
        """Of several documents, read each before the first is translated: none must fail after hours of work."""
        for source, target in jobs[1:]:
            if not self.is_done(target):
                deque(self.open(source).units(), maxlen=0)

    def is_done(self, target: Path) -> bool:
        """Whether a run that goes on has finished this file before."""
        return self.settings.resume and target.exists() and not journal_of(target).exists()

    def open(self, source: Path) -> Document:
        model = self.translator.translation_model
        return open_document(source, options=self.settings.document_options(model.source_lang, model.target_lang))

    def translate_one(self, document: Document, target: Path) -> str:
        """Translate one document; in a few words, what came of it."""
        total = sum(1 for _ in document.units())  # a broken file is known before any work
        journal = Journal(target, self.plan(document))
        journal.begin(resume=self.settings.resume)
        if journal.heads is not None:
            self.units.aligner.heads = AligningHeads.from_json(journal.heads)
        with progress_bar(target.name, total, done=journal.done, show=self.show_progress) as advance:
            self.fill(document, journal, advance)
        write_durably(target, lambda file: write(document, journal, file, packed=is_gzipped(target)))
        told = self.tell(document, target, journal)
        journal.remove()
        return told

    def fill(self, document: Document, journal: Journal, advance: Advance) -> None:
        """Translate what the journal does not have yet."""
        for block in blocks(islice(document.units(), journal.done, None)):
            outcomes = self.units.outcomes(block)
            heads = self.units.aligner.heads
            journal.add(outcomes, None if heads is None else heads.to_json())
            advance(len(block), sum(outcome.tokens for outcome in outcomes))

    def plan(self, document: Document) -> dict[str, Any]:
        """What a run must have in common with the one that it goes on with."""
        mine = {name: value for name, value in asdict(self.settings).items() if name not in ("force", "resume")}
        return {
            "document": sha256_of(document.path),
            "model": self.translator.translation_model.fingerprint,
            "stores": [store.fingerprint for store in self.translator.stores],
            "settings": mine | {"details": self.units.options.details},
            "translation": {name: as_listed(value) for name, value in asdict(self.translator.settings).items()},
        }

    def tell(self, document: Document, target: Path, journal: Journal) -> str:
        """Enter a document into the report."""
        exact, doubtful = self.report.exact, len(self.report.doubtful)
        self.report.begin_file(document.path, target)
        for unit, record in zip(document.units(), journal.records(), strict=True):
            self.report.add(unit, record, content_of(record["target"]))
        exact, doubtful = self.report.exact - exact, len(self.report.doubtful) - doubtful
        return f"{journal.done:,} units, {exact:,} from the memory, {doubtful:,} to look at"


def as_listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def blocks(units: Iterator[DocumentUnit]) -> Iterator[list[DocumentUnit]]:
    while block := list(islice(units, BLOCK)):
        yield block


def write(document: Document, journal: Journal, file: BinaryIO, *, packed: bool) -> None:
    if not packed:
        document.write(journal.results(), file)
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as inner:
        document.write(journal.results(), cast(BinaryIO, inner))
