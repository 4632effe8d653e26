"""A server in a process of its own, and clients that ask it and look whether the answers are theirs."""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE = 600  # seconds, so that everything is answered however slow the machine

Until = Callable[[int], bool]


@dataclass(frozen=True)
class Process:
    """A server that is ready."""

    port: int
    pid: int

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def server(store: str | None, model: str | None, folder: Path, *options: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "knnmt", "serve", "--port", "0", "--state", str(folder / "state")]
    command += ["--deadline", str(DEADLINE), *(["--store", f"memory={store}"] if store else [])]
    command += [*(["--model", model] if model else []), *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        while "ready on" not in (text := (folder / "log").read_text()):
            if process.poll() is not None:
                raise RuntimeError(text)
            time.sleep(0.05)
        yield Process(int(text.split("ready on http://127.0.0.1:")[1].split()[0]), process.pid)
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Questions:
    """What clients ask, and the right answers."""

    expected: dict[str, str]  # by text
    source: str
    target: str

    @property
    def texts(self) -> list[str]:
        return list(self.expected)

    def request(self, text: str) -> dict[str, str]:
        return {"q": text, "source": self.source, "target": self.target}


@dataclass
class Tally:
    """What clients saw."""

    questions: Questions
    served: Counter[str] = field(default_factory=Counter)  # by client
    failed: Counter[str] = field(default_factory=Counter)  # by status and message
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    anothers: int = 0  # of the wrong ones, those that are right for another text

    def count(self, client: str, text: str, status: int, answer: dict[str, Any], seconds: float) -> None:
        if status != 200:
            self.failed[f"{status} {answer.get('error')}"] += 1
            return
        self.served[client] += 1
        self.seconds.append(seconds)
        expected, found = self.questions.expected, answer["translatedText"]
        if found != expected[text]:
            self.wrong += 1
            self.anothers += found in expected.values()

    def told(self) -> dict[str, Any]:
        waits = sorted(self.seconds) or [0.0]
        return {
            "clients": len(self.served),
            "answers": sum(self.served.values()),
            "wrong": self.wrong,
            "of another client": self.anothers,
            "failed": dict(self.failed),
            "answers of a client, least and most": [min(self.served.values()), max(self.served.values())],
            "seconds, median and longest": [round(waits[len(waits) // 2], 2), round(waits[-1], 2)],
        }


class Client:
    """One connection, kept open."""

    def __init__(self, process: Process) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=2 * DEADLINE)

    def post(self, path: str, sent: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.connection.request("POST", path, json.dumps(sent), {"content-type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


def work(number: int, process: Process, tally: Tally, until: Until) -> None:
    """A client that asks for one sentence after another."""
    client, texts, turn = Client(process), tally.questions.texts, 0
    while not until(turn):
        text = texts[(number + turn) % len(texts)]
        begun = time.perf_counter()
        status, answer = client.post("/translate", tally.questions.request(text))
        tally.count(str(number), text, status, answer, time.perf_counter() - begun)
        turn += 1


def crowd(process: Process, clients: int, questions: Questions, until: Until) -> Tally:
    """Clients side by side, each until it has enough."""
    tally = Tally(questions)
    threads = [threading.Thread(target=work, args=(number, process, tally, until)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


@contextmanager
def sampled(process: Process, every: float) -> Iterator[list[int]]:
    """Inside, the server's megabytes are written down, at once and again after so many seconds each."""
    found, stop = [round(process.megabytes)], threading.Event()

    def look() -> None:
        while not stop.wait(every):
            found.append(round(process.megabytes))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        found.append(round(process.megabytes))
