"""Serving: many clients against one batch of the library, one client against one sentence, overload, corrections.

The server is a process of its own; clients are threads of this one, over loopback. Every answer is compared with the
library's, so that a wrong one, or one to the wrong client, is counted.
"""

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.joining import joining
from knnmt import Store, Translator, build_store, load_model
from knnmt.cli.demo import MODEL, demo_corpus, read_demo
from knnmt.store.replacing import rehearse
from knnmt.translate.units import UnitTranslator

CLIENTS = 32
WARM = 2
ROUNDS = 6  # of every client


@dataclass
class Tally:
    """What clients saw."""

    served: Counter[int] = field(default_factory=Counter)  # by client
    wrong: int = 0
    failed: Counter[int] = field(default_factory=Counter)  # by status
    seconds: list[float] = field(default_factory=list)


def serving(minutes: float, model: str | None, stores: Sequence[str], learned: int) -> dict[str, Any]:
    """All of it, as tables."""
    with tempfile.TemporaryDirectory() as folder:
        store = stores[0] if stores else str(demo_store(Path(folder)))
        translator = Translator.from_store(store, model=model)
        texts = [pair.source for pair in read_demo("test")][:CLIENTS]
        expected = expectations(translator, texts)
        with server(store, model, Path(folder)) as process:
            results = compared(process, translator, texts, expected)
            results["joining"] = joining(translator, texts)
            results["overload"] = overload(process, texts, expected, minutes)
            results["corrections"] = corrections(process, translator, learned)
    return results


def demo_store(folder: Path) -> Path:
    store: Store = build_store(folder / "memory", load_model(MODEL), [demo_corpus("memory")])
    return store.path


def expectations(translator: Translator, texts: Sequence[str]) -> dict[str, str]:
    """The library's own answers, known sentences and placeholders treated as the server treats them."""
    from knnmt.documents.content import DocumentUnit, plain_text

    units = [DocumentUnit(number, (text,), "") for number, text in enumerate(texts, start=1)]
    results = UnitTranslator(translator).translate(units)
    return {text: plain_text(result.target) for text, result in zip(texts, results, strict=True)}


@dataclass
class Process:
    port: int
    pid: int

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def server(store: str, model: str | None, folder: Path) -> Iterator[Process]:
    command = [sys.executable, "-m", "knnmt", "serve", "--store", f"memory={store}", "--port", "0"]
    command += ["--state", str(folder / "state"), "--deadline", "600", *(["--model", model] if model else [])]
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


class Client:
    """One connection, kept open."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def post(self, path: str, sent: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.connection.request("POST", path, json.dumps(sent), {"content-type": "application/json"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def translate(self, text: str) -> tuple[int, str | None]:
        status, answer = self.post("/translate", {"q": text, "source": "de", "target": "en"})
        return status, answer.get("translatedText")


def work(number: int, port: int, texts: Sequence[str], expected: dict[str, str], tally: Tally, until: Any) -> None:
    """A client that asks for one sentence after another."""
    client = Client(port)
    for turn in range(1_000_000):
        if until(turn):
            return
        text = texts[(number + turn) % len(texts)]
        begun = time.perf_counter()
        status, found = client.translate(text)
        tally.seconds.append(time.perf_counter() - begun)
        tally.served[number] += 1
        tally.wrong += status == 200 and found != expected[text]
        if status != 200:
            tally.failed[status] += 1


def crowd(process: Process, clients: int, texts: Sequence[str], expected: dict[str, str], until: Any) -> Tally:
    tally = Tally()
    threads = [
        threading.Thread(target=work, args=(number, process.port, texts, expected, tally, until))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def compared(
    process: Process, translator: Translator, texts: Sequence[str], expected: dict[str, str]
) -> dict[str, Any]:
    """Library and server in turn, so that both have the machine's good and bad moments."""
    crowd(process, CLIENTS, texts, expected, lambda turn: turn >= WARM)
    translator.translate(texts)
    speeds: dict[str, list[float]] = {"library": [], "server": []}
    for _ in range(3):
        speeds["library"].append(rate(lambda: translator.translate(texts), len(texts)))
        whole = CLIENTS * ROUNDS
        speeds["server"].append(
            rate(lambda: crowd(process, CLIENTS, texts, expected, lambda turn: turn >= ROUNDS), whole)
        )
    alone = latencies(process, translator, texts)
    result = {
        "sentences_a_second": {name: statistics.median(values) for name, values in speeds.items()},
        "milliseconds": {name: 1000 * statistics.median(values) for name, values in alone.items()},
    }
    show(result)
    return result


def rate(run: Any, sentences: int) -> float:
    begun = time.perf_counter()
    run()
    return sentences / (time.perf_counter() - begun)


def latencies(process: Process, translator: Translator, texts: Sequence[str]) -> dict[str, list[float]]:
    client = Client(process.port)
    found: dict[str, list[float]] = {"library": [], "server": []}
    for text in texts:
        found["library"].append(1 / rate(partial(translator.translate, [text]), 1))
        found["server"].append(1 / rate(partial(client.translate, text), 1))
    return found


def overload(process: Process, texts: Sequence[str], expected: dict[str, str], minutes: float) -> dict[str, Any]:
    """Twice as many clients as a batch holds, all the time."""
    before, until = process.megabytes, time.monotonic() + 60 * minutes
    tally = crowd(process, 2 * CLIENTS, texts, expected, lambda _: time.monotonic() > until)
    result = {
        "minutes": minutes,
        "answers": sum(tally.served.values()),
        "wrong": tally.wrong,
        "failed": dict(tally.failed),
        "served_least": min(tally.served.values()),
        "served_most": max(tally.served.values()),
        "seconds_longest": max(tally.seconds),
        "megabytes_before": before,
        "megabytes_after": process.megabytes,
    }
    Console().print(result)
    return result


def corrections(process: Process, translator: Translator, count: int) -> dict[str, float]:
    """Milliseconds from sending a correction to its answer, and of the forward pass that is in it."""
    client = Client(process.port)
    seconds = [learning(client, number) for number in range(count)]
    passes = [1 / rate(partial(rehearse, translator.translation_model), 1) for _ in range(20)]
    some = min(100, count)
    measured = {
        "first": seconds[0],
        f"median of the first {some}": statistics.median(seconds[:some]),
        f"median of the last {some}": statistics.median(seconds[-some:]),
        "last": seconds[-1],
        "longest": max(seconds),
        "forward pass": statistics.median(passes),
    }
    result = {"count": float(count)} | {name: 1000 * value for name, value in measured.items()}
    Console().print({"corrections, milliseconds": result})
    return result


def learning(client: Client, number: int) -> float:
    """Seconds of one correction."""
    begun = time.perf_counter()
    sent = {"text": f"Das ist der Satz {number}.", "correction": f"Sentence {number}."}
    status, answer = client.post("/v1/corrections", sent)
    assert status == 200, answer
    return time.perf_counter() - begun


def show(result: dict[str, Any]) -> None:
    table = Table("", "library", "server", "ratio")
    rows = {f"sentences/s, {CLIENTS} clients": "sentences_a_second", "ms, one client": "milliseconds"}
    for label, name in rows.items():
        library, served = result[name]["library"], result[name]["server"]
        table.add_row(label, f"{library:.1f}", f"{served:.1f}", f"{served / library:.2f}")
    Console().print(table)
