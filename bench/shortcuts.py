"""Ways around a search, each against searching at every step: skipping it, remembering it, narrowing it down."""

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
from bench.translating import Plan, bleu_of, in_order_of_length, open_translators, read_text, share_threads, work_of
from knnmt import Translator
from knnmt.batching import pad
from knnmt.beam import BeamSearch, rules_of
from knnmt.decoding import proposing
from knnmt.errors import SettingsError
from knnmt.evaluation import metrics
from knnmt.retrieval import Neighbours, Retriever
from knnmt.store import Store

REFERENCE = "search at every step"
CERTAINTIES = (0.9, 0.8, 0.7, 0.6)
SENTENCES = (64, 256, 512)  # of a subset


class Remembering:
    """A retriever that knows what it was asked before, bit for bit."""

    def __init__(self, retriever: Retriever) -> None:
        self.retriever, self.entries = retriever, retriever.entries
        self.known: dict[bytes, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}
        self.asked = self.hits = 0

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        names = [query.tobytes() for query in queries]
        new = [row for row, name in enumerate(names) if name not in self.known]
        self.asked += len(names)
        self.hits += len(names) - len(new)
        if new:
            found = self.retriever.search(queries[new], k)
            self.known |= {names[row]: (found.distances[place], found.tokens[place]) for place, row in enumerate(new)}
        distances, tokens = (np.stack(parts) for parts in zip(*(self.known[name] for name in names), strict=True))
        return Neighbours(distances, np.full(distances.shape, -1), tokens)


def shortcuts(plan: Plan) -> dict[str, Any]:
    """A table of speed and BLEU at the first batch size and beam, and how many searches each way spared."""
    share_threads(plan.threads or torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        *_, ours = open_translators(plan, Path(folder)).values()
        if len(plan.stores) > 1 or not ours.stores:
            raise SettingsError("--store: shortcuts are measured on one store")
        return compare_shortcuts(with_settings(ours, certain=1.0, beam=plan.beams[0]), plan)


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
    spared = searches_spared(plain, text.sources)
    for name, share in spared.items():
        Console().print(f"{name}: {share:.1%} of the searches spared")
    return {"rows": rows, "spared": spared}


def with_settings(translator: Translator, **changed: Any) -> Translator:
    settings = replace(translator.settings, **changed)
    return Translator(translator.translation_model, translator.retriever, settings)


def systems_of(plain: Translator) -> dict[str, System]:
    systems: dict[str, System] = {REFERENCE: partial(by_knnmt, plain)}
    for certain in CERTAINTIES:
        systems[f"not where surer than {certain:g}"] = partial(by_knnmt, with_settings(plain, certain=certain))
    systems["queries remembered"] = lambda texts, beam: by_knnmt(remembering(plain), texts, beam)
    store = plain.stores[0]
    similar = Similar(sources_of(store))
    for sentences in SENTENCES:
        systems[f"among {sentences} similar sentences"] = partial(by_subset, plain, similar, sentences)
    return systems


def remembering(translator: Translator) -> Translator:
    memory = Remembering(cast(Retriever, translator.retriever))
    return Translator(translator.translation_model, cast(Retriever, memory), translator.settings)


def sources_of(store: Store) -> list[str]:
    parts = range(len(store.manifest.parts))
    return [text for part in parts for text in store.pairs_file(part).read(columns=["source"])["source"].to_pylist()]


@torch.inference_mode()
def by_subset(plain: Translator, similar: Similar, sentences: int, texts: Sequence[str], beam: int) -> list[Translated]:
    """Each sentence with the entries of the sentences most like it; choosing and reading them is part of the time."""
    model, store = plain.translation_model, plain.stores[0]
    ids, mask = pad(model.fitting_sources(texts)[0], model.padding)
    subsets = Subsets([Subset(store, similar.nearest(text, sentences)) for text in texts], store.entries)
    rules, settings = rules_of(model, beam), plain.settings
    assert rules, "a model whose rules only generate knows"
    with proposing(model.network, model.key_site, cast(Retriever, subsets), settings) as propose:
        subsets.running = BeamSearch(model, rules, propose, quick=True)
        outputs = subsets.running.run(ids, mask)
    return [Translated(model.decode(output.tokens), len(output.tokens)) for output in outputs]


def searches_spared(plain: Translator, texts: Sequence[str]) -> dict[str, float]:
    """Over the whole text, as one memory of queries would see it."""
    spared = {}
    for certain in CERTAINTIES:
        skipping = with_settings(plain, certain=certain)
        skipping.translate(texts)
        spared[f"not where surer than {certain:g}"] = round(skipping.asked.share_skipped, 4)
    remembered = remembering(plain)
    remembered.translate(texts)
    memory = cast(Remembering, remembered.retriever)
    return spared | {"queries remembered": round(memory.hits / max(1, memory.asked), 4)}
