"""Where tags come to stand, against units whose human translation has them too.

Twice: on the human's own words, so that only the place can be wrong, and in the model's translation, where a pair of
tags can be judged if what it holds in the human translation stands there once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from knnmt import Translator
from knnmt.documents.content import Content, DocumentUnit, Tag, plain_text, tags_of
from knnmt.documents.document import DocumentOptions
from knnmt.documents.kinds import open_document
from knnmt.errors import DocumentError
from knnmt.translate.aligning import Pair
from knnmt.translate.unit_translator import UnitTranslator
from knnmt.units.doubts import TAG_GUESSED
from knnmt.units.flat import flattened
from knnmt.units.placing import SURE, placed

UNITS = 200
Place = tuple[str, str, int]  # markup, kind, characters before it that are no white space


@dataclass(slots=True)
class Share:
    """Tags that were judged, and those at the right word; the same of those whose place is called a guess."""

    judged: int = 0
    right: int = 0
    guessed: int = 0
    guessed_right: int = 0

    def add(self, judged: int, right: int, *, is_guess: bool) -> None:
        self.judged += judged
        self.right += right
        if is_guess:
            self.guessed += judged
            self.guessed_right += right

    def to_json(self) -> dict[str, Any]:
        sure, sure_right = self.judged - self.guessed, self.right - self.guessed_right
        return {
            "judged": self.judged,
            "right": part(self.right, self.judged),
            "sure": sure,
            "sure_right": part(sure_right, sure),
            "guessed_right": part(self.guessed_right, self.guessed),
        }


@dataclass(slots=True)
class Judged:
    units: int = 0
    human: Share = field(default_factory=Share)
    machine: Share = field(default_factory=Share)


def placement(model: str, tagged: Path, count: int = UNITS) -> dict[str, Any]:
    """The share of tags that stands where a human put them, in the first units whose two sides have the same tags."""
    translator = UnitTranslator(Translator.from_model(model))
    units = units_of(tagged, translator, count)
    found = Judged(len(units))
    judge_by_human(translator, units, found.human)
    judge_by_machine(translator, units, found.machine)
    result = {"units": found.units, "human": found.human.to_json(), "machine": found.machine.to_json()}
    show(result, model)
    return result


def units_of(tagged: Path, translator: UnitTranslator, count: int) -> list[DocumentUnit]:
    model = translator.translator.translation_model
    options = DocumentOptions(source_lang=model.source_lang, target_lang=model.target_lang, all_units=True)
    units = [unit for unit in open_document(tagged, options=options).units() if has_both(unit)][:count]
    if not units:
        raise DocumentError(f"{tagged}: has no unit with the same tags on both sides")
    return units


def has_both(unit: DocumentUnit) -> bool:
    mine = Counter(tag.markup for tag in tags_of(unit.source))
    return bool(mine) and unit.existing is not None and mine == Counter(tag.markup for tag in tags_of(unit.existing))


def human_of(unit: DocumentUnit) -> Content:
    assert unit.existing is not None
    return unit.existing


def judge_by_human(translator: UnitTranslator, units: Sequence[DocumentUnit], share: Share) -> None:
    """Tags put into the human translation."""
    sources = [flattened(unit.source) for unit in units]
    targets = [flattened((plain_text(human_of(unit)),)) for unit in units]
    pairs = [Pair(source.part(0, len(source.words)), target) for source, target in zip(sources, targets, strict=True)]
    for unit, source, target, links in zip(units, sources, targets, translator.aligner.links(pairs), strict=True):
        done = placed(source, target, links)
        right = sum((Counter(places(done.content)) & Counter(places(human_of(unit)))).values())
        share.add(len(tags_of(unit.source)), right, is_guess=done.sure < SURE)


def places(content: Content) -> Iterator[Place]:
    """Each tag with how much text is before it."""
    before = 0
    for piece in content:
        if isinstance(piece, Tag):
            yield piece.markup, piece.kind, before
        else:
            before += len("".join(piece.split()))


def judge_by_machine(translator: UnitTranslator, units: Sequence[DocumentUnit], share: Share) -> None:
    """Pairs of tags in the model's own translation."""
    for unit, result in zip(units, translator.translate(units), strict=True):
        text = folded(plain_text(result.target))
        wanted = {name: held for name, held in holdings(human_of(unit)) if held and text.count(held) == 1}
        right = sum(wanted.get(name) == held for name, held in holdings(result.target))
        share.add(len(wanted), right, is_guess=TAG_GUESSED in result.flags)


def holdings(content: Content) -> Iterator[tuple[str, str]]:
    """Each pair by its opening tag, with the text that it holds."""
    for at, tag in enumerate(content):
        if isinstance(tag, Tag) and tag.kind == "open" and tag.pair is not None:
            closed = next(end for end in range(at, len(content)) if is_end(content[end], tag.pair))
            yield tag.markup, folded(plain_text(content[at:closed]))


def is_end(piece: str | Tag, pair: int) -> bool:
    return isinstance(piece, Tag) and piece.kind == "close" and piece.pair == pair


def folded(text: str) -> str:
    return " ".join(text.lower().split())


def part(some: int, of: int) -> float | None:
    return round(some / of, 3) if of else None


def show(result: dict[str, Any], model: str) -> None:
    table = Table("tags in", "judged", "right", "not flagged", "of these right", "of the flagged right")
    table.title = f"{model}: places of tags in {result['units']} units"
    for name in ("human", "machine"):
        row = result[name]
        shares = (percent(row[key]) for key in ("right", "sure_right", "guessed_right"))
        right, sure_right, guessed_right = shares
        table.add_row(f"the {name} translation", f"{row['judged']}", right, f"{row['sure']}", sure_right, guessed_right)
    Console().print(table)


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
