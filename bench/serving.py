"""Serving: many clients against one batch of the library, one client against one sentence, overload, corrections.

The server is a process of its own; clients are threads of this one, over loopback. Every answer is compared with the
library's, so that a wrong one, or one to the wrong client, is counted.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.clients import Client, Process, Questions, crowd, server
from bench.joining import joining
from bench.overload import flood, overload
from knnmt import Store, Translator, build_store, load_model
from knnmt.cli.demo import MODEL, demo_corpus, read_demo
from knnmt.service.languages import short_code
from knnmt.store.replacing import rehearse
from knnmt.translate.unit_translator import UnitTranslator

CLIENTS = 32
WARM = 2
ROUNDS = 6  # of every client


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served and asked, and for how long. Neither store nor model: the demo's memory."""

    store: str | None
    model: str | None
    source: Path | None  # a sentence a line; the demo's test sentences where there is none
    minutes: float  # of overload by clients that wait for their answers
    flood: float  # minutes of overload by clients that do not
    corrections: int


def serving(plan: Served) -> dict[str, Any]:
    """All of it, as tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = plan.store or (None if plan.model else str(demo_store(folder)))
        translator = translator_of(store, plan.model)
        questions = asked(translator, sentences(plan.source))
        with server(store, plan.model, folder) as process:
            results = compared(process, translator, questions)
            results["joining"] = joining(translator, questions.texts)
            if plan.minutes:
                results["overload"] = overload(process, 2 * CLIENTS, questions, plan.minutes)
        if plan.flood:
            most = 2 * results["sentences_a_second"]["server"]
            results["flood"] = flood(store, plan.model, folder / "flood", questions, most, plan.flood)
        if plan.corrections and store:  # last: they change what is translated
            with server(store, plan.model, folder) as process:
                results["corrections"] = corrections(process, translator, plan.corrections)
    return results


def demo_store(folder: Path) -> Path:
    store: Store = build_store(folder / "memory", load_model(MODEL), [demo_corpus("memory")])
    return store.path


def translator_of(store: str | None, model: str | None) -> Translator:
    return Translator.from_store(store, model=model) if store else Translator(load_model(str(model)), None)


def sentences(source: Path | None) -> list[str]:
    lines = source.read_text(encoding="utf-8").splitlines() if source else [one.source for one in read_demo("test")]
    return list(dict.fromkeys(filter(str.strip, lines)))[:CLIENTS]


def asked(translator: Translator, texts: list[str]) -> Questions:
    """With the library's own answers, known sentences and placeholders treated as the server treats them."""
    from knnmt.documents.content import DocumentUnit, plain_text

    units = [DocumentUnit(number, (text,), "") for number, text in enumerate(texts, start=1)]
    results = UnitTranslator(translator).translate(units)
    expected = {text: plain_text(result.target) for text, result in zip(texts, results, strict=True)}
    model = translator.translation_model
    return Questions(expected, short_code(model.source_lang), short_code(model.target_lang))


def compared(process: Process, translator: Translator, questions: Questions) -> dict[str, Any]:
    """Library and server in turn, so that both have the machine's good and bad moments."""
    texts = questions.texts
    crowd(process, CLIENTS, questions, lambda turn: turn >= WARM)
    translator.translate(texts)
    speeds: dict[str, list[float]] = {"library": [], "server": []}
    for _ in range(3):
        speeds["library"].append(rate(lambda: translator.translate(texts), len(texts)))
        whole = CLIENTS * ROUNDS
        speeds["server"].append(rate(lambda: crowd(process, CLIENTS, questions, lambda turn: turn >= ROUNDS), whole))
    alone = latencies(process, translator, questions)
    result = {
        "sentences_a_second": {name: statistics.median(values) for name, values in speeds.items()},
        "milliseconds": {name: 1000 * statistics.median(values) for name, values in alone.items()},
    }
    show(result)
    return result


def rate(run: Any, count: int) -> float:
    begun = time.perf_counter()
    run()
    return count / (time.perf_counter() - begun)


def latencies(process: Process, translator: Translator, questions: Questions) -> dict[str, list[float]]:
    client = Client(process)
    found: dict[str, list[float]] = {"library": [], "server": []}
    for text in questions.texts:
        found["library"].append(1 / rate(partial(translator.translate, [text]), 1))
        found["server"].append(1 / rate(partial(client.post, "/translate", questions.request(text)), 1))
    return found


def corrections(process: Process, translator: Translator, count: int) -> dict[str, float]:
    """Milliseconds from sending a correction to its answer, and of the forward pass that is in it."""
    client = Client(process)
    seconds = [learning(client, number) for number in range(count)]
    passes = [1 / rate(partial(rehearse, translator.translation_model), 1) for _ in range(20)]
    some = min(100, count)
    ordered = sorted(seconds)
    measured = {
        "first": seconds[0],
        f"median of the first {some}": statistics.median(seconds[:some]),
        f"median of the last {some}": statistics.median(seconds[-some:]),
        "last": seconds[-1],
        "99 of 100 below": ordered[int(0.99 * (count - 1))],
        "longest": ordered[-1],
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
