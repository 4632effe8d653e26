"""Translating, from text to text: stock `generate` and CTranslate2 without retrieval, ours without and with it."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from sacrebleu.metrics.bleu import BLEU

from bench.apart import Opened, Opening, Worker, working_apart
from bench.phases import phases, show_phases
from bench.ratios import Done, TimedWork, Work, show, speeds_of_timed
from bench.reindexed import reindexed
from bench.systems import System, Translated, by_generate, by_knnmt
from knnmt import Translator, build_store
from knnmt.cli.demo import MODEL, demo_corpus, read_demo
from knnmt.errors import SettingsError
from knnmt.measure.evaluation import metrics, read_test_set, signature_of
from knnmt.models.translation_model import TranslationModel, load_model
from knnmt.retrieval.local_retriever import LocalRetriever
from knnmt.retrieval.memories import open_memory
from knnmt.search.library import faiss
from knnmt.store.datastore import Store
from knnmt.switches import VARIABLE
from knnmt.text.inputs import read_lines
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import check_fingerprint, model_of_store, open_retriever

REFERENCE = "generate"
BATCHES = (32, 1)
BEAMS = (5, 1)
SENTENCES = 32


@dataclass(frozen=True, slots=True)
class Plan:
    """What is translated with what; without a source file the demo's sentences, and its memory as store."""

    model: str | None = None
    stores: tuple[str, ...] = ()
    source: Path | None = None
    target: Path | None = None
    sentences: int = SENTENCES
    batches: tuple[int, ...] = BATCHES
    beams: tuple[int, ...] = BEAMS
    repeats: int = 5
    threads: int | None = None
    k: int | None = None  # None: as the store was tuned
    exact: bool = False  # a second row for each store, with --exact
    indexes: tuple[str, ...] = ()  # one more row for each store and kind of index
    precisions: tuple[str, ...] = ()  # one more row for each store and precision
    mixings: tuple[str, ...] = ()  # one more row for each store and kind of mixing

    def __post_init__(self) -> None:
        numbers = {"--sentences": [self.sentences], "--batch": self.batches, "--beam": self.beams}
        numbers |= {"--repeats": [self.repeats], "--threads": [1 if self.threads is None else self.threads]}
        for flag, values in numbers.items():
            for value in values:
                if value < 1:
                    raise SettingsError(f"{flag} {value}: must be at least 1")
        if self.target and not self.source:
            raise SettingsError(f"--target {self.target}: has no --source beside it")


class Text(NamedTuple):
    sources: list[str]
    references: list[str]  # empty where there are none


class Row(NamedTuple):
    """One of ours as plain data, which another process can be given."""

    store: str | None = None
    k: int | None = None
    exact: bool = False
    precision: str | None = None
    mixing: str | None = None
    plain: tuple[str, ...] = ()  # fast paths that are left out


class Prepared(NamedTuple):
    """What the parent knows; it lets go of the model, of which every worker has its own."""

    model: str
    text: Text
    bleu: BLEU | None
    systems: dict[str, Opening]


def translating(plan: Plan) -> dict[str, Any]:
    """Each system in turn, each in a process of its own; a table for each batch size and beam."""
    threads = share_threads(plan.threads or torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        ready = prepare(replace(plan, threads=threads), Path(folder))
        with working_apart(ready.systems) as workers:
            tables = [
                {"batch": batch, "beam": beam, "rows": measure(workers, ready, batch, beam, plan.repeats)}
                for batch in plan.batches
                for beam in plan.beams
            ]
    signatures = {name: worker.signature for name, worker in workers.items() if worker.signature}
    signatures |= {"bleu": str(ready.bleu.get_signature())} if ready.bleu else {}
    return {
        "model": ready.model,
        "sentences": len(ready.text.sources),
        "repeats": plan.repeats,
        "threads": threads,
        "versions": versions(),
        "signatures": signatures,
        "tables": tables,
    }


def prepare(plan: Plan, folder: Path) -> Prepared:
    """The text, and how each worker is to open its system; what several of them need is made here, once."""
    model = model_of(plan)
    ours = rows_of_ours(plan, model, folder)
    systems: dict[str, Opening] = {REFERENCE: partial(open_generate, plan)}
    systems |= ctranslate2_systems(plan, model, folder)
    systems |= {name: partial(open_ours, plan, row) for name, row in ours.items()}
    text = in_order_of_length(read_text(plan), model)
    bleu = metrics(translator_of(Row(), model), text.references)[0] if text.references else None
    return Prepared(Path(model.name).name, text, bleu, systems)


def open_generate(plan: Plan) -> Opened:
    share_threads(plan.threads or torch.get_num_threads())
    return Opened(partial(in_batches, partial(by_generate, model_of(plan))))


def open_ours(plan: Plan, row: Row) -> Opened:
    os.environ[VARIABLE] = ",".join(row.plain)
    share_threads(plan.threads or torch.get_num_threads())
    translator = translator_of(row, model_of(plan), open_retriever(row.store) if row.store else None)
    return Opened(partial(in_batches, partial(by_knnmt, translator)), signature_without_beam(translator))


def open_converted(plan: Plan, folder: Path, kind: str, *, in_parts: bool = False) -> Opened:
    """The converted model, and of the other only the tokenizer and the settings."""
    from bench.converted import opened

    threads = plan.threads or torch.get_num_threads()
    torch.set_num_threads(1)  # so that PyTorch starts no threads beside CTranslate2's
    model = model_of(plan)
    network: Any = model.network
    torch.nn.Module.to(network, "meta")  # lets go of weights that nothing here computes with
    return Opened(partial(in_batches, opened(model, folder, kind, threads, in_parts=in_parts)))


def where_time_goes(plan: Plan) -> dict[str, Any]:
    """The phases of ours, without and with retrieval, at the first batch size."""
    share_threads(plan.threads or torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        ours = open_translators(plan, Path(folder))
        text = in_order_of_length(read_text(plan), ours["knnmt"].translation_model)
        result = phases(ours, text.sources, plan.batches[0])
    show_phases(result, f"where the time goes: {len(text.sources)} sentences, batch {plan.batches[0]}, beam 5")
    return result


def share_threads(threads: int) -> int:
    """As many for all: PyTorch, the search for neighbours, and CTranslate2, which is told when it loads."""
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    return threads


def open_translators(plan: Plan, folder: Path) -> dict[str, Translator]:
    """Ours without retrieval and with each store, all around one loaded model."""
    model = model_of(plan)
    rows = rows_of_ours(plan, model, folder)
    retrievers = {row.store: open_retriever(row.store) for row in rows.values() if row.store}
    return {name: translator_of(row, model, retrievers.get(row.store or "")) for name, row in rows.items()}


def model_of(plan: Plan) -> TranslationModel:
    """The one that the first store names, unless the plan does."""
    if plan.stores:
        return model_of_store(open_memory(plan.stores[0]).store, plan.model)
    return load_model(plan.model or MODEL)


def rows_of_ours(plan: Plan, model: TranslationModel, folder: Path) -> dict[str, Row]:
    """Without retrieval and with each store; where nothing is given, with the demo's memory, built in the folder."""
    names = [row_name(given) for given in plan.stores]
    if len(set(names)) < len(names):
        raise SettingsError("--store: two of them have the same name; write NAME=FOLDER")
    rows = {"knnmt": Row()}
    for name, given in zip(names, plan.stores, strict=True):
        rows[f"knnmt, {name}"] = Row(given, plan.k)
        if plan.exact:
            rows[f"knnmt, {name}, exact"] = Row(given, plan.k, exact=True)
        for factory in plan.indexes:
            other = reindexed(open_memory(given).store, factory, folder / f"{name} {factory}")
            rows[f"knnmt, {name}, {factory}"] = Row(str(other), plan.k)
        for precision in plan.precisions:
            rows[f"knnmt, {name}, {precision}"] = Row(given, plan.k, precision=precision)
        for kind in plan.mixings:
            rows[f"knnmt, {name}, {kind}"] = Row(given, mixing=kind)
    if not plan.stores and not plan.source:
        memory = build_store(folder / "store", model, [demo_corpus("memory")])
        rows["knnmt, demo's memory"] = Row(str(memory.path))
    return rows


def row_name(given: str) -> str:
    """The last part of a folder, or the name before it."""
    name = open_memory(given).name
    return Path(name).name or name


def translator_of(row: Row, model: TranslationModel, retriever: LocalRetriever | None = None) -> Translator:
    """The model alone, or with a store as it was tuned, else with the default settings."""
    if retriever is None:
        return Translator(model, None, TranslateSettings(weight=0.0, precision=row.precision))
    store: Store = retriever.stores[0]
    check_fingerprint(store, store.manifest.model, model.fingerprint, model.name)
    asked = TranslateSettings(k=row.k, exact=row.exact, precision=row.precision, mixing=row.mixing)
    return Translator.with_memory(model, retriever, asked)


def ctranslate2_systems(plan: Plan, model: TranslationModel, folder: Path) -> dict[str, Opening]:
    """The same weights in CTranslate2; none where it is not installed or does not know the architecture."""
    if not find_spec("ctranslate2"):
        Console().print("CTranslate2 is not installed, so its rows are left out: pip install 'knnmt\\[bench]'")
        return {}
    from bench.converted import convert

    try:
        converted = convert(model, folder / "ctranslate2")
    except ValueError as error:
        Console().print(f"CTranslate2 cannot convert {model.name}, so its rows are left out: {error}", markup=False)
        return {}
    kinds = [(kind, in_parts) for kind in ("float32", "int8") for in_parts in (False, True)]
    return {
        f"CTranslate2 {kind}{', in parts' if in_parts else ''}": partial(
            open_converted, plan, converted, kind, in_parts=in_parts
        )
        for kind, in_parts in kinds
    }


def read_text(plan: Plan) -> Text:
    """The first sentences that are not empty, each once: ours would not decode one again."""
    if not plan.source:
        pairs = [(segment.source, segment.target) for segment in read_demo("test")]
    elif plan.target:
        pairs = list(zip(*read_test_set(plan.source, plan.target, None), strict=True))
    else:
        pairs = [(line, "") for line in read_lines(plan.source)]
    pairs = list({pair[0]: pair for pair in pairs if pair[0].strip()}.values())[: plan.sentences]
    if not pairs:
        raise SettingsError(f"--source {plan.source}: empty")
    has_references = plan.target or not plan.source
    return Text([source for source, _ in pairs], [target for _, target in pairs] if has_references else [])


def in_order_of_length(text: Text, model: TranslationModel) -> Text:
    """So that the batches of all systems are the same and have little padding."""
    lengths = [len(source) for source in model.encode_sources(text.sources)]
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return Text([text.sources[row] for row in order], [text.references[row] for row in order if text.references])


def measure(
    workers: Mapping[str, Worker], ready: Prepared, batch: int, beam: int, repeats: int
) -> dict[str, dict[str, float]]:
    """One table: speed, ratio and, where there are references, BLEU of each system."""
    sources, bleu = ready.text.sources, ready.bleu
    batches = [sources[first : first + batch] for first in range(0, len(sources), batch)]
    said: dict[str, list[Translated]] = {}
    works = {name: asking(worker, batches, beam, said) for name, worker in workers.items()}
    measured = speeds_of_timed(works, repeats)
    tokens = {name: tokens_of(outputs) for name, outputs in said.items()}
    scores = {name: bleu_of(outputs, bleu) for name, outputs in said.items()} if bleu else {}
    title = f"translating {len(sources)} sentences, batch {batch}, beam {beam}"
    return show(title, measured, REFERENCE, tokens=tokens, bleu=scores)


def bleu_of(outputs: list[Translated], bleu: BLEU) -> float:
    return round(float(bleu.corpus_score([output.text for output in outputs], None).score), 2)


def asking(worker: Worker, batches: list[list[str]], beam: int, said: dict[str, list[Translated]]) -> TimedWork:
    """Has a worker translate all batches, and remembers its outputs."""

    def work() -> Done:
        said[worker.name], seconds = worker.ask(batches, beam)
        return Done(tokens_of(said[worker.name]), seconds)

    return work


def work_of(system: System, batches: list[list[str]], beam: int, said: dict[str, list[Translated]], name: str) -> Work:
    """Translates all batches in this process, remembers the outputs and returns the number of tokens."""

    def work() -> int:
        said[name] = in_batches(system, batches, beam)
        return tokens_of(said[name])

    return work


def in_batches(system: System, batches: list[list[str]], beam: int) -> list[Translated]:
    return [output for batch in batches for output in system(batch, beam)]


def tokens_of(outputs: list[Translated]) -> int:
    return sum(output.tokens for output in outputs)


def signature_without_beam(translator: Translator) -> str:
    return "|".join(part for part in signature_of(translator).split("|") if not part.startswith("beam:"))


def versions() -> dict[str, str]:
    """Of the libraries that are compared."""
    names = ("torch", "transformers", "faiss-cpu", *(["ctranslate2"] if find_spec("ctranslate2") else []))
    return {name: version(name) for name in names}
