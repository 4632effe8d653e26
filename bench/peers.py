"""knnmt beside knn-transformers: the same model, the same keys, the same k, temperature and weight.

knn-transformers is no package: `--knn-transformers` names a folder with a checkout of it. Its datastore and its index
are made of the store's own keys, by its own code and with its own settings; what it does is not changed.
"""

import importlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.apart import Opened, Opening, working_apart
from bench.ratios import show, speeds_of_timed
from bench.systems import Translated, by_generate, by_knnmt
from bench.translating import (
    Plan,
    asking,
    bleu_of,
    in_batches,
    in_order_of_length,
    model_of,
    read_text,
    share_threads,
    tokens_of,
)
from knnmt import Translator
from knnmt.errors import SettingsError
from knnmt.measure.evaluation import metrics
from knnmt.models.translation_model import TranslationModel
from knnmt.retrieval.memories import open_memory
from knnmt.store.datastore import Store
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import open_retriever

PEER = "knn-transformers"
K, TEMPERATURE, WEIGHT = 64, 10.0, 0.5  # the paper's


def peers(plan: Plan, folder: Path | None) -> dict[str, Any]:
    """A table for each batch size and beam."""
    if folder is None or not (folder / "knnlm.py").is_file():
        raise SettingsError(f"--knn-transformers {folder}: must be a checkout of knn-transformers, with knnlm.py in it")
    if len(plan.stores) != 1:
        raise SettingsError("--store: peers are compared on one store")
    plan = replace(plan, threads=share_threads(plan.threads or torch.get_num_threads()))
    model = model_of(plan)
    text = in_order_of_length(read_text(plan), model)
    bleu = metrics(Translator(model, None), text.references)[0] if text.references else None
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        write_datastore(folder, model, open_memory(plan.stores[0]).store, Path(place))
        with working_apart(openings(plan, folder, Path(place))) as workers:
            tables = []
            for batch, beam in ((batch, beam) for batch in plan.batches for beam in plan.beams):
                batches = [text.sources[first : first + batch] for first in range(0, len(text.sources), batch)]
                said: dict[str, list[Translated]] = {}
                works = {name: asking(worker, batches, beam, said) for name, worker in workers.items()}
                measured = speeds_of_timed(works, plan.repeats)
                tokens = {name: tokens_of(outputs) for name, outputs in said.items()}
                scores = {name: bleu_of(outputs, bleu) for name, outputs in said.items()} if bleu else {}
                title = f"peers: {len(text.sources)} sentences, batch {batch}, beam {beam}"
                rows = show(title, measured, PEER, tokens=tokens, bleu=scores)
                tables.append({"batch": batch, "beam": beam, "rows": rows})
    return {"k": K, "temperature": TEMPERATURE, "weight": WEIGHT, "tables": tables}


def openings(plan: Plan, folder: Path, place: Path) -> dict[str, Opening]:
    return {PEER: partial(open_peer, plan, folder, place), "knnmt": partial(open_ours, plan)}


def their_module(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    return importlib.import_module("knnlm")


def write_datastore(folder: Path, model: TranslationModel, store: Store, place: Path) -> None:
    """The store's keys and tokens as knn-transformers keeps them, and its own index over them."""
    theirs, network = their_module(folder), model.network
    saver = theirs.KNNSaver(store.entries, str(place), model.dimension)
    saver.model = network
    prefix = theirs.get_dstore_path(str(place), network.config.model_type, store.entries, model.dimension)
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    shape = (store.entries, model.dimension)
    saver.dstore_keys = np.memmap(f"{prefix}_keys.npy", dtype=np.float16, mode="w+", shape=shape)
    saver.dstore_vals = np.memmap(f"{prefix}_vals.npy", dtype=np.int32, mode="w+", shape=(store.entries, 1))
    first = 0
    for keys, values in zip(store.columns("keys"), store.columns("values"), strict=True):
        saver.dstore_keys[first : first + len(keys)] = keys
        saver.dstore_vals[first : first + len(keys), 0] = values
        first += len(keys)
    saver.build_index()


def open_peer(plan: Plan, folder: Path, place: Path) -> Opened:
    share_threads(plan.threads or torch.get_num_threads())
    theirs, model = their_module(folder), model_of(plan)
    entries = open_memory(plan.stores[0]).store.entries
    wrapper = theirs.KNNWrapper(
        entries, str(place), model.dimension, knn_sim_func=theirs.DIST.l2, no_load_keys=True, move_dstore_to_mem=True,
        k=K, lmbda=WEIGHT, knn_temp=TEMPERATURE,
    )  # fmt: skip
    wrapper.break_into(model.network)
    return Opened(partial(in_batches, partial(by_peer, model)))


def by_peer(model: TranslationModel, texts: Sequence[str], beam: int) -> list[Translated]:
    """Stock `generate`, into which knn-transformers has broken."""
    return by_generate(model, texts, beam)


def open_ours(plan: Plan) -> Opened:
    share_threads(plan.threads or torch.get_num_threads())
    settings = TranslateSettings(k=K, temperature=TEMPERATURE, weight=WEIGHT)
    translator = Translator(model_of(plan), open_retriever(plan.stores[0]), settings)
    return Opened(partial(in_batches, partial(by_knnmt, translator)))
