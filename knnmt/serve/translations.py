"""Our own API for translations, explanations and corrections."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from knnmt.serve.calls import Caller, caller_of
from knnmt.service.answers import Answer, Task
from knnmt.service.corrections import OURS, Correction, segment_id
from knnmt.service.failures import BadRequest
from knnmt.service.service import AUTO, LanguagePair
from knnmt.service.views import View
from knnmt.store.datastore import StoredSegment
from knnmt.translate.explanation import Explanation, MemorySentence

router = APIRouter(prefix="/v1", tags=["knnmt"])

SENTENCES_SHOWN = 5  # behind each word

Metadata = dict[str, str]


class Asked(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Mixing(Asked):
    """Settings of retrieval. Values that are left out are those that the memory was fitted to."""

    weight: Annotated[float, Field(ge=0, le=1)] | None = None
    k: Annotated[int, Field(ge=1, le=1024)] | None = None
    temperature: Annotated[float, Field(gt=0, le=1e6)] | None = None
    beam: Annotated[int, Field(ge=1, le=10)] | None = None


class InLanguages(Asked):
    source: str = Field(AUTO, description="Language code, or auto.")
    target: str | None = Field(None, description="Language code. Default: the first that the server has.")


class AskedTranslations(InLanguages):
    texts: list[str]
    stores: list[str] | None = Field(
        None,
        description="Memories to use. Default: all that the key may see. Memories of other languages are ignored.",
    )
    filters: list[str] = Field([], description="Conditions such as corpus=house. All of them must hold.")
    settings: Mixing = Mixing()
    explain: bool = False
    exact_matches: bool = Field(True, description="If the memory contains the text, use its translation.")
    format: Literal["text", "html"] = "text"


class AskedExplanation(InLanguages):
    text: str
    stores: list[str] | None = None
    filters: list[str] = []
    settings: Mixing = Mixing()
    exact_matches: bool = False


class AskedCorrection(InLanguages):
    text: str = Field(description="The source sentence.")
    correction: str = Field(description="The corrected translation.")
    store: str | None = Field(None, description="The memory to add it to. Default: the first.")
    metadata: Metadata = Field(default_factory=dict)


class Sentence(BaseModel):
    """A sentence pair of a memory; `marks` are the words of the target that contributed to the word."""

    id: str
    store: str
    source: str
    target: str
    corpus: str
    created: str
    metadata: Metadata
    support: float | None = None
    marks: list[tuple[int, int]] = []


class Word(BaseModel):
    text: str
    start: int
    share: float = Field(description="The share of the word's probability that came from the memory.")
    sentences: list[Sentence]


class Translated(BaseModel):
    text: str
    source: str
    origin: Literal["exact", "memory", "model"]
    score: float | None = Field(description="Mean log-probability per token; null for an exact match.")
    share: float = Field(description="The share of the translation that came from the memory, from 0 to 1.")
    match: Sentence | None
    flags: list[str]
    versions: dict[str, int] = Field(description="Version of each memory that was used.")
    words: list[Word] | None = None


class Translations(BaseModel):
    translations: list[Translated]
    source: str
    target: str
    model: str
    detected: float | None = Field(
        None, description="Probability of the detected source language, from 0 to 1; null if none was detected."
    )


class Learned(BaseModel):
    id: str
    store: str
    version: int


class Undone(Learned):
    source: str


@router.post("/translations")
async def translations(request: Request, asked: AskedTranslations) -> Translations:
    """Translate texts. Each answer has the share that came from the memory."""
    caller = await caller_of(request)
    caller.service.check_size(asked.texts)
    pair = pair_for(caller, asked, "\n".join(asked.texts), asked.stores)
    answers = await caller.translate(task_for(caller, pair, asked), asked.texts)
    return Translations(
        translations=[translated(answer, explained=asked.explain) for answer in answers],
        source=pair.engine.source,
        target=pair.engine.target,
        model=pair.engine.model.name,
        detected=pair.detected[1] if pair.detected else None,
    )


@router.post("/explanations")
async def explanations(request: Request, asked: AskedExplanation) -> dict[str, Any]:
    """Explain a translation: each token with its probabilities and neighbours."""
    caller = await caller_of(request)
    caller.service.check_size([asked.text])
    pair = pair_for(caller, asked, asked.text, asked.stores)
    answer = (await caller.translate(task_for(caller, pair, asked), [asked.text]))[0]
    if not answer.explanations:
        raise BadRequest("no memory had a part in this translation, so there is nothing to explain")
    return {"translation": answer.text, "sentences": [one.to_json() for one in answer.explanations]}


@router.post("/corrections")
async def corrections(request: Request, asked: AskedCorrection) -> Learned:
    """Add a corrected translation. Answered when it is on disk; the next translation uses it."""
    caller = await caller_of(request, role="correct")
    caller.service.check_size([asked.text, asked.correction])
    pair = pair_for(caller, asked, asked.text, [asked.store] if asked.store else None)
    correction = Correction(asked.text, asked.correction, asked.metadata, caller.access.filters)
    return Learned(**await caller.service.learn(caller.access, pair.engine, asked.store, correction))


@router.delete("/corrections/{identity}")
async def undo(request: Request, identity: str) -> Undone:
    """Undo a correction. The pair that it replaced is restored."""
    caller = await caller_of(request, role="correct")
    return Undone(**await caller.service.undo(caller.access, identity))


def pair_for(caller: Caller, asked: InLanguages, text: str, stores: Sequence[str] | None) -> LanguagePair:
    engines = caller.service.engines(caller.access, stores)
    if not engines:
        raise BadRequest("this key may use no memory, and so no languages")
    target = asked.target or engines[0].target
    return caller.service.pair(caller.access, asked.source, target, text, stores)


def task_for(caller: Caller, pair: LanguagePair, asked: AskedTranslations | AskedExplanation) -> Task:
    settings = {name: value for name, value in asked.settings.model_dump().items() if value is not None}
    scope = caller.service.scope(
        caller.access, pair.engine, stores=asked.stores, filters=asked.filters, settings=settings
    )
    is_html = isinstance(asked, AskedTranslations) and asked.format == "html"
    return Task(scope, explained=True, exact=asked.exact_matches, html=is_html)


def translated(answer: Answer, *, explained: bool) -> Translated:
    words = shown_words(answer)
    share = sum(word.share * len(word.text) for word in words) / max(1, sum(len(word.text) for word in words))
    origin: Literal["exact", "memory", "model"] = "exact" if answer.match else "memory" if share > 0 else "model"
    return Translated(
        text=answer.text,
        source=answer.source,
        origin=origin,
        score=answer.log_probability / answer.tokens if answer.tokens else None,
        share=share,
        match=closest_pair(answer),
        flags=list(answer.flags),
        versions=answer.view.versions,
        words=words if explained else None,
    )


def shown_words(answer: Answer) -> list[Word]:
    if answer.match:
        return words_of_match(answer.text, *answer.match)
    if not answer.explanations:
        return [Word(text=text, start=start, share=0.0, sentences=[]) for text, start in word_starts(answer.text)]
    return [*explained_words(answer)]


def explained_words(answer: Answer) -> Iterator[Word]:
    """The words of all sentences, with their offsets in the whole text."""
    at = 0
    for word in (word for one in answer.explanations for word in one.words):
        found = answer.text.find(word.text, at)
        if found < 0:
            continue
        at = found + len(word.text)
        yield Word(
            text=word.text,
            start=found,
            share=word.memory_share,
            sentences=[behind(answer.view, one) for one in word.sentences[:SENTENCES_SHOWN]],
        )


def word_starts(text: str) -> list[tuple[str, int]]:
    """Words between white space, and where each begins."""
    found, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        found.append((word, at))
        at += len(word)
    return found


def words_of_match(text: str, store: str, pair: StoredSegment) -> list[Word]:
    """All of it came from one pair."""
    words = word_starts(text)
    inside = word_starts(pair.target)
    return [
        Word(text=word, start=start, share=1.0, sentences=[sentence(store, pair, 1.0, [(at, at + len(word))])])
        for (word, start), (_, at) in zip(words, inside, strict=True)
    ]


def behind(view: View, one: MemorySentence) -> Sentence:
    return sentence(one.store, view.pair(one.store, one.segment), one.support, one.marks)


def sentence(
    store: str, pair: StoredSegment, support: float | None = None, marks: list[tuple[int, int]] | None = None
) -> Sentence:
    return Sentence(
        id=segment_id(pair),
        store=store,
        source=pair.source,
        target=pair.target,
        corpus=pair.corpus,
        created=pair.created,
        metadata={name: value for name, value in pair.metadata.items() if name not in OURS},
        support=support,
        marks=marks or [],
    )


def closest_pair(answer: Answer) -> Sentence | None:
    """The pair itself, or the one that gave most to the translation."""
    if answer.match:
        return sentence(*answer.match)
    found = strongest(answer.explanations)
    return None if found is None else sentence(found[0], answer.view.pair(*found[:2]), found[2])


def strongest(explanations: Sequence[Explanation]) -> tuple[str, int, float] | None:
    """Store, segment and support of the pair that gave most to all words together."""
    support: dict[tuple[str, int], float] = {}
    words = [word for one in explanations for word in one.words]
    for one in (one for word in words for one in word.sentences):
        support[one.store, one.segment] = support.get((one.store, one.segment), 0.0) + one.support
    if not support:
        return None
    best = max(support, key=lambda one: support[one])
    return best[0], best[1], support[best] / len(words)
