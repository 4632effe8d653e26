"""Changes memories: adds corrections, undoes them, deletes pairs.

Each store has one writer. Changes that wait together become one version of the store, as long as they touch different
sentences. A change is answered when its version is on disk; whatever is translated after that sees it.

A correction's id begins with the hash of its source, so that it is found again without reading every pair. What it
replaced is kept in its own metadata: undoing it needs no other file.
"""

import json
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from knnmt.errors import StoreError
from knnmt.layout.hashes import hash_of
from knnmt.layout.parts import now
from knnmt.models.translation_model import TranslationModel
from knnmt.service.failures import BadRequest, NotFound
from knnmt.service.model_thread import in_passing_thread
from knnmt.service.scopes import completed, meets
from knnmt.service.shelf import Engine, Shelved
from knnmt.service.views import Shown
from knnmt.store.datastore import Store, StoredSegment
from knnmt.store.replacing import check_fits, replace_segments
from knnmt.store.versions import changing
from knnmt.text.corpus import Segment, one_line

log = logging.getLogger(__name__)

CORRECTION, REPLACED = "correction", "replaced"  # names in a corrected pair's metadata
OURS = (CORRECTION, REPLACED)
CORPUS = "corrections"
CHANGES_TOLD, TOLD = 3, 60  # of one version, and characters of each
TOGETHER = 64  # changes that become one version at most
BUSY_FOR = 30.0  # seconds that another process may hold the store
DEPTH = 16  # corrections of one sentence that can be undone one after another
METADATA = (16, 2_000)  # entries, and characters of each, that a caller may give


@dataclass
class Plan:
    """What a change takes out of a store and puts in."""

    old: set[int] = field(default_factory=set)
    new: list[Segment] = field(default_factory=list)
    touches: set[str] = field(default_factory=set)  # sources
    did: str = "changed"  # for the history
    result: Any = None


Planner = Callable[[Store], Plan]


@dataclass
class Change:
    """A waiting change to a store: a plan that may share a version with others, or a separate task."""

    planner: Planner | None = None
    task: Callable[[], Any] | None = None
    done: "Future[Any]" = field(default_factory=Future)


class Writer:
    """The one thread of this server that changes a store."""

    def __init__(self, engine: Engine, shelved: Shelved) -> None:
        self.engine = engine
        self.path, self.name = shelved.store.path, shelved.name
        self._queue: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._left: list[Change] = []  # taken from the queue, but not with the others
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, name=f"writing {shelved.name}", daemon=True)
        self._thread.start()

    def submit(self, planner: Planner) -> "Future[tuple[Any, int]]":
        """Gives the plan's result and the store's version."""
        change = Change(planner)
        self._queue.put(change)
        return change.done

    def submit_task(self, task: Callable[[], Any]) -> "Future[Any]":
        """For what changes the store by itself, such as an import."""
        change = Change(task=task)
        self._queue.put(change)
        return change.done

    def stop(self) -> None:
        """Finish what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while self._left or not self._stopped:
            waiting, self._left = self._left or self._wait(), []
            if waiting and waiting[0].task is not None:
                self._left = waiting[1:]
                perform(waiting[0])
            elif waiting:
                before_task = next((at for at, one in enumerate(waiting) if one.task is not None), len(waiting))
                self._left = [*self._change(waiting[:before_task]), *waiting[before_task:]]

    def _wait(self) -> list[Change]:
        """One change at least, with those that came meanwhile."""
        found = [self._queue.get()]
        while not self._queue.empty() and len(found) < TOGETHER:
            found.append(self._queue.get())
        self._stopped = self._stopped or None in found
        return [one for one in found if one is not None]

    def _change(self, waiting: list[Change]) -> list[Change]:
        """Make one version of as many as go together; returns those that are left."""
        try:
            with opened(lambda: changing(self.path)) as store:
                chosen, plans, left = self._plan(store, waiting)
                version = self.engine.thread.run(partial(self._commit, store, plans))
        except Exception as error:
            return self._failed(waiting, error)
        for change, plan in zip(chosen, plans, strict=True):
            change.done.set_result((plan.result, version))
        return left

    def _failed(self, waiting: list[Change], error: Exception) -> list[Change]:
        """Alone, each may go through."""
        waiting = [change for change in waiting if not change.done.done()]
        if len(waiting) == 1:
            waiting[0].done.set_exception(error)
            return []
        for change in waiting:
            self._change([change])
        return []

    def _plan(self, store: Store, waiting: list[Change]) -> tuple[list[Change], list[Plan], list[Change]]:
        chosen: list[Change] = []
        plans: list[Plan] = []
        left: list[Change] = []
        touched: set[str] = set()
        for change in waiting:
            plan = attempt(change, store)
            if plan is not None and plan.touches & touched:
                left.append(change)
            elif plan is not None:
                chosen.append(change)
                plans.append(plan)
                touched |= plan.touches
        return chosen, plans, left

    def _commit(self, store: Store, plans: list[Plan]) -> int:
        new = [segment for plan in plans for segment in plan.new]
        old = {number for plan in plans for number in plan.old}
        change = "; ".join(map(history_line, plans[:CHANGES_TOLD])) + (" …" if len(plans) > CHANGES_TOLD else "")
        return replace_segments(store, self.engine.model, new=new, old=old, change=change).manifest.version


def history_line(plan: Plan) -> str:
    """A line of the history: what was done, with the beginning of the first sentence."""
    source = min(plan.touches, default="")
    more = f" and {len(plan.touches) - 1} more" if len(plan.touches) > 1 else ""
    return f"{plan.did} “{source[:TOLD]}{'…' if len(source) > TOLD else ''}”{more}"


def attempt(change: Change, store: Store) -> Plan | None:
    """A plan, or an error for its caller: one wrong request must not fail the others."""
    assert change.planner is not None
    try:
        return change.planner(store)
    except Exception as error:
        change.done.set_exception(error)
        return None


def perform(change: Change) -> None:
    assert change.task is not None
    try:
        change.done.set_result(in_passing_thread(change.task))
    except Exception as error:
        change.done.set_exception(error)


class opened:  # noqa: N801 - a context manager, used like a function
    """A store to change; where another process changes it just now, wait for that."""

    def __init__(self, make: Callable[[], AbstractContextManager[Store]]) -> None:
        self.make = make

    def __enter__(self) -> Store:
        until = time.monotonic() + BUSY_FOR
        while True:
            self.inner = self.make()
            try:
                return self.inner.__enter__()
            except StoreError as error:
                if "another process" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def __exit__(self, *what: Any) -> bool | None:
        return self.inner.__exit__(*what)


@dataclass(frozen=True, slots=True)
class Correction:
    """What a caller teaches: this source is to be this target."""

    source: str
    target: str
    metadata: dict[str, str]
    filters: tuple[str, ...] = ()  # of the caller: what it may not see, it does not replace

    def check(self, model: TranslationModel) -> None:
        """Before it waits for its turn: whether it can be learned at all."""
        if not one_line(self.source) or not one_line(self.target):
            raise BadRequest("Invalid request: a correction needs a source and a target")
        most, longest = METADATA
        long = any(len(text) > longest for pair in self.metadata.items() for text in pair)
        if len(self.metadata) > most or long:
            raise BadRequest(f"Invalid request: metadata has more than {most} entries, or {longest} characters in one")
        if set(self.metadata) & set(OURS):
            raise BadRequest(f"Invalid request: metadata cannot be called {' or '.join(OURS)}")
        segment = self.segment(new_id(self.source), [])
        if not meets(self.filters, filtered_fields(segment)):
            raise BadRequest("Invalid request: this key could not see what it taught; its filters do not allow it")
        check_fits([segment], model)

    def segment(self, identity: str, replaced: list[dict[str, Any]]) -> Segment:
        fields = completed(self.filters, self.metadata)
        corpus, created = fields.pop("corpus", CORPUS), now("microseconds")  # two in a second have an order
        fields.pop("created", None)
        fields |= {CORRECTION: identity} | ({REPLACED: json.dumps(replaced, ensure_ascii=False)} if replaced else {})
        return Segment(one_line(self.source), one_line(self.target), corpus, 1, created, fields)

    def plan(self, store: Store) -> Plan:
        identity = new_id(self.source)
        known = Shown("", store, self.filters).with_source(self.source)
        segment = self.segment(identity, [kept(pair) for pair in known])
        return Plan({pair.segment for pair in known}, [segment], {segment.source}, "learned", identity)


def adding(pairs: Sequence[Correction], *, replace: bool) -> Planner:
    """Several pairs at once; without `replace`, other translations of their sources stay."""

    def plan(store: Store) -> Plan:
        whole = Plan(did="added", result=[])
        for pair in pairs:
            one = pair.plan(store)
            whole.old |= one.old if replace else set()
            whole.new += one.new if replace else [pair.segment(one.result, [])]
            whole.touches |= one.touches
            whole.result.append(one.result)
        return whole

    return plan


def new_id(source: str) -> str:
    return f"{hash_of(one_line(source)):016x}{secrets.token_hex(8)}"


def filtered_fields(segment: Segment) -> dict[str, str]:
    """What filters look at."""
    return {**segment.metadata, "corpus": segment.corpus, "created": segment.created}


def kept(pair: StoredSegment, depth: int = 0) -> dict[str, Any]:
    """A replaced pair, with what that one had replaced."""
    metadata: dict[str, Any] = dict(pair.metadata)
    if REPLACED in metadata:
        metadata[REPLACED] = shallow(json.loads(metadata[REPLACED]), depth + 1)
    return {"source": pair.source, "target": pair.target, "corpus": pair.corpus, "created": pair.created,
            "metadata": metadata}  # fmt: skip


def shallow(records: list[dict[str, Any]], depth: int) -> list[dict[str, Any]]:
    """The same without older history, so that a sentence that is corrected every day does not grow."""
    if depth >= DEPTH:
        return []
    for record in records:
        if REPLACED in record["metadata"]:
            record["metadata"][REPLACED] = shallow(record["metadata"][REPLACED], depth + 1)
    return records


def restored(record: dict[str, Any]) -> Segment:
    metadata = dict(record["metadata"])
    if REPLACED in metadata:
        metadata[REPLACED] = json.dumps(metadata[REPLACED], ensure_ascii=False)
    return Segment(record["source"], record["target"], record["corpus"], 1, record["created"], metadata)


def undo(identity: str, filters: tuple[str, ...]) -> Planner:
    """Take a correction back: it goes out, and what it replaced comes in again."""

    def plan(store: Store) -> Plan:
        shown = Shown("", store, filters)
        numbers = [number for number in hashed(store, 0, identity[:16]) if number in shown.visible]
        found = [pair for pair in store.segments_at(np.array(numbers, np.int64))
                 if pair.metadata.get(CORRECTION) == identity]  # fmt: skip
        if not found:
            raise NotFound("no such correction; it may have been undone or replaced")
        before = [restored(record) for record in json.loads(found[0].metadata.get(REPLACED, "[]"))]
        return Plan({found[0].segment}, before, {found[0].source}, "undone", found[0])

    return plan


def segment_id(pair: StoredSegment) -> str:
    """A name for a pair that outlives renumbering: the hash of its text, and its number as a hint."""
    return f"{hash_of(f'{pair.source}{chr(10)}{pair.target}'):016x}-{pair.segment}"


def delete(identities: list[str], filters: tuple[str, ...]) -> Planner:
    """Take pairs out; one that is not there any more, or not to be seen, is an error."""

    def plan(store: Store) -> Plan:
        shown = Shown("", store, filters)
        chosen = Plan(did="deleted", result=len(identities))
        for identity in identities:
            digest, _, hint = identity.partition("-")
            there = [number for number in hashed(store, 1, digest) if number in shown.visible]
            there = [number for number in there if number not in chosen.old]
            if not there:
                raise NotFound(f"no such segment: {identity[:40]}")
            best = next((number for number in there if str(number) == hint), there[0])
            chosen.old.add(best)
            chosen.touches.add(store.segment(best).source)
        return chosen

    return plan


def hashed(store: Store, column: int, digest: str) -> list[int]:
    """Segments with that hash of the source (column 0) or of the pair (1), ascending, the removed ones too."""
    try:
        return store.suspects(int(digest, 16), pair=column == 1)
    except (ValueError, OverflowError):
        return []
