"""Thousands of single additions, with removals, beside a reader that translates: does the last cost as the first?"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bench.adding import forward_pass
from knnmt import BuildSettings, Corpus, Store, Translator, build_store, load_model
from knnmt.cli.demo import demo_corpus, read_demo
from knnmt.models.translation_model import TranslationModel
from knnmt.store.adding import add_to_store
from knnmt.store.compacting import compact_store
from knnmt.store.compacting_tiers import compact_tiers
from knnmt.store.removing import remove_from_store
from knnmt.store.verification import problems_of
from knnmt.translate.settings import TranslateSettings

Cost = tuple[float, float]  # seconds by the clock, and of this thread's processor time

REMOVED_EVERY = 10  # additions
JOINED_EVERY = 250  # additions, in the background, as a server does it
AROUND = 25  # additions on either side whose median counts
COMPARED = 40  # sentences
PLAIN = TranslateSettings(k=16, temperature=20.0, weight=0.5)  # each store would fit its own mixing otherwise


def marks_of(additions: int) -> list[int]:
    return [mark for mark in (100, 1000, 3000, additions) if mark <= additions]


@dataclass
class Costs:
    """By the number of the addition."""

    of: dict[int, Cost] = field(default_factory=dict)

    def told(self, additions: int) -> dict[str, Any]:
        """Medians around some additions, in milliseconds, and the highest of these over the lowest."""
        told: dict[str, Any] = {}
        for at, kind in enumerate(("wall", "processor")):
            around = {str(mark): self.median(mark, at) for mark in marks_of(additions)}
            told[kind] = around | {"ratio": round(max(around.values()) / min(around.values()), 2)}
        return told

    def median(self, mark: int, kind: int) -> float:
        near = [cost[kind] for number, cost in self.of.items() if abs(mark - number) <= AROUND]
        return round(1e3 * statistics.median(near), 1)


READER = """
import sys, time
from knnmt import Translator
from knnmt.cli.demo import read_demo
texts = [pair.source for pair in read_demo("test")][:4]
translator, done, fresh = Translator.from_store(sys.argv[1]), 0, 0
print("ready", flush=True)
stop = __import__("threading").Event()
__import__("threading").Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
while not stop.is_set():
    fresh += translator.refresh()
    assert all(translator.translate(texts))
    done += len(texts)
    time.sleep(2)
print(done, fresh, flush=True)
"""


def growing(additions: int) -> dict[str, Any]:
    model = load_model("builtin:de-en")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        store = build_store(folder / "store", model, [demo_corpus("memory")]).path
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdout
        assert reader.stdout.readline() == "ready\n"
        costs, left = add_one_by_one(folder, store, model, additions)
        translated, refreshed = map(int, reader.communicate()[0].split())
        compact_tiers(store)
        result = judged(folder, store, model, left) | {"reader_translated": translated, "reader_refreshed": refreshed}
    result |= {"additions": additions} | {name: one.told(additions) for name, one in costs.items()}
    Console().print_json(json.dumps(result))
    return result


def add_one_by_one(
    folder: Path, store: Path, model: TranslationModel, additions: int
) -> tuple[dict[str, Costs], list[tuple[str, str]]]:
    """What additions took more than their forward pass, what removals took, and the pairs that were not removed."""
    memory, left = read_demo("memory"), list[tuple[str, str]]()
    costs = {"additions_over_forward": Costs(), "removals": Costs()}
    torch.set_num_threads(1)
    joiner: threading.Thread | None = None
    for number in range(additions):
        pair = memory[number % len(memory)]
        pairs = [(f"{pair.source} {number}", f"{pair.target} {number}")]
        corpus = written(folder / "one.tsv", pairs)
        near = any(abs(mark - number) <= AROUND for mark in marks_of(additions))  # elsewhere the pass is not timed
        forward = cost_of(partial(forward_pass, model, corpus)) if near else (0.0, 0.0)
        whole = cost_of(partial(add_to_store, store, model, [corpus]))
        costs["additions_over_forward"].of[number] = whole[0] - forward[0], whole[1] - forward[1]
        left += pairs
        if number % REMOVED_EVERY == REMOVED_EVERY - 1:
            gone = left.pop(len(left) // 2)[0]
            costs["removals"].of[number] = cost_of(partial(remove_from_store, store, source_texts=[gone]))
        if number % JOINED_EVERY == JOINED_EVERY - 1 and (joiner is None or not joiner.is_alive()):
            joiner = threading.Thread(target=compact_tiers, args=[store])
            joiner.start()
    if joiner:
        joiner.join()
    return costs, left


def cost_of(work: Callable[[], object]) -> Cost:
    wall, used = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - wall, time.thread_time() - used


def written(file: Path, pairs: list[tuple[str, str]]) -> Corpus:
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return Corpus(file)


def judged(folder: Path, store: Path, model: TranslationModel, left: list[tuple[str, str]]) -> dict[str, Any]:
    """The store after all of it, beside one that was built in one go."""
    after, began = Store.open(store), time.perf_counter()
    problems = list(problems_of(after))
    memory = [(pair.source, pair.target) for pair in read_demo("memory")]
    settings = BuildSettings(index="Flat")
    once = build_store(folder / "once", model, [written(folder / "all.tsv", [*memory, *left])], settings)
    exact = compact_store(shutil.copytree(store, folder / "exact"), index="Flat")
    texts = [f"{pair.source} {number}" for number, pair in enumerate(read_demo("memory")[:COMPARED])]
    ours, exactly, theirs = (
        Translator.from_store(path, PLAIN).translate(texts) for path in (store, exact.path, once.path)
    )
    return {
        "parts": len(after.manifest.parts),
        "indexes": len(after.manifest.indexes),
        "entries": after.live_entries,
        "same_segments": after.live_segments == once.live_segments,
        "same_translations": sum(one == other for one, other in zip(ours, theirs, strict=True)),
        "same_translations_where_both_are_exact": sum(a == b for a, b in zip(exactly, theirs, strict=True)),
        "of": len(texts),
        "problems": problems,
        "verify_seconds": round(time.perf_counter() - began, 1),
    }
