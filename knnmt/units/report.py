"""The report on documents: totals, then the units that a person should check, the worst first."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from knnmt.documents.content import Content, DocumentUnit
from knnmt.errors import SettingsError
from knnmt.files import check_writable, write_durably, write_json
from knnmt.units.doubts import WEIGHTS
from knnmt.units.report_page import report_page

ENDINGS = (".html", ".json")
UNSURE = 0.25  # mean probability of a token, below which a translation is doubtful by itself
LOW = "low probability"


def reasons(flags: Sequence[str], confidence: float | None) -> list[str]:
    """Why a person should check a unit: doubts about its text, and low certainty of the model."""
    return [*flags, *([LOW] if confidence is not None and confidence < UNSURE else [])]


@dataclass(frozen=True, slots=True)
class ReportedUnit:
    """A unit that is doubtful."""

    place: str
    source: str
    translation: str
    why: tuple[str, ...]
    origin: str
    log_probability: float
    tokens: int
    memory_share: float | None
    match: float | None  # percent of the nearest source in the memory

    @property
    def badness(self) -> float:
        mean = self.log_probability / max(1, self.tokens)
        return sum(WEIGHTS.get(reason, 1.0) for reason in self.why) - max(mean, -5.0)


@dataclass(slots=True)
class Report:
    """Counts over all units, and the doubtful ones."""

    files: list[dict[str, Any]] = field(default_factory=list)
    units: int = 0
    exact: int = 0
    machine: int = 0
    near: int = 0  # of those by machine, units like a source of the memory
    flags: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    log_probability: float = 0.0
    shares: float = 0.0  # the memory's share, summed over tokens
    shared: int = 0  # tokens whose share is known
    doubtful: list[ReportedUnit] = field(default_factory=list)

    def begin_file(self, source: Path, target: Path) -> None:
        self.files.append({"source": str(source), "target": str(target), "units": 0})

    def pass_over(self, source: Path, target: Path) -> None:
        """A document that an earlier run finished, of which nothing is known."""
        self.files.append({"source": str(source), "target": str(target), "units": None})

    def include(self, other: "Report") -> None:
        """Add everything from another report."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def add(self, unit: DocumentUnit, record: dict[str, Any], target: Content) -> None:
        """Add a unit, with what the journal knows about it."""
        why = reasons(record["flags"], record["confidence"])
        self._count(record, why)
        if why:
            self.doubtful.append(
                ReportedUnit(
                    unit.place,
                    shown(unit.source),
                    shown(target),
                    tuple(why),
                    record["origin"],
                    record["log_probability"],
                    record["tokens"],
                    record["memory_share"],
                    record["match"],
                )
            )

    def _count(self, record: dict[str, Any], why: list[str]) -> None:
        self.units += 1
        if self.files:
            self.files[-1]["units"] += 1
        self.exact += record["origin"] == "exact"
        self.machine += record["origin"] == "machine"
        self.near += record["origin"] == "machine" and record["match"] is not None
        self.flags.update(why)
        self.tokens += record["tokens"]
        self.log_probability += record["log_probability"]
        if record["memory_share"] is not None and record["tokens"]:
            self.shares += record["memory_share"] * record["tokens"]
            self.shared += record["tokens"]

    @property
    def worst_first(self) -> list[ReportedUnit]:
        return sorted(self.doubtful, key=lambda unit: -unit.badness)

    def state(self) -> dict[str, Any]:
        """All of it as JSON, for `from_state`."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {
            "doubtful": [asdict(unit) for unit in self.doubtful]
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Report":
        doubtful = [ReportedUnit(**unit | {"why": tuple(unit["why"])}) for unit in state["doubtful"]]
        return cls(**state | {"flags": Counter(state["flags"]), "doubtful": doubtful})

    def to_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "totals": {
                "units": self.units,
                "exact_matches": self.exact,
                "machine": self.machine,
                "near_matches": self.near,
                "doubtful": len(self.doubtful),
                "flags": dict(self.flags.most_common()),
                "mean_probability": round(math.exp(self.log_probability / self.tokens), 4) if self.tokens else None,
                "memory_share": round(self.shares / self.shared, 4) if self.shared else None,
            },
            "doubtful": [asdict(unit) for unit in self.worst_first],
        }

    def write(self, path: Path) -> None:
        """As JSON or as a page, by the ending."""
        check_report(path)
        if path.suffix.lower() == ".json":
            write_json(path, self.to_json())
        else:
            write_durably(path, lambda file: file.write(report_page(self.to_json()).encode()))


def check_report(path: Path) -> None:
    """Known before the work begins."""
    if path.suffix.lower() not in ENDINGS:
        raise SettingsError(f"--report {path}: must end in {' or '.join(ENDINGS)}")
    check_writable(path, "--report")


def shown(content: Content) -> str:
    """Text with its tags, for a reader."""
    return "".join(piece if isinstance(piece, str) else piece.markup for piece in content)
