"""Starts a server, and stops it without losing acknowledged work."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from knnmt.errors import SettingsError
from knnmt.serve.app import make_app
from knnmt.serve.calls import Server
from knnmt.serve.settings import LOOPBACK, ServerSettings
from knnmt.service.access import Access, Gate, KeyFile
from knnmt.service.jobs import Jobs
from knnmt.service.model_thread import in_passing_thread
from knnmt.service.service import Service
from knnmt.service.shelf import Shelf

log = logging.getLogger(__name__)

BACKLOG = 2048
KEEP_ALIVE = 75  # seconds that a connection may be idle: proxies keep theirs about as long


def gate_of(settings: ServerSettings) -> Gate:
    """Without keys: on this machine everything is allowed, to other machines translating alone."""
    keys = KeyFile(settings.api_keys) if settings.api_keys else None
    here = settings.host in LOOPBACK and not settings.public
    return Gate(keys, Access(name="anyone", role="admin" if here else "translate"))


class Draining(uvicorn.Server):
    """Ends at a signal with exit code 0, after the requests that it has."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Running:
    """A server with its socket; `run` returns when it has ended."""

    def __init__(self, load: Callable[[], Shelf], settings: ServerSettings) -> None:
        self.load, self.settings = load, settings
        self.server = Server(settings, gate_of(settings))
        self.failure: Exception | None = None
        self.socket = bound(settings.host, settings.port)
        config = uvicorn.Config(
            make_app(self.server, self.lifespan),
            access_log=False,  # it would write query strings, and texts and keys are in them
            log_level="warning",
            lifespan="on",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=int(settings.limits.deadline) + 5,
        )
        self.uvicorn = Draining(config)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def address(self) -> str:
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        self.uvicorn.run(sockets=[self.socket])
        if self.failure:
            raise self.failure

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG002
        """The port answers at once; the models come when they are loaded."""
        self.server.expect()
        loading = asyncio.create_task(self.get_ready())
        try:
            yield
        finally:
            if not loading.done():
                loading.cancel()
            await asyncio.to_thread(self.server.stop)

    def loaded(self) -> Service:
        service = Service(in_passing_thread(self.load), self.settings.limits)
        service.warm_up()
        return service

    async def get_ready(self) -> None:
        try:
            service = await asyncio.to_thread(self.loaded)
            self.server.serve_with(service, jobs_of(service, state_folder(self.settings, self.port)))
        except Exception as error:
            self.failure = error
            self.uvicorn.should_exit = True
        else:
            print(f"knnmt: ready on {self.address}", file=sys.stderr, flush=True)


def jobs_of(service: Service, state: Path) -> Jobs:
    return Jobs(state / "documents", service.translate_units, list(service.shelf.engines))


def state_folder(settings: ServerSettings, port: int) -> Path:
    """The folder for documents; each server of a machine has its own, named after its port."""
    if settings.state is not None:
        return settings.state
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "knnmt" / str(port)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; that it cannot be had is known before any model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)  # whoever comes while the server starts waits
    except OSError as error:
        raise SettingsError(
            f"--port {port}: cannot listen on {host} ({(error.strerror or str(error)).lower()})"
        ) from error
    return made
