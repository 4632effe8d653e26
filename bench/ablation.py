"""What each fast path buys: left out of all, and alone; each in a process of its own, asked in turn."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bench.apart import Opening, Worker, working_apart
from bench.ratios import show, speeds_of_timed
from bench.systems import Translated
from bench.translating import Plan, Row, asking, in_order_of_length, model_of, open_ours, read_text, share_threads
from knnmt.errors import SettingsError
from knnmt.switches import FAST_PATHS

REFERENCE = "none of them"
OF_A_STORE = ("forced", "asked", "centroids", "groups")


def ablation(plan: Plan, paths: Sequence[str] = tuple(FAST_PATHS)) -> dict[str, Any]:
    """A table for each batch size, at the first beam; ratios to no fast path at all. Rows are of the paths named."""
    if len(plan.stores) > 1:
        raise SettingsError("--store: the ablation takes one store, or none")
    threads = share_threads(plan.threads or torch.get_num_threads())
    plan = replace(plan, threads=threads)
    sources = in_order_of_length(read_text(plan), model_of(plan)).sources
    with working_apart(openings(plan, paths)) as workers:
        tables = [{"batch": batch, "rows": measure(workers, sources, batch, plan)} for batch in plan.batches]
    return {"sentences": len(sources), "repeats": plan.repeats, "threads": threads, "tables": tables}


def openings(plan: Plan, paths: Sequence[str] = tuple(FAST_PATHS)) -> dict[str, Opening]:
    store = plan.stores[0] if plan.stores else None
    every = tuple(path for path in FAST_PATHS if store or path not in OF_A_STORE)
    left_out = {REFERENCE: every}
    left_out |= {f"{path} alone": tuple(other for other in every if other != path) for path in every if path in paths}
    left_out |= {f"all but {path}": (path,) for path in every if path in paths} | {"all": ()}
    return {name: partial(open_ours, plan, Row(store, plan.k, plain=plain)) for name, plain in left_out.items()}


def measure(workers: dict[str, Worker], sources: list[str], batch: int, plan: Plan) -> dict[str, dict[str, float]]:
    batches = [sources[first : first + batch] for first in range(0, len(sources), batch)]
    said: dict[str, list[Translated]] = {}
    works = {name: asking(worker, batches, plan.beams[0], said) for name, worker in workers.items()}
    title = f"fast paths: {len(sources)} sentences, batch {batch}, beam {plan.beams[0]}"
    return show(title, speeds_of_timed(works, plan.repeats), REFERENCE)
