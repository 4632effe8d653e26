"""Servers for tests: the application on the embedded model and copies of small stores, without a network."""

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from knnmt.models.translation_model import TranslationModel
from knnmt.serve.app import make_app
from knnmt.serve.calls import Server
from knnmt.serve.running import Running, gate_of, jobs_of
from knnmt.serve.settings import ServerSettings
from knnmt.service.service import Service
from knnmt.service.shelf import Engine, Shelf, Shelved, engine_name, stamp_of
from knnmt.store.datastore import Store

BASE = "http://127.0.0.1:5000"


def shelf_of(model: TranslationModel, stores: Sequence[tuple[str, Path]]) -> Shelf:
    engine = Engine(engine_name(model), model)
    for name, path in stores:
        engine.stores[name] = Shelved(name, 1.0, Store.open(path), stamp_of(path))
    return Shelf([engine])


@contextmanager
def serving(
    model: TranslationModel, stores: Sequence[tuple[str, Path]] = (), settings: ServerSettings | None = None
) -> Iterator[TestClient]:
    """A client of a server that is ready."""
    settings = settings or ServerSettings()
    server = Server(settings, gate_of(settings))
    with TestClient(make_app(server), base_url=BASE, raise_server_exceptions=False, client=("127.0.0.1", 1)) as client:
        service = Service(shelf_of(model, stores), settings.limits)
        with tempfile.TemporaryDirectory() as folder:
            jobs = jobs_of(service, settings.state or Path(folder))
            client.portal.call(server.serve_with, service, jobs)  # type: ignore[union-attr]
            try:
                yield client
            finally:
                server.stop()


def copied(store: Store, folder: Path) -> Path:
    """A store of its own, to be changed."""
    return Path(shutil.copytree(store.path, folder))


@contextmanager
def listening(
    model: TranslationModel, stores: Sequence[tuple[str, Path]], folder: Path, **settings: Any
) -> Iterator[Running]:
    """A server on a port of this machine, in threads of this process."""
    running = Running(lambda: shelf_of(model, stores), ServerSettings(port=0, state=folder, **settings))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.server.ready and thread.is_alive():
            time.sleep(0.01)
        yield running
    finally:
        running.uvicorn.should_exit = True
        thread.join()
