"""Our own API for memories: search, add, delete, import, export, history."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse, Response

from knnmt.serve.calls import Caller, caller_of
from knnmt.serve.translations import Asked, Metadata, Sentence, sentence
from knnmt.serve.uploads import received, working_folder
from knnmt.service.corrections import OURS, Correction, adding
from knnmt.service.failures import BadRequest, Forbidden, NotFound
from knnmt.service.scopes import both
from knnmt.service.shelf import Engine, Shelved
from knnmt.service.views import SIDES, Shown
from knnmt.store.adding import Added, AddSettings, add_to_store
from knnmt.store.datastore import Store
from knnmt.store.filters import chosen_segments
from knnmt.store.versions import roll_back, versions_of
from knnmt.text.corpus import Corpus, Segment
from knnmt.text.endings import WRITTEN_AS_MEMORY, either_of
from knnmt.text.exporting import write_memory

router = APIRouter(prefix="/v1/memories", tags=["memories"])
EXPORTED: list[Any] = [ending[1:] for ending in WRITTEN_AS_MEMORY]
MOST_FOUND = 200
MOST_ADDED = 1_000


class MemoryInfo(BaseModel):
    name: str
    source: str
    target: str
    model: str
    version: int
    segments: int = Field(description="Number of pairs that the key may see.")
    weight: float = Field(description="Weight relative to other memories.")
    fitted_weight: float | None = Field(description="Weight of the memory in fixed mixing; null with learned mixing.")
    fitted: dict[str, float | bool | str] = Field(description="The settings for requests that name none.")
    role: str = Field(description="The role of the key: translate, correct or admin.")
    whole: bool = Field(description="Whether the key sees the whole memory, as import, history and rollback require.")


class Found(BaseModel):
    segments: list[Sentence]
    next: int | None = Field(description="`after` of the next page; null on the last page.")
    version: int


class NewSegment(Asked):
    source: str
    target: str
    metadata: Metadata = Field(default_factory=dict)


class NewSegments(Asked):
    segments: list[NewSegment] = Field(min_length=1, max_length=MOST_ADDED)
    replace: bool = Field(False, description="Replace pairs with the same source.")


class Version(BaseModel):
    version: int
    changed: str
    change: str
    segments: int
    current: bool


class Rollback(Asked):
    version: int = Field(ge=1)


class Deletion(Asked):
    ids: list[str] = Field(min_length=1, max_length=MOST_ADDED)


class Changed(BaseModel):
    version: int


class Deleted(Changed):
    deleted: int


class AddedSegments(Changed):
    ids: list[str]


class Imported(Changed):
    segments: int
    duplicates: int
    replaced: int
    skipped: dict[str, int]


@router.get("")
async def memories(request: Request) -> list[MemoryInfo]:
    """The memories that the key may see."""
    caller = await caller_of(request)
    known = [(engine, one) for engine, one in caller.service.shelf.stores() if caller.access.sees(one.name)]
    return [await asyncio.to_thread(memory_info, caller, engine, shelved) for engine, shelved in known]


def memory_info(caller: Caller, engine: Engine, shelved: Shelved) -> MemoryInfo:
    view = caller.service.shelf.view(caller.service.scope(caller.access, engine, stores=[shelved.name]))
    shown = view.shown[0]
    return MemoryInfo(
        name=shelved.name,
        source=engine.source,
        target=engine.target,
        model=engine.model.name,
        version=shown.store.manifest.version,
        segments=len(shown.visible),
        weight=shelved.weight,
        fitted_weight=fitted_weight(shown.store),
        fitted=view.told(),
        role=caller.access.role,
        whole=not caller.access.filters,
    )


def fitted_weight(store: Store) -> float | None:
    """As tuned, else as fitted; mixing that is learned has its own for each word."""
    fitted, tuned = store.manifest.mixing, store.manifest.tuned or {}
    known = tuned.get("weight", fitted.how.get("fixed", {}).get("weight") if fitted else None)
    return None if known is None else float(known)


@router.get("/{name}/segments")
async def search(
    request: Request,
    name: str,
    q: Annotated[str, Query(max_length=1_000, description="Text that the pair contains; case is ignored.")] = "",
    side: Annotated[Literal["source", "target", "both"], Query()] = "both",
    filters: Annotated[list[str] | None, Query(alias="filter", description="Such as corpus=house.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_FOUND)] = 50,
    after: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> Found:
    """Pairs that have the text on one side or both, the newest first."""
    caller = await caller_of(request)
    shown = await asyncio.to_thread(shown_to, caller, name, filters or [])
    sides = SIDES if side == "both" else (side,)
    found = await asyncio.to_thread(shown.search, q, sides=sides, limit=limit + 1, after=after)
    return Found(
        segments=[sentence(name, pair) for pair in found[:limit]],
        next=after + limit if len(found) > limit else None,
        version=shown.store.manifest.version,
    )


@router.post("/{name}/segments")
async def add(request: Request, name: str, asked: NewSegments) -> AddedSegments:
    """Add pairs. Translations use them as soon as this is answered."""
    caller = await caller_of(request, role="correct")
    writer = caller.service.writer(caller.access, name)
    filters = caller.access.filters
    pairs = [Correction(one.source, one.target, one.metadata, filters) for one in asked.segments]
    for pair in pairs:
        await asyncio.to_thread(pair.check, writer.engine.model)
    ids, version = await caller.service.changed(writer.submit(adding(pairs, replace=asked.replace)))
    return AddedSegments(ids=ids, version=version)


@router.post("/{name}/segments/delete")
async def delete_several(request: Request, name: str, asked: Deletion) -> Deleted:
    """Remove pairs: all of them or none."""
    caller = await caller_of(request, role="admin")
    return Deleted(**await caller.service.delete(caller.access, name, asked.ids))


@router.delete("/{name}/segments/{identity}")
async def delete_one(request: Request, name: str, identity: str) -> Deleted:
    """Remove a pair."""
    caller = await caller_of(request, role="admin")
    return Deleted(**await caller.service.delete(caller.access, name, [identity]))


@router.get("/{name}/versions")
async def versions(request: Request, name: str) -> list[Version]:
    """The versions that can be restored, the newest first."""
    caller = await caller_of(request, role="admin")
    store = (await asyncio.to_thread(shown_to, all_of(caller), name, [])).store
    kept = await asyncio.to_thread(versions_of, store)
    return [
        Version(
            version=one.version,
            changed=one.changed,
            change=one.change,
            segments=one.segments - (one.removed.segments if one.removed else 0),
            current=one.version == store.manifest.version,
        )
        for one in reversed(kept)
    ]


@router.post("/{name}/rollback")
async def rollback(request: Request, name: str, asked: Rollback) -> Changed:
    """Restore an earlier version, as the newest."""
    caller = all_of(await caller_of(request, role="admin"))
    writer = caller.service.writer(caller.access, name)
    store = await caller.service.changed(writer.submit_task(lambda: roll_back(writer.path, asked.version)))
    return Changed(version=store.manifest.version)


@router.post("/{name}/import", openapi_extra={"requestBody": {"content": {
    "multipart/form-data": {"schema": {"type": "object", "required": ["file"], "properties": {
        "file": {"type": "string", "format": "binary"}, "replace": {"type": "boolean"}}}}}}})  # fmt: skip
async def import_file(request: Request, name: str) -> Imported:
    """Add all pairs of a file in one of the formats of memories. The answer is sent when they are on disk."""
    caller = all_of(await caller_of(request, role="admin"))
    writer = caller.service.writer(caller.access, name)
    upload = caller.fields.get("file")
    if not isinstance(upload, UploadFile):
        raise BadRequest("Invalid request: missing file parameter")
    replacing = str(caller.fields.get("replace", "")).lower() in ("1", "true", "on")
    with working_folder() as folder:
        file = await received(upload, folder, caller.service.limits.upload_bytes)
        model = writer.engine.model
        corpus = await asyncio.to_thread(lambda: Corpus(file, languages=(model.source_lang, model.target_lang)))
        task = importing(writer.path, model, corpus, replacing)
        added: Added = await caller.service.changed(writer.submit_task(task))
    assert added.store is not None
    return Imported(
        version=added.store.manifest.version,
        segments=added.segments,
        duplicates=added.duplicates,
        replaced=added.replaced,
        skipped=added.skipped.counts,
    )


def importing(path: Path, model: Any, corpus: Corpus, replace: bool) -> Callable[[], Added]:
    return lambda: add_to_store(path, model, [corpus], AddSettings(replace=replace))


@router.get("/{name}/export", response_class=Response)
async def export(
    request: Request,
    name: str,
    format: Annotated[str, Query(json_schema_extra={"enum": EXPORTED})] = "tmx",  # noqa: A002
) -> Response:
    """All pairs that the key may see, as a file."""
    caller = await caller_of(request, role="correct")
    if format not in EXPORTED:
        raise BadRequest(f"format: {format!r} is not {either_of(tuple(EXPORTED))}")
    shown = await asyncio.to_thread(shown_to, caller, name, [])
    if not shown.visible:
        raise NotFound("this key sees no pair of this memory")
    folder = tempfile.TemporaryDirectory(prefix="knnmt-export-")
    file = Path(folder.name) / f"{name}.{format}"
    record = shown.store.manifest.model
    languages = (record.source_lang, record.target_lang)
    await asyncio.to_thread(
        lambda: write_memory(file, map(without_undo, chosen_segments(shown.store, shown.filters)), languages)
    )
    return FileResponse(file, filename=file.name, background=BackgroundTask(folder.cleanup))


def without_undo(segment: Segment) -> Segment:
    """Without what only undoing needs."""
    return replace(segment, metadata={name: value for name, value in segment.metadata.items() if name not in OURS})


def all_of(caller: Caller) -> Caller:
    """For what concerns a memory as a whole: a key that sees a part of it cannot do that."""
    if caller.access.filters:
        raise Forbidden("this key sees only a part of the memory")
    return caller


def shown_to(caller: Caller, name: str, filters: list[str]) -> Shown:
    """A memory as the caller may see it, narrowed by filters."""
    for engine, shelved in caller.service.shelf.stores():
        if shelved.name == name and caller.access.sees(name):
            allowed = both(caller.access.filters, filters)
            scope = caller.service.scope(caller.access, engine, stores=[name])
            store = caller.service.shelf.view(scope).shown[0].store
            return Shown(name, store, allowed or (), nothing=allowed is None)
    raise NotFound(f"no memory {name!r}")
