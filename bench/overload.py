"""More than a server can do, for minutes: right answers, everyone in turn, and no more memory than before.

Clients that wait for their answers cannot ask for more than the server does; there are twice as many of them as a batch
holds. Clients that do not wait can: here they send twice what the server can do, each with a key of its own, and beside
them others ask for one sentence now and then. What cannot be done before the deadline ends with an error that says so.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.clients import Process, Questions, Tally, crowd, sampled, server
from knnmt.service.access import Access, add_api_key

GREEDY, MODEST = 32, 4  # clients that send too much, and that ask for a sentence now and then
PAUSE = 1.0  # seconds between two sentences of a modest client
PATIENCE = 20  # seconds before a request is given up by the server
SAMPLES = 10  # of the memory, over the whole time


def overload(process: Process, clients: int, questions: Questions, minutes: float) -> dict[str, Any]:
    """Clients that wait for their answers."""
    until = time.monotonic() + 60 * minutes
    with sampled(process, 60 * minutes / SAMPLES) as megabytes:
        tally = crowd(process, clients, questions, lambda _: time.monotonic() > until)
    result = {"minutes": minutes, **tally.told(), "megabytes": megabytes}
    Console().print({"clients that wait": result})
    return result


def flood(store: str | None, model: str | None, folder: Path, questions: Questions, rate: float, minutes: float) -> Any:
    """Clients that do not wait, `rate` requests a second together."""
    folder.mkdir()
    names = [f"greedy {number}" for number in range(GREEDY)] + [f"modest {number}" for number in range(MODEST)]
    keys = {name: add_api_key(folder / "keys.json", Access(name=name)) for name in names}
    options = ("--api-keys", str(folder / "keys.json"), "--deadline", str(PATIENCE))
    with server(store, model, folder, *options) as process, sampled(process, 60 * minutes / SAMPLES) as megabytes:
        flooding = Flood(process, questions, keys)
        asyncio.run(flooding.run(rate, 60 * minutes))
    result = {
        "minutes": minutes,
        "requests a second": round(rate, 1),
        "sent": flooding.sent,
        "greedy": flooding.greedy.told(),
        "modest": flooding.modest.told(),
        "megabytes": megabytes,
    }
    Console().print({"clients that do not wait": result})
    return result


class Flood:
    """Requests that are sent at their time, whatever has been answered."""

    def __init__(self, process: Process, questions: Questions, keys: dict[str, str]) -> None:
        self.process, self.questions, self.keys = process, questions, keys
        self.greedy, self.modest = Tally(questions), Tally(questions)
        self.sent = 0

    async def run(self, rate: float, seconds: float) -> None:
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for name in self.keys:
                if name.startswith("modest"):
                    group.create_task(self.now_and_then(name, until))
            await self.pour(group, rate, until)

    async def pour(self, group: asyncio.TaskGroup, rate: float, until: float) -> None:
        begun = time.monotonic()
        while (now := time.monotonic()) < until:
            for _ in range(int((now - begun) * rate) - self.sent):
                group.create_task(self.ask(self.greedy, f"greedy {self.sent % GREEDY}", self.sent // GREEDY))
                self.sent += 1
            await asyncio.sleep(1 / rate)

    async def now_and_then(self, name: str, until: float) -> None:
        turn = 0
        while time.monotonic() < until:
            await self.ask(self.modest, name, turn)
            await asyncio.sleep(PAUSE)
            turn += 1

    async def ask(self, tally: Tally, name: str, turn: int) -> None:
        texts = self.questions.texts
        text = texts[(int(name.split()[1]) + turn) % len(texts)]
        begun = time.perf_counter()
        status, answer = await post(self.process.port, self.keys[name], self.questions.request(text))
        tally.count(name, text, status, answer, time.perf_counter() - begun)


async def post(port: int, key: str, sent: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A request on a connection of its own."""
    body = json.dumps(sent).encode()
    head = f"POST /translate HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\nauthorization: Bearer {key}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    first, _, rest = answer.partition(b"\r\n")
    return int(first.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])
