"""The service that all HTTP APIs call: texts of a caller in, answers out."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from knnmt.documents.content import DocumentUnit, UnitResult, plain_text
from knnmt.service.access import Access
from knnmt.service.answers import Answer, Task, answered, split_lines, together
from knnmt.service.corrections import Correction, Writer, delete, undo
from knnmt.service.failures import BadRequest, NotFound, TooLate
from knnmt.service.languages import detect, distance, identifier, language_name
from knnmt.service.limits import Limits
from knnmt.service.scheduling import Scheduler, Work
from knnmt.service.scopes import Scope, both
from knnmt.service.shelf import Engine, Shelf
from knnmt.store.replacing import rehearse

AUTO = "auto"
OUTSIDE = 0.05  # seconds between two looks at a full queue
EVERYTHING = Access(name="", role="admin")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """The languages that a request means."""

    engine: Engine
    detected: tuple[str, float] | None = None  # where the client left it to us


class Service:
    """Translations for callers, over a shelf of models and stores."""

    def __init__(self, shelf: Shelf, limits: Limits | None = None) -> None:
        self.shelf = shelf
        self.limits = limits or Limits()
        self.characters = 0  # of all requests that wait
        self.schedulers = {name: Scheduler(name, self._decode) for name in shelf.engines}
        self.writers = {shelved.name: Writer(engine, shelved) for engine, shelved in shelf.stores()}

    def warm_up(self) -> None:
        """Run every model once and load the language detection, so that the first request does not wait for it."""
        identifier()
        for engine in self.shelf.engines.values():
            engine.thread.run(partial(self._rehearse, engine))

    def _rehearse(self, engine: Engine) -> None:
        self.shelf.view(self.scope(EVERYTHING, engine)).translator.translate(["."])
        rehearse(engine.model)

    def stop(self) -> None:
        for scheduler in self.schedulers.values():
            scheduler.stop()
        for writer in self.writers.values():
            writer.stop()
        for engine in self.shelf.engines.values():
            engine.thread.stop()

    # Languages

    def languages(self, access: Access) -> list[dict[str, Any]]:
        """Source languages with their targets, as LibreTranslate lists them; targets alone are listed too."""
        pairs = [(engine.source, engine.target) for engine in self.engines(access)]
        codes = dict.fromkeys([source for source, _ in pairs] + [target for _, target in pairs])
        return [
            {
                "code": code,
                "name": language_name(code),
                "targets": list(dict.fromkeys(t for s, t in pairs if s == code)),
            }
            for code in codes
        ]

    def engines(self, access: Access, stores: Sequence[str] | None = None) -> list[Engine]:
        """Those that the caller may use, with a store that it sees or without any; first those with a named store."""
        allowed = [
            engine
            for engine in self.shelf.engines.values()
            if not engine.stores or access.stores is None or any(access.sees(name) for name in engine.stores)
        ]
        return sorted(allowed, key=lambda engine: not set(stores or ()) & set(engine.stores))

    def pair(
        self, access: Access, source: str, target: str, text: str = "", stores: Sequence[str] | None = None
    ) -> LanguagePair:
        """The engine for two languages as a client writes them; of several, one with a store that is asked for."""
        engines = self.engines(access, stores)
        fitting = nearest_first(engines, target, lambda engine: engine.target_code)
        if not fitting:
            raise BadRequest(f"{target} is not supported")
        if source.lower() == AUTO:
            likely = detect(text, [engine.source for engine in fitting]) if text.strip() else []
            code, share = likely[0] if likely else ("", 0.0)
            best = next((engine for engine in fitting if engine.source == code), fitting[0])
            return LanguagePair(best, (best.source, share))
        known = nearest_first(fitting, source, lambda engine: engine.source_code)
        if not known:
            unknown = not nearest_first(engines, source, lambda engine: engine.source_code)
            pair = f"{language_name(source)} ({source}) to {language_name(target)} ({target})"
            raise BadRequest(f"{source if unknown else pair} is not supported")
        return LanguagePair(known[0])

    # Scopes

    def scope(
        self,
        access: Access,
        engine: Engine,
        *,
        stores: Sequence[str] | None = None,
        filters: Sequence[str] = (),
        settings: dict[str, float] | None = None,
    ) -> Scope:
        """What the caller may see of what it asks for; a store that it may not see is as one that is not there.

        Stores of other languages have no part: whoever names all that it uses need not know which go together.
        """
        there = {shelved.name for _, shelved in self.shelf.stores() if access.sees(shelved.name)}
        for name in stores or ():
            if name not in there:
                raise NotFound(f"no memory {name!r}")
        chosen = tuple(name for name in engine.stores if name in there and (stores is None or name in stores))
        given = tuple(sorted((settings or {}).items()))
        allowed = both(access.filters, filters)
        return Scope(engine.name, chosen if allowed is not None else (), allowed or (), given)

    # Translating

    def check_size(self, texts: Sequence[str]) -> None:
        total = sum(map(len, texts))
        if total > self.limits.characters:
            raise BadRequest(f"Invalid request: request ({total}) exceeds text limit ({self.limits.characters})")
        if len(texts) > self.limits.texts:
            raise BadRequest(f"Invalid request: request ({len(texts)}) exceeds batch limit ({self.limits.texts})")

    async def translate(self, task: Task, texts: Sequence[str], *, client: str) -> list[Answer]:
        """Answers in the order of the texts. Cancelled, it takes back what has not begun."""
        parts = [split_lines(text) for text in texts]
        works = [Work(part, task, client, self.deadline()) for some in parts for part in some]
        done = iter(await self._done(task, works))
        return [together(text, [next(done) for _ in some]) for text, some in zip(texts, parts, strict=True)]

    def deadline(self) -> float:
        return time.monotonic() + self.limits.deadline

    async def _done(self, task: Task, works: list[Work]) -> list[Answer]:
        try:
            async with asyncio.timeout(self.limits.deadline), self._room(sum(len(work.text) for work in works)):
                return await self._queued(task, works)
        except TimeoutError as error:
            raise TooLate("not translated before the deadline; the server is busy") from error

    async def _queued(self, task: Task, works: list[Work]) -> list[Answer]:
        self.schedulers[task.scope.engine].submit(works)
        waiting = [asyncio.wrap_future(work.done) for work in works]
        try:
            return list(await asyncio.gather(*waiting))
        finally:
            for future in waiting:
                future.cancel()

    @asynccontextmanager
    async def _room(self, size: int) -> AsyncIterator[None]:
        """The queue is bounded: what comes when it is full waits outside, as long as its deadline allows."""
        while self.characters and self.characters + size > self.limits.waiting_characters:
            await asyncio.sleep(OUTSIDE)
        self.characters += size
        try:
            yield
        finally:
            self.characters -= size

    def translate_units(self, scope: Scope, client: str, units: Sequence[DocumentUnit]) -> list[UnitResult]:
        """Units of a document, for a thread that waits for them however long it takes."""
        task = Task(scope, of_document=True)
        works = [Work(plain_text(unit.source), task, client, math.inf, unit) for unit in units]
        self.schedulers[scope.engine].submit(works)
        return [work.done.result() for work in works]

    def _decode(self, task: Hashable, works: Sequence[Work]) -> Sequence[Any]:
        """The texts of one batch, all with one version of each store."""
        assert isinstance(task, Task)
        return self.shelf.engines[task.scope.engine].thread.run(partial(self._decoded, task, works))

    def _decoded(self, task: Task, works: Sequence[Work]) -> Sequence[Any]:
        view = self.shelf.view(task.scope)
        if task.of_document:
            return view.units[True].translate([work.unit for work in works])
        return answered(view, task, [work.text for work in works])

    # Changing memories

    def writer(self, access: Access, name: str) -> Writer:
        if name not in self.writers or not access.sees(name):
            raise NotFound(f"no memory {name!r}")
        return self.writers[name]

    async def learn(self, access: Access, engine: Engine, name: str | None, correction: Correction) -> dict[str, Any]:
        """Answered when it is on disk; whatever is translated from then on sees it."""
        seen = [one for one in engine.stores if access.sees(one)]
        if not seen:
            raise BadRequest("there is no memory to learn into; start the server with --store")
        store = seen[0] if name is None else name
        if store not in seen:
            raise NotFound(f"no memory {store!r} for these languages")
        await asyncio.to_thread(correction.check, engine.model)
        identity, version = await self.changed(self.writers[store].submit(correction.plan))
        return {"id": identity, "store": store, "version": version}

    async def undo(self, access: Access, identity: str) -> dict[str, Any]:
        for name, writer in self.writers.items():
            if access.sees(name):
                try:
                    pair, version = await self.changed(writer.submit(undo(identity, access.filters)))
                except NotFound:
                    continue
                return {"id": identity, "store": name, "version": version, "source": pair.source}
        raise NotFound("no such correction; it may have been undone or replaced")

    async def delete(self, access: Access, name: str, identities: list[str]) -> dict[str, Any]:
        planner = delete(identities, access.filters)
        deleted, version = await self.changed(self.writer(access, name).submit(planner))
        return {"deleted": deleted, "version": version}

    async def changed(self, done: "Future[Result]") -> Result:
        """A change is not taken back when its caller hangs up: it may be on disk already."""
        return await asyncio.shield(asyncio.wrap_future(done))


def nearest_first(engines: Sequence[Engine], wanted: str, code: Callable[[Engine], str]) -> list[Engine]:
    """Those of a language, first those of its very region or script."""
    found = [(distance(wanted, code(engine)), engine) for engine in engines]
    fitting = [(far, engine) for far, engine in found if far is not None]
    return [engine for _, engine in sorted(fitting, key=lambda one: one[0])]
