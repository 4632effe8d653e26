"""LibreTranslate's API, so that its clients work without changes."""

from typing import Any, NotRequired, cast

from fastapi import APIRouter, Request
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from knnmt.serve.calls import Caller, caller_of
from knnmt.serve.fields import number_of, sent_text, sent_texts
from knnmt.serve.openapi import sent, text
from knnmt.service.answers import Task
from knnmt.service.corrections import Correction
from knnmt.service.failures import BadRequest
from knnmt.service.jobs import ENDINGS
from knnmt.service.languages import detect, language_name
from knnmt.service.service import AUTO
from knnmt.text.endings import READ_AS_MEMORY, WRITTEN_AS_MEMORY
from knnmt.text.languages import base_language

router = APIRouter(tags=["LibreTranslate"])
FORMATS = ("text", "html")
LANGUAGE = "A language code, or auto."
TRANSLATE = sent(
    ("q", "target"),
    q={"anyOf": [text(), {"type": "array", "items": text()}], "description": "One text or several."},
    source=text(LANGUAGE, default=AUTO),
    target=text("A language code."),
    format=text(enum=list(FORMATS), default="text"),
    alternatives={"type": "integer", "minimum": 0, "default": 0},
)
SUGGEST = sent(("q", "s", "target"), q=text(), s=text("Its better translation."), source=text(LANGUAGE), target=text())
DETECT = sent(("q",), q=text())


class Language(TypedDict):
    code: str
    name: str
    targets: list[str]


class Likely(TypedDict):
    language: str
    confidence: float  # percent


class Translated(TypedDict):
    """Each field is a list where several texts were sent."""

    translatedText: str | list[str]
    alternatives: NotRequired[list[str] | list[list[str]]]
    detectedLanguage: NotRequired[Likely | list[Likely]]


@router.get("/health")
async def health(request: Request) -> dict[str, str]:
    """`loading`, then `ok` when the models are loaded. Other requests wait until then."""
    return {"status": "ok" if request.app.state.server.ready else "loading"}


@router.get("/frontend/settings")
@router.post("/frontend/settings")
async def frontend_settings(request: Request) -> dict[str, Any]:
    """Settings for LibreTranslate's own page and for ours. No key is needed."""
    server = request.app.state.server
    service = await server.service()
    first = next(iter(service.shelf.engines.values()))
    named = {"source": first.source, "target": first.target}
    return {
        "apiKeys": server.gate.keys is not None,
        "charLimit": service.limits.characters,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": server.gate.keys is not None,
        "language": {side: {"code": code, "name": language_name(code)} for side, code in named.items()},
        "suggestions": any(engine.stores for engine in service.shelf.engines.values()),
        "supportedFilesFormat": list(ENDINGS),
        "importedMemories": list(READ_AS_MEMORY),  # these two are for our own page
        "exportedMemories": list(WRITTEN_AS_MEMORY),
    }


@router.get("/languages")
@router.post("/languages")
async def languages(request: Request) -> list[Language]:
    """The languages of this server, each with its target languages. Weblate asks without its key."""
    caller = await caller_of(request, counted=False, anyone=True)
    return [cast(Language, one) for one in caller.service.languages(caller.access)]


@router.post("/translate", openapi_extra=TRANSLATE)
async def translate(request: Request) -> Translated:
    """Translate one text or a list. The answer to a list is a list of the same length and order."""
    caller = await caller_of(request)
    texts, listed = sent_texts(caller.fields, "q")
    caller.service.check_size(texts)
    answered = echoed(caller, texts) or await translated(caller, texts)
    one = answered if listed else {name: value[0] for name, value in answered.items()}
    return cast(Translated, one)


def echoed(caller: Caller, texts: list[str]) -> dict[str, list[Any]] | None:
    """The source texts themselves, for a pair given with `--echo`."""
    asked = [sent_text(caller.fields, "source", AUTO), sent_text(caller.fields, "target")]
    pair = "-".join(base_language(code) for code in asked)
    return {"translatedText": texts} if pair in caller.server.settings.echo else None


async def translated(caller: Caller, texts: list[str]) -> dict[str, list[Any]]:
    fields = caller.fields
    form = sent_text(fields, "format", "text")
    if form not in FORMATS:
        raise BadRequest(f"{form} format is not supported")
    source, target = sent_text(fields, "source", AUTO), sent_text(fields, "target")
    pair = caller.service.pair(caller.access, source, target, "\n".join(texts))
    most = number_of(fields, "alternatives", 0, most=caller.service.limits.alternatives)
    scope = caller.service.scope(caller.access, pair.engine)
    answers = await caller.translate(Task(scope, html=form == "html", alternatives=most), texts)
    answered: dict[str, list[Any]] = {"translatedText": [answer.text for answer in answers]}
    if most:
        answered["alternatives"] = [list(answer.alternatives) for answer in answers]
    if pair.detected:
        language, share = pair.detected
        answered["detectedLanguage"] = [{"language": language, "confidence": round(100 * share, 1)} for _ in texts]
    return answered


@router.post("/suggest", openapi_extra=SUGGEST)
async def suggest(request: Request) -> dict[str, bool]:
    """Add a correction: `s` is the translation of `q` from now on."""
    caller = await caller_of(request, role="correct")
    source, target = sent_text(caller.fields, "source", AUTO), sent_text(caller.fields, "target")
    known, better = sent_text(caller.fields, "q"), sent_text(caller.fields, "s")
    caller.service.check_size([known, better])
    pair = caller.service.pair(caller.access, source, target, known)
    correction = Correction(known, better, {}, caller.access.filters)
    await caller.service.learn(caller.access, pair.engine, None, correction)
    return {"success": True}


@router.post("/detect", openapi_extra=DETECT)
async def detect_language(request: Request) -> list[Likely]:
    """Detect the language of a text: possible languages, the most likely first."""
    caller = await caller_of(request)
    given = sent_text(caller.fields, "q")
    caller.service.check_size([given])
    likely = [(code, share) for code, share in detect(given)[:5] if share >= 0.01 and given.strip()]
    return [Likely(language=code, confidence=round(100 * share, 1)) for code, share in likely]
