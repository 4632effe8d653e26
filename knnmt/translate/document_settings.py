"""How documents are translated: the options of the command line and of the library."""

from dataclasses import dataclass
from typing import Literal, cast, get_args

from knnmt.documents.document import DocumentOptions
from knnmt.errors import SettingsError
from knnmt.translate.settings import option

ExactMatches = Literal["use", "suggest", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOptions:
    """How units that the memory knows are treated."""

    exact_matches: ExactMatches = "use"  # a known source: take its translation, give it as a match, or take no notice
    matches: int = 0  # near matches given with each unit, at most
    details: bool = False  # also say how much came from the memory and how near its nearest source is
    where: tuple[str, ...] = ()  # only pairs that meet these are matches; by default the translator's own conditions

    def __post_init__(self) -> None:
        if self.exact_matches not in get_args(ExactMatches):
            known = ", ".join(get_args(ExactMatches))
            raise SettingsError(f"--exact-matches {self.exact_matches}: must be one of {known}")
        if self.matches < 0:
            raise SettingsError(f"--matches {self.matches}: must be at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSettings:
    """How documents are translated."""

    all: bool = option(False, "Translate also what an XLIFF, PO or table has a translation of.", memory=False)
    state: str | None = option(None, "XLIFF: the state of what is written.", memory=False)
    no_fuzzy: bool = option(False, "PO: do not mark what is written as fuzzy.", memory=False)
    paragraphs: bool = option(False, "TXT: units are paragraphs, not lines.", memory=False)
    columns: str | None = option(None, "CSV, TSV, JSONL: SOURCE,TARGET, the names of the two.", memory=False)
    exact_matches: str = option(
        "use", "What a source that the memory knows is given: use, suggest or ignore. [default: use]", memory=False
    )
    matches: int = option(0, "XLIFF: near matches of the memory written with each unit. [default: 0]", memory=False)
    force: bool = option(False, "Write over an existing file, and start over where a run was stopped.", memory=False)
    resume: bool = option(False, "Go on with a run that was stopped.", memory=False)

    def __post_init__(self) -> None:
        if self.force and self.resume:
            raise SettingsError("--force --resume: one starts over, the other goes on; give only one of them")
        self.unit_options(details=False)
        self.document_options(None, None)

    def unit_options(self, *, details: bool) -> UnitOptions:
        return UnitOptions(exact_matches=cast(ExactMatches, self.exact_matches), matches=self.matches, details=details)

    def document_options(self, source_lang: str | None, target_lang: str | None) -> DocumentOptions:
        return DocumentOptions(
            source_lang=source_lang,
            target_lang=target_lang,
            all_units=self.all,
            state=self.state,
            fuzzy=not self.no_fuzzy,
            paragraphs=self.paragraphs,
            columns=columns_of(self.columns),
        )


def columns_of(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise SettingsError(f"--columns {text}: must be two names, SOURCE,TARGET")
    return names[0], names[1]
