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
from knnmt.switches import VARIABLE
from knnmt.translate.settings import TranslateSettings

SHARDS = 2
PROCESSORS = 2  # of the cluster, which is on this machine
ALONE = "local"
BATCH_TOKENS = 256  # few, so that there are several batches


def shards(plan: Plan) -> dict[str, Any]:
    """Tokens per second of local search, of shards, and of shards without two batches in flight, all in turn."""
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
        systems = {ALONE: (local, ""), f"{SHARDS} shards": (spread, ""), "one batch in flight": (spread, "turns")}
        same = local.translate(texts) == spread.translate(texts)
        works = {name: partial(tokens_of, translator, texts, plain) for name, (translator, plain) in systems.items()}
        measured = speeds(works, plan.repeats)
        asking = statistics.median(milliseconds(spread, texts) for _ in range(plan.repeats))
    rows = {name: compared(values, measured[ALONE]) for name, values in measured.items()}
    result = {"same": same, "rows": rows, "milliseconds_a_round_trip": round(asking, 2)}
    Console().print_json(data=result)
    return result


def tokens_of(translator: Translator, texts: list[str], plain: str) -> int:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join(filter(None, (before, plain)))
    try:
        return sum(len(one.tokens) for one in translator.translations(texts, batch_tokens=BATCH_TOKENS))
    finally:
        os.environ[VARIABLE] = before or ""


def milliseconds(translator: Translator, texts: list[str]) -> float:
    """The wait for all shards, median over the steps of one translation."""
    retriever: Any = translator.retriever
    times: list[float] = []
    search: Callable[..., Any] = retriever.shards.search

    def watched(request: Any) -> Any:
        began = time.perf_counter()
        found = search(request)
        times.append(time.perf_counter() - began)
        return found

    retriever.shards.search = watched
    try:
        translator.translations(texts, batch_tokens=BATCH_TOKENS)
    finally:
        del retriever.shards.search
    return 1e3 * statistics.median(times)
