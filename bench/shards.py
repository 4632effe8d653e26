"""Translating with the entries on shards, against local search of the same store: speed, and where the rest goes."""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.console import Console

from bench.ratios import compared, speeds
from bench.translating import Plan, read_text
from knnmt import Translator
from knnmt.errors import SettingsError
from knnmt.search.library import faiss
from knnmt.switches import VARIABLE
from knnmt.translate.settings import TranslateSettings

SHARDS = 2
PROCESSORS = 2  # of the cluster, which is on this machine
ALONE = "local"
BATCH_TOKENS = 256  # a third of the default, so that there are several batches


def shards(plan: Plan) -> dict[str, Any]:
    """Tokens per second of local search, of shards, and of shards without a fast path, all in turn."""
    if not plan.stores:
        raise SettingsError("--store is missing: shards hold the entries of a store")
    from knnmt.cluster.connection import connected  # Ray, which the other benchmarks do without
    from knnmt.cluster.sharded_retriever import ShardedRetriever

    texts = read_text(plan).sources
    asked = TranslateSettings(k=plan.k) if plan.k else None
    with connected("local", cpus=PROCESSORS):
        local = Translator.from_store(plan.stores[0], asked, model=plan.model)
        spread = Translator.from_store(
            plan.stores[0], asked, model=plan.model, searched_by=partial(ShardedRetriever, shards=SHARDS)
        )
        systems = {
            ALONE: (local, ""), f"{SHARDS} shards": (spread, ""), "one batch in flight": (spread, "turns"),
            "through Ray": (spread, "lines"), "through Ray, one batch in flight": (spread, "lines,turns"),
        }  # fmt: skip
        same = local.translate(texts) == spread.translate(texts)
        works = {name: partial(tokens_of, translator, texts, plain) for name, (translator, plain) in systems.items()}
        measured = speeds(works, plan.repeats)
        step = parts_of_a_step(local, spread, texts)
    rows = {name: compared(values, measured[ALONE]) for name, values in measured.items()}
    result = {"same": same, "rows": rows, "milliseconds_a_step": step}
    Console().print_json(data=result)
    return result


def tokens_of(translator: Translator, texts: list[str], plain: str) -> int:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join(filter(None, (before, plain)))
    try:
        return sum(len(one.tokens) for one in translator.translations(texts, batch_tokens=BATCH_TOKENS))
    finally:
        os.environ[VARIABLE] = before or ""


def parts_of_a_step(local: Translator, spread: Translator, texts: list[str]) -> dict[str, float]:
    """Where a step's time goes if one batch is in flight: medians over the steps of one translation."""
    from knnmt.cluster.shard import Shard, ShardNumber

    retriever: Any = spread.retriever
    whole_store: Any = local.retriever
    requests, asking = asked_of(retriever, spread, texts)
    began = time.perf_counter()
    tokens_of(local, texts, "turns")
    whole = (time.perf_counter() - began) / len(requests)
    shard = Shard(retriever.shards.contents, ShardNumber(0, SHARDS))
    here = [elapsed(partial(whole_store.search, one.queries, one.k)) for one in requests]
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # as Ray's processes have it
    alone = [elapsed(partial(shard.search, one.queries, one.k, one.assigned)) for one in requests]
    faiss.omp_set_num_threads(threads)
    times = {"local step": [whole], "local search": here, "asking all shards": asking, "one shard's own search": alone}
    return {name: round(1e3 * statistics.median(seconds), 2) for name, seconds in times.items()}


def asked_of(retriever: Any, translator: Translator, texts: list[str]) -> tuple[list[Any], list[float]]:
    """What the shards are asked in one translation, and how long each answer takes."""
    requests: list[Any] = []
    seconds: list[float] = []
    search: Callable[..., Any] = retriever.lines.search

    def watched(request: Any) -> Any:
        began = time.perf_counter()
        found = search(request)
        seconds.append(time.perf_counter() - began)
        requests.append(request)
        return found

    retriever.lines.search = watched
    try:
        tokens_of(translator, texts, "turns")
    finally:
        del retriever.lines.search
    return requests, seconds


def elapsed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
