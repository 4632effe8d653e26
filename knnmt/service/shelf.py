"""Models and open stores, and the views of them that requests have.

A view is made of stores as they are at one version, and stays so: whoever holds it gets answers of that version alone.
When a store has changed on disk, by this server or by another process, the next request gets a new view.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from knnmt.errors import SettingsError, StoreError
from knnmt.layout.manifest import MANIFEST
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.retrieval.local_retriever import LocalRetriever, SearchedBy
from knnmt.retrieval.memories import Memory, open_memory
from knnmt.service.languages import UNKNOWN, short_code
from knnmt.service.model_thread import ModelThread
from knnmt.service.scopes import Scope
from knnmt.service.views import View, open_view
from knnmt.store.datastore import Store
from knnmt.translate.translator import model_of_store

VIEWS_KEPT = 24  # of one server; each holds masks of what its filters allow
TRIES = 5  # to open stores that are being changed

Signature = tuple[int, int, int]


@dataclass
class Shelved:
    """A store as the server holds it; `store` is what it was when its manifest last looked as `signature` says."""

    name: str
    weight: float
    store: Store
    signature: Signature

    def current(self) -> Store:
        """The store as it is on disk now."""
        signature = stamp_of(self.store.path)
        if signature != self.signature:
            self.store, self.signature = Store.open(self.store.path), signature
        return self.store


@dataclass
class Engine:
    """One model for one pair of languages, with the stores that were made with it."""

    name: str
    model: TranslationModel
    stores: dict[str, Shelved] = field(default_factory=dict)
    thread: ModelThread = field(default_factory=ModelThread)

    @property
    def source_code(self) -> str:
        """As the model writes it: `zho_Hant`."""
        return self.model.source_lang or UNKNOWN

    @property
    def target_code(self) -> str:
        return self.model.target_lang or UNKNOWN

    @property
    def source(self) -> str:
        return short_code(self.model.source_lang)

    @property
    def target(self) -> str:
        return short_code(self.model.target_lang)


class Shelf:
    """Every engine of a server. Threads may share it."""

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        settings: dict[str, float] | None = None,
        searched_by: SearchedBy = LocalRetriever,
    ) -> None:
        self.searched_by = searched_by
        self.engines = {engine.name: engine for engine in engines}
        self.settings = settings or {}  # of every request that does not say otherwise
        self._views: OrderedDict[Scope, tuple[tuple[Signature, ...], View]] = OrderedDict()
        self._lock = threading.RLock()

    def stores(self) -> Iterator[tuple[Engine, Shelved]]:
        for engine in self.engines.values():
            for shelved in engine.stores.values():
                yield engine, shelved

    def view(self, scope: Scope) -> View:
        """What the scope names, as it is now."""
        with self._lock:
            engine = self.engines[scope.engine]
            chosen = [engine.stores[name] for name in scope.stores]
            signatures = tuple(stamp_of(shelved.store.path) for shelved in chosen)
            known = self._views.get(scope)
            if known is None or known[0] != signatures:
                known = (signatures, self._open(engine, chosen, scope))
                self._views[scope] = known
            self._views.move_to_end(scope)
            while len(self._views) > VIEWS_KEPT:
                self._views.popitem(last=False)
            return known[1]

    def _open(self, engine: Engine, chosen: Sequence[Shelved], scope: Scope) -> View:
        for attempt in range(TRIES):
            try:
                memories = [Memory(shelved.current(), shelved.name, shelved.weight) for shelved in chosen]
                given = self.settings | dict(scope.settings)
                return open_view(engine.model, memories, scope.filters, given, self.searched_by)
            except (StoreError, OSError):
                if attempt + 1 == TRIES:
                    raise
        raise AssertionError

    def without_paths(self, message: str) -> str:
        """An error message for a client, without paths of this machine."""
        for _, shelved in self.stores():
            message = message.replace(str(shelved.store.path), shelved.name)
        return message


def stamp_of(path: Path) -> Signature:
    """Identifies a version of a store without reading it: its manifest is replaced, never changed."""
    status = (path / MANIFEST).stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def shelve(
    given: Sequence[str],
    *,
    model: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    settings: dict[str, float] | None = None,
    searched_by: SearchedBy = LocalRetriever,
) -> Shelf:
    """Open stores, as `--store` names them, and load their models; without stores, the model alone."""
    if not given:
        if model is None:
            raise SettingsError("--store or --model is missing")
        loaded = load_model(model, source_lang=source_lang, target_lang=target_lang)
        return Shelf([Engine(engine_name(loaded), loaded)], settings=settings)
    engines: dict[tuple[str, ...], Engine] = {}
    for memory in named(given):
        record = memory.store.manifest.model
        kind = (record.fingerprint, record.key_site, str(record.source_lang), str(record.target_lang))
        if kind not in engines:
            loaded = model_of_store(memory.store, model)
            engines[kind] = Engine(f"{engine_name(loaded)}#{len(engines)}" if engines else engine_name(loaded), loaded)
        signature = stamp_of(memory.store.path)
        engines[kind].stores[memory.name] = Shelved(memory.name, memory.weight, memory.store, signature)
    return Shelf(list(engines.values()), settings=settings, searched_by=searched_by)


def engine_name(model: TranslationModel) -> str:
    return f"{model.name} {short_code(model.source_lang)}-{short_code(model.target_lang)}"


def named(given: Sequence[str]) -> Iterator[Memory]:
    """The stores with unique names that a URL can contain: the given name, else the folder's."""
    seen: dict[str, str] = {}
    for text in given:
        memory = open_memory(text)
        name = Path(memory.name).name or memory.store.path.resolve().name
        if name in seen:
            raise SettingsError(f"--store {text}: {seen[name]} is called {name!r} too; write NAME=FOLDER")
        seen[name] = text
        yield Memory(memory.store, name, memory.weight)
