"""The outcome of a unit: its translation, and where it came from."""

from dataclasses import dataclass

from knnmt.documents.content import DocumentUnit, UnitResult


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """A unit's result and the facts about it for a report."""

    unit: DocumentUnit
    result: UnitResult
    log_probability: float = 0.0
    tokens: int = 0
    sentences: tuple[tuple[str, str], ...] = ()  # what was translated by itself, and its translation
    memory_share: float | None = None  # of its tokens' probability, what came from the memory; None: not asked for
    match: float | None = None  # percent of the nearest source in the memory; None: not asked for, or none from 70 on
