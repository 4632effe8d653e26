"""How documents are translated: the options of the command line and of the library."""

from dataclasses import dataclass
from typing import Literal, cast, get_args

from knnmt.documents.document import DocumentOptions
from knnmt.errors import SettingsError
from knnmt.translate.settings import option

ExactMatches = Literal["use", "suggest", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOptions:
    """What to do with units that the memory already has a translation of."""

    exact_matches: ExactMatches = "use"  # translation of an identical source: take it, list it as a match, or ignore it
    matches: int = 0  # maximum number of near matches listed with each unit
    details: bool = False  # also report the memory's share and the similarity of the nearest source
    where: tuple[str, ...] = ()  # conditions on pairs that may be matches; by default those of the translator

    def __post_init__(self) -> None:
        if self.exact_matches not in get_args(ExactMatches):
            known = ", ".join(get_args(ExactMatches))
            raise SettingsError(f"--exact-matches {self.exact_matches}: must be one of {known}")
        if self.matches < 0:
            raise SettingsError(f"--matches {self.matches}: must be at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSettings:
    """How documents are translated."""

    all: bool = option(False, "XLIFF, PO, tables: also translate units that already have a translation.", memory=False)
    state: str | None = option(None, "XLIFF: state to give to the new translations.", memory=False)
    no_fuzzy: bool = option(False, "PO: do not mark new translations as fuzzy.", memory=False)
    paragraphs: bool = option(False, "TXT: translate paragraphs instead of lines.", memory=False)
    columns: str | None = option(None, "CSV, TSV, JSONL: names of the two columns, as SOURCE,TARGET.", memory=False)
    exact_matches: str = option(
        "use", "Translations of identical sources in the memory: use, suggest or ignore. [default: use]", memory=False
    )
    matches: int = option(0, "XLIFF: number of near matches to write with each unit. [default: 0]", memory=False)
    force: bool = option(
        False, "Overwrite existing files; start an interrupted run again from the beginning.", memory=False
    )
    resume: bool = option(False, "Continue an interrupted run.", memory=False)

    def __post_init__(self) -> None:
        if self.force and self.resume:
            raise SettingsError("--force --resume: one starts again, the other continues; give only one of them")
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
