"""APIs of other services, for their clients: DeepL, tmserver (Weblate), Apertium (OmegaT).

DeepL's clients are given `http://host:5000` or `http://host:5000/deepl` as the server's address (its own library drops
the path, others keep it), tmserver's `http://host:5000/tmserver`, Apertium's `http://host:5000/apertium`.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.convertors import Convertor, register_url_convertor

from knnmt.serve.calls import Caller, caller_of
from knnmt.serve.fields import check_text, sent_text, sent_texts
from knnmt.service.answers import Task
from knnmt.service.failures import BadRequest
from knnmt.service.languages import language_name
from knnmt.service.service import AUTO

deepl = APIRouter(prefix="/v2", tags=["DeepL"])
tmserver = APIRouter(prefix="/tmserver", tags=["tmserver"])
apertium = APIRouter(prefix="/apertium", tags=["Apertium"])

DEEPL = ("/v2/", "/deepl/")  # paths of DeepL's clients
UNLIMITED = 1_000_000_000_000  # DeepL's clients want a number
LEAST_ALIKE = 70.0  # percent, from which Weblate shows a match


@deepl.post("/translate")
async def translate(request: Request) -> dict[str, Any]:
    """Translate one or several `text` into `target_lang`. Set `tag_handling` to xml or html if they have tags."""
    caller = await caller_of(request)
    fields = caller.fields
    texts, _ = sent_texts(fields, "text")
    caller.service.check_size(texts)
    source = sent_text(fields, "source_lang", AUTO)
    pair = caller.service.pair(caller.access, source, sent_text(fields, "target_lang"), "\n".join(texts))
    tagged = str(fields.get("tag_handling") or "") in ("xml", "html")
    scope = caller.service.scope(caller.access, pair.engine)
    answers = await caller.translate(Task(scope, html=tagged), texts)
    charged = str(fields.get("show_billed_characters", "")).lower() in ("1", "true")
    return {
        "translations": [
            {"detected_source_language": pair.engine.source.upper(), "text": answer.text}
            | ({"billed_characters": len(text)} if charged else {})
            for text, answer in zip(texts, answers, strict=True)
        ]
    }


@deepl.get("/languages")
async def languages(request: Request) -> list[dict[str, Any]]:
    """The languages. `type` is source or target."""
    caller = await caller_of(request, counted=False)
    targets = caller.fields.get("type") == "target"
    engines = caller.service.engines(caller.access)
    codes = dict.fromkeys(engine.target if targets else engine.source for engine in engines)
    plain = {"supports_formality": False} if targets else {}
    return [{"language": code.upper(), "name": language_name(code), **plain} for code in codes]


@deepl.get("/usage")
async def usage(request: Request) -> dict[str, int]:
    """The usage, which this server does not count."""
    await caller_of(request, counted=False)
    return {"character_count": 0, "character_limit": UNLIMITED}


@apertium.get("/translate")
async def apertium_translate(
    request: Request, q: str, langpair: Annotated[str, Query(description="Such as de|en.")]
) -> dict[str, Any]:
    """Translate one text. OmegaT's tags are put around the corresponding words."""
    caller = await caller_of(request)
    texts = [check_text(q, "q")]
    caller.service.check_size(texts)
    source, _, target = langpair.partition("|")
    pair = caller.service.pair(caller.access, source or AUTO, target, q)
    answer = (await caller.translate(Task(caller.service.scope(caller.access, pair.engine)), texts))[0]
    return {"responseData": {"translatedText": answer.text}, "responseDetails": None, "responseStatus": 200}


@tmserver.get("/languages/")
async def tm_languages(request: Request) -> dict[str, list[str]]:
    caller = await caller_of(request, counted=False)
    engines = caller.service.engines(caller.access)
    return {
        "sourceLanguages": list(dict.fromkeys(engine.source for engine in engines)),
        "targetLanguages": list(dict.fromkeys(engine.target for engine in engines)),
    }


class AnyText(Convertor[str]):
    """The rest of a path, whatever is in it: Starlette's `path` ends at a line end."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", AnyText())


@tmserver.get("/{source}/{target}/unit/{text:any}")
async def tm_unit(request: Request, source: str, target: str, text: str) -> list[dict[str, Any]]:
    """Pairs of the memories that are similar to a text, the most similar first."""
    caller = await caller_of(request)
    if not text.strip():
        raise BadRequest("Invalid request: missing text")
    caller.service.check_size([text])
    return await asyncio.to_thread(matches, caller, source, target, text)


def matches(caller: Caller, source: str, target: str, text: str) -> list[dict[str, Any]]:
    pair = caller.service.pair(caller.access, source, target)
    view = caller.service.shelf.view(caller.service.scope(caller.access, pair.engine))
    return [
        {
            "source": hit.segment.source,
            "target": hit.segment.target,
            "quality": round(hit.percent),
            "rank": round(hit.percent),
        }
        for hit in view.near(text, least=LEAST_ALIKE, most=5)
    ]
