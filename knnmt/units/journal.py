"""The progress of a translation on disk, so that a run that was killed can go on.

A document's journal has one line of JSON for each unit that is done, in order, after a line that says what the run was.
Results are read back from it one by one, so that memory does not grow with the document.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from knnmt.documents.content import Content, Match, Tag, UnitResult
from knnmt.errors import SettingsError
from knnmt.files import naming
from knnmt.units.destinations import journal_of
from knnmt.units.outcomes import UnitOutcome
from knnmt.units.report import Report


class RunFile:
    """A file of JSON lines that a run writes as it goes: its plan first, then records. What is written is on disk."""

    def __init__(self, path: Path, plan: dict[str, Any]) -> None:
        self.path = path
        self.plan = plan

    def begin(self, *, resume: bool) -> None:
        """Start anew, or go on with a run that had the same plan."""
        if resume and self.path.is_file():
            self._go_on()
        else:
            self.write([self.plan], mode="wb")

    def _go_on(self) -> None:
        whole = 0
        with self.path.open("rb") as file:
            for line in file:
                record = whole_record(line)
                if record is None:
                    break  # here the run was killed, or the machine's power failed
                if whole:
                    self.take(record)
                else:
                    self._check(record)
                whole += len(line)
        os.truncate(self.path, whole)
        if not whole:
            self.write([self.plan], mode="wb")

    def _check(self, plan: dict[str, Any]) -> None:
        if plan != self.plan:
            changed = ", ".join(name for name in self.plan if plan.get(name) != self.plan[name])
            raise SettingsError(f"--resume: {self.path} is of another run ({changed}); --force starts over")

    def take(self, record: dict[str, Any]) -> None:
        """A record of the run that this one goes on with."""
        raise NotImplementedError

    def write(self, records: Sequence[dict[str, Any]], *, mode: str = "ab") -> None:
        with naming(self.path), self.path.open(mode) as file:
            file.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode())
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class Journal(RunFile):
    """The units of a document that are done, beside the file that is to be written."""

    def __init__(self, target: Path, plan: dict[str, Any]) -> None:
        super().__init__(journal_of(target), plan)
        self.done = 0
        self.heads: dict[str, Any] | None = None  # by which tags are placed: the same until the end

    def take(self, record: dict[str, Any]) -> None:
        if "heads" in record:
            self.heads = record
        self.done += "target" in record

    def add(self, outcomes: Sequence[UnitOutcome], heads: dict[str, Any] | None) -> None:
        """Some more units; they are on disk when this returns."""
        records = [to_json(outcome) for outcome in outcomes]
        if heads is not None and self.heads is None:
            self.heads = heads
            records.insert(0, heads)
        self.write(records)
        self.done += len(outcomes)

    def records(self) -> Iterator[dict[str, Any]]:
        """What is known of each unit, in order."""
        with self.path.open("rb") as file:
            for line in file:
                record = json.loads(line)
                if "target" in record:
                    yield record

    def results(self) -> Iterator[UnitResult]:
        return (result_of(record) for record in self.records())


class FinishedFiles(RunFile):
    """What a report tells of the documents that are finished, beside the report, until that is written itself."""

    def __init__(self, report: Path, plan: dict[str, Any]) -> None:
        super().__init__(journal_of(report), plan)
        self.reports: dict[str, Report] = {}

    def begin(self, *, resume: bool) -> None:
        """Nothing is written before there is something to tell."""
        if resume and self.path.is_file():
            self._go_on()
        else:
            self.remove()

    def take(self, record: dict[str, Any]) -> None:
        self.reports[record["finished"]] = Report.from_state(record["report"])

    def add(self, target: Path, report: Report) -> None:
        begin = [] if self.path.exists() else [self.plan]
        self.write([*begin, {"finished": str(target.resolve()), "report": report.state()}])

    def of(self, target: Path) -> Report | None:
        return self.reports.get(str(target.resolve()))


def whole_record(line: bytes) -> dict[str, Any] | None:
    """A line that was written to its end."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def to_json(outcome: UnitOutcome) -> dict[str, Any]:
    """A unit's line."""
    result = outcome.result
    record: dict[str, Any] = {
        "target": [
            piece if isinstance(piece, str) else [piece.markup, piece.kind, piece.pair] for piece in result.target
        ],
        "origin": result.origin,
        "confidence": result.confidence,
        "flags": list(result.flags),
        "matches": [asdict(match) for match in result.matches],
    }
    return record | {
        "log_probability": round(outcome.log_probability, 4),
        "tokens": outcome.tokens,
        "memory_share": outcome.memory_share,
        "match": outcome.match,
    }


def result_of(record: dict[str, Any]) -> UnitResult:
    return UnitResult(
        content_of(record["target"]),
        record["origin"],
        record["confidence"],
        tuple(Match(**match) for match in record["matches"]),
        tuple(record["flags"]),
    )


def content_of(pieces: Sequence[Any]) -> Content:
    return tuple(piece if isinstance(piece, str) else Tag(*piece) for piece in pieces)
