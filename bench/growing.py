"""Thousands of single additions, with removals, beside a reader that translates: does the last cost as the first?"""

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bench.adding import forward_pass
from knnmt import Corpus, Store, Translator, build_store, load_model
from knnmt.cli.demo import demo_corpus, read_demo
from knnmt.models.translation_model import TranslationModel
from knnmt.store.adding import add_to_store
from knnmt.store.removing import remove_from_store
from knnmt.store.settling import compact_tiers
from knnmt.store.verification import problems_of

Cost = tuple[float, float]  # seconds by the clock, and of this thread's processor time

REMOVED_EVERY = 10  # additions
JOINED_EVERY = 250  # additions, in the background, as a server does it
AROUND = 25  # additions on either side whose median counts
COMPARED = 40  # sentences

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
    time.sleep(1)
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
    marks = [mark for mark in (100, 1000, additions) if mark <= additions]
    result |= {"additions": additions}
    for kind, seconds in (("wall", [wall for wall, _ in costs]), ("processor", [used for _, used in costs])):
        around = {str(mark): median_around(seconds, mark) for mark in marks}
        result[f"{kind}_milliseconds_over_forward"] = around
        result[f"{kind}_ratio"] = round(max(around.values()) / min(around.values()), 2)
        result[f"{kind}_highest"] = round(max(seconds) * 1e3, 1)
    Console().print_json(json.dumps(result))
    return result


def add_one_by_one(
    folder: Path, store: Path, model: TranslationModel, additions: int
) -> tuple[list[Cost], list[tuple[str, str]]]:
    """What each addition took more than its forward pass, and the pairs that were not removed."""
    memory, costs, left = read_demo("memory"), list[Cost](), list[tuple[str, str]]()
    torch.set_num_threads(1)
    joiner: threading.Thread | None = None
    for number in range(additions):
        pair = memory[number % len(memory)]
        pairs = [(f"{pair.source} {number}", f"{pair.target} {number}")]
        corpus = written(folder / "one.tsv", pairs)
        forward = cost_of(partial(forward_pass, model, corpus))
        whole = cost_of(partial(add_to_store, store, model, [corpus]))
        costs.append((whole[0] - forward[0], whole[1] - forward[1]))
        left += pairs
        if number % REMOVED_EVERY == REMOVED_EVERY - 1:
            remove_from_store(store, source_texts=[left.pop(len(left) // 2)[0]])
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


def median_around(costs: list[float], mark: int) -> float:
    """Milliseconds."""
    return round(1e3 * statistics.median(costs[max(0, mark - AROUND) : mark + AROUND]), 1)


def judged(folder: Path, store: Path, model: TranslationModel, left: list[tuple[str, str]]) -> dict[str, Any]:
    """The store after all of it, beside one that was built in one go."""
    after, began = Store.open(store), time.perf_counter()
    problems = list(problems_of(after))
    memory = [(pair.source, pair.target) for pair in read_demo("memory")]
    once = build_store(folder / "once", model, [written(folder / "all.tsv", [*memory, *left])])
    texts = [f"{pair.source} {number}" for number, pair in enumerate(read_demo("memory")[:COMPARED])]
    both = [Translator.from_store(path).translate(texts) for path in (store, once.path)]
    return {
        "parts": len(after.manifest.parts),
        "indexes": len(after.manifest.indexes),
        "entries": after.live_entries,
        "same_segments": after.live_segments == once.live_segments,
        "same_translations": sum(one == other for one, other in zip(*both, strict=True)),
        "of": len(texts),
        "problems": problems,
        "verify_seconds": round(time.perf_counter() - began, 1),
    }
