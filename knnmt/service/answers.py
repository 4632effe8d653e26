"""Answers the texts of a batch: known ones from the memory, others by translation, with their tags."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from knnmt.documents.content import Content, DocumentUnit, tags_of
from knnmt.service.markup import contents, spoken, written_markup
from knnmt.service.scopes import Scope
from knnmt.service.views import View
from knnmt.store.datastore import StoredSegment
from knnmt.text.placeholders import missing
from knnmt.translate.explanation import Explanation
from knnmt.units.outcomes import UnitOutcome

Outcomes = Iterator[UnitOutcome]

LONG = 2_000  # characters from which on a text is cut at its line ends, so that others need not wait for all of it


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done with a text; texts with the same task share a batch."""

    scope: Scope
    explained: bool = False
    exact: bool = True  # a text that the memory knows is taken from it
    html: bool = False
    alternatives: int = 0  # other translations at most
    of_document: bool = False  # units with tags of their own, and results as documents take them


@dataclass(frozen=True, slots=True)
class Answer:
    """One text translated, and where its words came from."""

    source: str
    text: str
    view: View
    log_probability: float = 0.0
    tokens: int = 0
    flags: tuple[str, ...] = ()
    match: tuple[str, StoredSegment] | None = None  # the pair of the memory that is this text, and its store
    alternatives: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()  # of each sentence, where asked for and there is one


def answered(view: View, task: Task, texts: Sequence[str]) -> list[Answer]:
    """One answer for each text."""
    parts = [contents(text, is_html=task.html) for text in texts]
    known = [match_of(view, task, text, some) for text, some in zip(texts, parts, strict=True)]
    wanted = [one for some, match in zip(parts, known, strict=True) if not match for one in some]
    units = [DocumentUnit(number, one, "") for number, one in enumerate(wanted, start=1) if not isinstance(one, str)]
    outcomes = iter(view.units[task.exact].outcomes(units))
    return [
        match or made(view, task, text, some, outcomes) for text, some, match in zip(texts, parts, known, strict=True)
    ]


def match_of(view: View, task: Task, text: str, parts: Sequence[str | Content]) -> Answer | None:
    """The memory's translation of the whole text; None for a text with tags, whose tags must be placed."""
    tagged = len(parts) != 1 or any(not isinstance(one, str) for one in parts[0])
    if not task.exact or tagged or not text.strip():
        return None
    match = view.exact(spoken(text, is_html=task.html))
    if match is None:
        return None
    return Answer(text, framed(text, written_markup((match[1].target,), is_html=task.html)), view, match=match)


def made(view: View, task: Task, text: str, parts: Sequence[str | Content], outcomes: Outcomes) -> Answer:
    """A text out of its parts, in order; `outcomes` are those of all texts of the batch."""
    own = [next(outcomes) for one in parts if not isinstance(one, str)]
    filled = iter(own)
    out = "".join(
        one if isinstance(one, str) else written_markup(next(filled).result.target, is_html=task.html) for one in parts
    )
    explanations: list[Explanation | None] = []
    if task.explained:
        explanations = [view.explain(*sentence) for outcome in own for sentence in outcome.sentences]
    return Answer(
        text,
        out,
        view,
        sum(outcome.log_probability for outcome in own),
        sum(outcome.tokens for outcome in own),
        tuple(dict.fromkeys(flag for outcome in own for flag in outcome.result.flags)),
        None,
        alternatives(view, own, out, task.alternatives) if len(parts) == 1 else (),
        tuple(one for one in explanations if one is not None),
    )


def alternatives(view: View, own: Sequence[UnitOutcome], text: str, most: int) -> tuple[str, ...]:
    """Other translations of one sentence without tags, with everything in them that must come through."""
    if not most or len(own) != 1 or len(own[0].sentences) != 1 or tags_of(own[0].unit.source):
        return ()
    source = own[0].sentences[0][0]
    made = view.translator.translations([source])[0]
    others = [made.text, *view.translator.alternatives(made, most)]
    return tuple(other for other in others if other != text.strip() and not missing(source, other))[:most]


def framed(source: str, target: str) -> str:
    """The target with the white space around the source."""
    body = source.strip()
    start = source.index(body)
    return source[:start] + target + source[start + len(body) :]


def split_lines(text: str) -> list[str]:
    """A long text by its lines, their ends with them; any other as it is."""
    return re.findall(r"[^\n]*\n|[^\n]+", text) if len(text) > LONG else [text]


def together(text: str, parts: Sequence[Answer]) -> Answer:
    """The answer for a text out of those for its lines."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        source=text,
        text="".join(part.text for part in parts),
        log_probability=sum(part.log_probability for part in parts),
        tokens=sum(part.tokens for part in parts),
        flags=tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
        match=None,
        explanations=tuple(one for part in parts for one in part.explanations),
    )
