"""Ways around a search against searching at every step: skipping it, narrowing it down; how often queries repeat."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from bench.ratios import show, speeds
from bench.similar import Similar, Subset, Subsets
from bench.systems import System, Translated, by_knnmt
from bench.translating import (
    Plan,
    bleu_of,
    in_order_of_length,
    open_translators,
    read_text,
    share_threads,
    versions,
    work_of,
)
from knnmt import Translator
from knnmt.errors import SettingsError
from knnmt.measure.evaluation import metrics, signature_of
from knnmt.models.batching import pad
from knnmt.store.datastore import Store
from knnmt.store.filters import live_segments
from knnmt.translate.beam import BeamSearch, rules_of
from knnmt.translate.decoding import proposing
from knnmt.translate.retriever import Neighbours, Retriever

REFERENCE = "search at every step"
CERTAINTIES = (0.9, 0.8, 0.7, 0.6)
SENTENCES = (64, 256, 512)  # of a subset


class Counting:
    """A retriever that counts what it was asked before, bit for bit."""

    def __init__(self, retriever: Retriever) -> None:
        self.retriever, self.entries = retriever, retriever.entries
        self.known: set[bytes] = set()
        self.asked = 0

    @property
    def share_repeated(self) -> float:
        return 1 - len(self.known) / max(1, self.asked)

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        self.asked += len(queries)
        self.known |= {query.tobytes() for query in queries}
        return self.retriever.search(queries, k)


def shortcuts(plan: Plan) -> dict[str, Any]:
    """A table of speed and BLEU at the first batch size and beam, and how many searches each way spared."""
    share_threads(plan.threads or torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        *_, ours = open_translators(plan, Path(folder)).values()
        if len(plan.stores) > 1 or not ours.stores:
            raise SettingsError("--store: shortcuts are measured on one store")
        return compare_shortcuts(with_settings(ours, certain=1.0, exact=False, beam=plan.beams[0]), plan)


def compare_shortcuts(plain: Translator, plan: Plan) -> dict[str, Any]:
    text = in_order_of_length(read_text(plan), plain.translation_model)
    batches = [text.sources[first : first + plan.batches[0]] for first in range(0, len(text.sources), plan.batches[0])]
    said: dict[str, list[Translated]] = {}
    works = {name: work_of(system, batches, plan.beams[0], said, name) for name, system in systems_of(plain).items()}
    measured = speeds(works, plan.repeats)
    bleu = metrics(plain, text.references)[0] if text.references else None
    scores = {name: bleu_of(outputs, bleu) for name, outputs in said.items()} if bleu else {}
    title = f"shortcuts: {len(text.sources)} sentences, batch {plan.batches[0]}, beam {plan.beams[0]}"
    rows = show(title, measured, REFERENCE, bleu=scores)
    spared = queries_spared(plain, text.sources)
    for name, share in spared.items():
        Console().print(f"{name}: {share:.1%} of the queries")
    signatures = {"knnmt": signature_of(plain)} | ({"bleu": str(bleu.get_signature())} if bleu else {})
    about = {"sentences": len(text.sources), "repeats": plan.repeats, "threads": torch.get_num_threads()}
    return about | {"versions": versions(), "signatures": signatures, "rows": rows, "spared": spared}


def with_settings(translator: Translator, **changed: Any) -> Translator:
    settings = replace(translator.settings, **changed)
    return Translator(translator.translation_model, translator.retriever, settings)


def systems_of(plain: Translator) -> dict[str, System]:
    systems: dict[str, System] = {REFERENCE: partial(by_knnmt, plain)}
    for certain in CERTAINTIES:
        systems[f"not where surer than {certain:g}"] = partial(by_knnmt, with_settings(plain, certain=certain))
    similar = Similar(sources_of(plain.stores[0]))
    for sentences in SENTENCES:
        systems[f"among {sentences} similar sentences"] = partial(by_subset, plain, similar, sentences)
    return systems


def sources_of(store: Store) -> list[str]:
    """Of every segment; one that was removed has no words."""
    parts = range(len(store.manifest.parts))
    texts = [text for part in parts for text in store.pairs_file(part).read(columns=["source"])["source"].to_pylist()]
    return [text if live else "" for text, live in zip(texts, live_segments(store), strict=True)]


@torch.inference_mode()
def by_subset(plain: Translator, similar: Similar, sentences: int, texts: Sequence[str], beam: int) -> list[Translated]:
    """Each sentence with the entries of the sentences most like it; choosing and reading them is part of the time."""
    model, store = plain.translation_model, plain.stores[0]
    ids, mask = pad(model.fitting_sources(texts)[0], model.padding)
    subsets = Subsets([Subset(store, similar.nearest(text, sentences)) for text in texts], store.entries)
    rules, settings = rules_of(model, beam), plain.settings
    assert rules, "a model whose rules only generate knows"
    subsets.running = BeamSearch(model, rules, proposing(cast(Retriever, subsets), settings), quick=True)
    outputs = subsets.running.run(ids, mask)
    return [Translated(model.decode(output.tokens), len(output.tokens)) for output in outputs]


def queries_spared(plain: Translator, texts: Sequence[str]) -> dict[str, float]:
    """Of all that beam search would ask over the whole text."""
    spared = {}
    for certain in CERTAINTIES:
        skipping = with_settings(plain, certain=certain)
        skipping.translate(texts)
        spared[f"model surer than {certain:g}"] = round(skipping.asked.share_skipped, 4)
    counting = Counting(cast(Retriever, plain.retriever))
    Translator(plain.translation_model, cast(Retriever, counting), plain.settings).translate(texts)
    return spared | {"the same as one before": round(counting.share_repeated, 4)}
