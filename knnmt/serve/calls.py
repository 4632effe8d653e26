"""One call: its caller, its fields, and whether the client is still connected."""

import asyncio
import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request

from knnmt.serve.fields import Fields, key_in, sent_fields
from knnmt.serve.settings import LOOPBACK, ServerSettings, host_in
from knnmt.service.access import Access, Gate
from knnmt.service.answers import Answer, Task
from knnmt.service.failures import ApiError, TooLate
from knnmt.service.jobs import Jobs
from knnmt.service.service import Service

Result = TypeVar("Result")

STRANGER = Access(name="anyone without a key")
BOUNDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)  # seconds

log = logging.getLogger(__name__)


class HungUp(ApiError):  # noqa: N818 - named for what happened
    """The client has disconnected, so nobody reads this answer."""

    status = 400


@dataclass
class Metrics:
    """Counts of what has been answered: routes, methods and statuses; never a text, a key or an address."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # by method, route and status
    seconds: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[method, route, status] += 1
            self.seconds[bisect_left(BOUNDS, seconds)] += 1
            self.total += seconds


@dataclass
class Server:
    """What all calls share. The service is there when its models are loaded."""

    settings: ServerSettings
    gate: Gate
    _service: "asyncio.Future[Service] | None" = field(default=None)
    ready: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    jobs: Jobs | None = None

    async def service(self) -> Service:
        """Waits for the models: a client that comes too early is served late, not turned away."""
        assert self._service is not None
        try:
            return await asyncio.wait_for(asyncio.shield(self._service), self.settings.limits.deadline)
        except TimeoutError as error:
            raise TooLate("the model is still being loaded") from error

    def expect(self) -> None:
        self._service = asyncio.get_running_loop().create_future()

    def serve_with(self, service: Service, jobs: Jobs) -> None:
        assert self._service is not None
        self.jobs = jobs
        self._service.set_result(service)
        self.ready = True

    def stop(self) -> None:
        """Finish the current work; document jobs continue when the server is started again."""
        if self.jobs is not None and self._service is not None:
            self.jobs.stop()
            self._service.result().stop()


@dataclass(frozen=True)
class Caller:
    request: Request
    fields: Fields
    access: Access
    service: Service

    @property
    def client(self) -> str:
        """The client for fair scheduling: the key; without keys, the machine, or on this machine the connection."""
        if self.server.gate.keys is not None:
            return f"key {self.access.name}"
        host, port = self.request.client or ("", 0)
        return f"{host} {port}" if host in LOOPBACK else host

    @property
    def server(self) -> Server:
        found: Server = self.request.app.state.server
        return found

    @property
    def jobs(self) -> Jobs:
        assert self.server.jobs is not None
        return self.server.jobs

    async def translate(self, task: Task, texts: Sequence[str]) -> list[Answer]:
        answers = await while_connected(self.request, self.service.translate(task, texts, client=self.client))
        if self.server.settings.log_texts:
            for answer in answers:
                log.info("%r → %r", answer.source, answer.text)
        return answers


async def caller_of(request: Request, *, role: str = "translate", counted: bool = True, anyone: bool = False) -> Caller:
    """Read the request and check its key. With `anyone`, no key is needed, but a wrong key is refused."""
    server: Server = request.app.state.server
    fields = await sent_fields(request)
    key = key_in(request, fields)
    access = STRANGER if anyone and not key else server.gate.admit(key, counted=counted, elsewhere=elsewhere(request))
    access.need(role)
    return Caller(request, fields, access, await server.service())


def elsewhere(request: Request) -> str | None:
    """The address of a caller that is not on this machine, or that comes through a proxy under another name."""
    address = request.client.host if request.client else ""
    here = address in LOOPBACK and host_in(request.headers.get("host", "")) in LOOPBACK
    return None if here else address


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """The result; where the client hangs up before, the work is cancelled, and its place in the queue is free."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HungUp("the client has gone")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
