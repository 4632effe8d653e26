"""Where the time of translating goes: the decoder, its projection, the caches, the search, the mixing, and the rest."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from bench.systems import ONE_BATCH
from knnmt import Translator
from knnmt.engine.compiled import CompiledDecoder
from knnmt.engine.marian import MarianDecoder
from knnmt.engine.network_decoder import NetworkDecoder
from knnmt.engine.projection import AllLogits, LogitsByRows, Projection
from knnmt.engine.stepping import Stepper
from knnmt.mixing.fixed import FixedMixer
from knnmt.mixing.head_mixer import HeadMixer
from knnmt.mixing.mixture import Mixture
from knnmt.retrieval.local_retriever import LocalRetriever, StoreSearcher
from knnmt.retrieval.searchers import IndexedEntries

# What belongs to a phase; time spent in a later row inside an earlier one is counted for the later one only.
PHASES: dict[str, list[tuple[Any, str]]] = {
    "encoder": [(Stepper, "begin")],
    "decoder layers": [(NetworkDecoder, "run"), (MarianDecoder, "step"), (CompiledDecoder, "step")],
    "projection": [
        (Projection, "exactly"), (AllLogits, "rank"), (AllLogits, "at"), (LogitsByRows, "rank"), (LogitsByRows, "at"),
    ],
    "caches reordered, sentences dropped": [(Stepper, "keep")],
    "search, other": [(LocalRetriever, "search")],
    "search: clusters and codes": [(IndexedEntries, "search_index")],
    "search: distances from keys": [(IndexedEntries, "distances_by_keys")],
    "values looked up": [(StoreSearcher, "with_tokens")],
    "mixing": [(Mixture, "best"), (FixedMixer, "mixture"), (HeadMixer, "mixture"), (HeadMixer, "asks")],
}  # fmt: skip
REST = "beam bookkeeping, tokenizer, Python"


class Clock:
    """Time by phase, each moment counted once: for the innermost phase that is running."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.running: list[str] = [REST]
        self.since = time.perf_counter()

    def switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self.running[-1]] = self.seconds.get(self.running[-1], 0.0) + now - self.since
        self.since = now

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        self.switch()
        self.running.append(phase)
        try:
            yield
        finally:
            self.switch()
            self.running.pop()

    def wrapped(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.within(phase):
                return function(*arguments, **named)

        return timed


def phases(translators: dict[str, Translator], texts: list[str], batch: int) -> dict[str, dict[str, float]]:
    """The share of each phase, for each translator, after one run that warms everything up."""
    return {name: shares(translator, texts, batch) for name, translator in translators.items()}


def shares(translator: Translator, texts: list[str], batch: int) -> dict[str, float]:
    translate(translator, texts, batch)
    clock = Clock()
    with ExitStack() as stack:
        for phase, places in PHASES.items():
            for owner, name in places:
                stack.enter_context(patch.object(owner, name, clock.wrapped(phase, getattr(owner, name))))
        clock.since = time.perf_counter()
        translate(translator, texts, batch)
        clock.switch()
    total = sum(clock.seconds.values())
    return {phase: round(clock.seconds.get(phase, 0.0) / total, 4) for phase in (*PHASES, REST)} | {
        "seconds": round(total, 2)
    }


def translate(translator: Translator, texts: list[str], batch: int) -> None:
    for first in range(0, len(texts), batch):
        translator.translations(texts[first : first + batch], batch_tokens=ONE_BATCH)


def show_phases(result: dict[str, dict[str, float]], title: str) -> None:
    table = Table(title=title, box=None)
    table.add_column("")
    for name in result:
        table.add_column(name, justify="right")
    for phase in (*PHASES, REST):
        table.add_row(phase, *(f"{row[phase]:.1%}" for row in result.values()))
    table.add_row("seconds", *(f"{row['seconds']:.2f}" for row in result.values()))
    Console().print(table)
