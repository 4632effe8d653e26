"""Routes for documents: upload, progress, result, report; in our own API and LibreTranslate's."""

import asyncio

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse, Response

from knnmt.documents.content import plain_text
from knnmt.serve.calls import Caller, Server, caller_of, while_connected
from knnmt.serve.fields import number_in, sent_text
from knnmt.serve.uploads import received
from knnmt.service.failures import ApiError, BadRequest
from knnmt.service.jobs import Job, State, is_doubtful
from knnmt.service.service import AUTO, LanguagePair
from knnmt.units.report import reasons

router = APIRouter(prefix="/v1/documents", tags=["documents"])
libretranslate = APIRouter(tags=["LibreTranslate"])
FORM = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": {
    "type": "object",
    "required": ["file", "target"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "source": {"type": "string", "default": AUTO},
        "target": {"type": "string"},
        "stores": {"type": "array", "items": {"type": "string"}},
        "weight": {"type": "number", "minimum": 0, "maximum": 1},
    },
}}}}}  # fmt: skip
DETECTED_FROM = 20  # units of a document that its language is told by


class DocumentState(BaseModel):
    id: str
    name: str
    source: str
    target: str
    created: str
    state: State
    units: int
    done: int
    exact: int
    flagged: int
    error: str
    result: str


class DoubtfulUnit(BaseModel):
    number: int
    place: str
    source: str
    translation: str
    origin: str
    confidence: float | None
    flags: list[str]


class DocumentReport(BaseModel):
    """Totals, and the units that a person should check, the least certain first."""

    document: DocumentState
    doubtful: list[DoubtfulUnit]


@router.post("", openapi_extra=FORM)
async def upload(request: Request) -> DocumentState:
    """Upload a file. Its translation continues after this answer, and after a restart of the server."""
    caller = await caller_of(request)
    return state_of(await begun(caller))


@router.get("")
async def documents(request: Request) -> list[DocumentState]:
    """The documents of this key, the newest first."""
    caller = await caller_of(request, counted=False)
    return [state_of(job) for job in caller.jobs.of(caller.access)]


@router.get("/{identity}")
async def progress(request: Request, identity: str) -> DocumentState:
    caller = await caller_of(request, counted=False)
    return state_of(caller.jobs.job(identity, caller.access))


@router.get("/{identity}/result", response_class=Response)
async def result(request: Request, identity: str) -> Response:
    """The translated file."""
    caller = await caller_of(request, counted=False)
    return file_of(caller.server, caller.jobs.job(identity, caller.access))


@router.get("/{identity}/report")
async def report(request: Request, identity: str) -> DocumentReport:
    """The report: totals, and the units that a person should check first."""
    caller = await caller_of(request, counted=False)
    job = caller.jobs.job(identity, caller.access)
    return DocumentReport(document=state_of(job), doubtful=await asyncio.to_thread(doubtful, caller, job))


@router.delete("/{identity}")
async def remove(request: Request, identity: str) -> dict[str, bool]:
    """Delete a document and its translation from the server."""
    caller = await caller_of(request, counted=False)
    await asyncio.to_thread(caller.jobs.remove, caller.jobs.job(identity, caller.access))
    return {"removed": True}


@libretranslate.post("/translate_file", openapi_extra=FORM)
async def translate_file(request: Request) -> dict[str, str]:
    """LibreTranslate's API: answered when the file is translated, with the URL of the result."""
    caller = await caller_of(request)
    job = await begun(caller)
    ended = await while_connected(request, asyncio.to_thread(caller.jobs.wait, job.id))
    if ended.state == "failed":
        raise BadRequest(ended.error)
    if ended.state != "done":
        raise ApiError("the server is shutting down; the document goes on when it is back")
    return {"translatedFileUrl": str(request.url_for("download_file", name=f"{job.id}.{job.result}"))}


@libretranslate.get("/download_file/{name}", response_class=Response)
async def download_file(request: Request, name: str) -> Response:
    """The translated file. No key is needed, because its name cannot be guessed."""
    server: Server = request.app.state.server
    await server.service()
    assert server.jobs is not None
    return file_of(server, server.jobs.job(name.partition(".")[0]))


async def begun(caller: Caller) -> Job:
    """A job for the file of a request."""
    fields, jobs = caller.fields, caller.jobs
    upload = fields.get("file")
    if not isinstance(upload, UploadFile):
        raise BadRequest("Invalid request: missing file parameter")
    place = jobs.place()
    try:
        file = await received(upload, place, caller.service.limits.upload_bytes)
        stores = stores_in(caller)
        pair = pair_for(caller, await asyncio.to_thread(jobs.beginning, place, file, DETECTED_FROM), stores)
        weight = number_in(fields, "weight", 0, 1)
        settings = {} if weight is None else {"weight": weight}
        scope = caller.service.scope(caller.access, pair.engine, stores=stores, settings=settings)
        languages = (pair.engine.source, pair.engine.target)
        return await asyncio.to_thread(jobs.add, place, file, caller.access, scope, languages)
    except BaseException:
        jobs.discard(place)
        raise


def stores_in(caller: Caller) -> list[str] | None:
    """The memories that a form names; it can say that none is to be used by an empty one alone."""
    named = caller.fields.get("stores")
    if named is None:
        return None
    return [str(one) for one in (named if isinstance(named, list) else [named]) if one != ""]


def pair_for(caller: Caller, text: str, stores: list[str] | None) -> LanguagePair:
    source, target = sent_text(caller.fields, "source", AUTO), sent_text(caller.fields, "target")
    return caller.service.pair(caller.access, source, target, text, stores)


def state_of(job: Job) -> DocumentState:
    shown = {name: getattr(job, name) for name in DocumentState.model_fields}
    return DocumentState(**shown)


def file_of(server: Server, job: Job) -> Response:
    assert server.jobs is not None
    return FileResponse(server.jobs.result_file(job), filename=job.result, media_type="application/octet-stream")


def doubtful(caller: Caller, job: Job) -> list[DoubtfulUnit]:
    found = [
        DoubtfulUnit(
            number=unit.number,
            place=unit.place.rpartition("/")[2],
            source=plain_text(unit.source),
            translation=plain_text(made.target),
            origin=made.origin,
            confidence=made.confidence,
            flags=reasons(made.flags, made.confidence),
        )
        for unit, made in caller.jobs.results(job)
        if is_doubtful(made)
    ]
    return sorted(found, key=lambda unit: (unit.confidence or 0.0, unit.number))
