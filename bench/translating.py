"""Translating, from text to text: stock `generate` and CTranslate2 without retrieval, ours without and with it."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import torch
from rich.console import Console
from sacrebleu.metrics import BLEU

from bench.phases import phases, show_phases
from bench.ratios import Work, show, speeds
from bench.systems import System, Translated, by_generate, by_knnmt
from knnmt import Translator, build_store
from knnmt.decoding import SearchSettings
from knnmt.demo import MODEL, K, demo_corpus, read_demo
from knnmt.errors import SettingsError
from knnmt.evaluation import metrics, read_test_set, signature_of
from knnmt.inputs import read_lines
from knnmt.model import TranslationModel, load_model
from knnmt.store import Store
from knnmt.translator import check_fingerprint, model_of_store, open_retriever, settings_for

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


def translating(plan: Plan) -> dict[str, Any]:
    """Each system in turn, a table for each batch size and beam."""
    threads = share_threads(plan.threads or torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        ours = open_translators(plan, Path(folder))
        model = ours["knnmt"].translation_model
        systems: dict[str, System] = {REFERENCE: partial(by_generate, model)}
        systems |= ctranslate2_systems(model, Path(folder), threads)
        systems |= {name: partial(by_knnmt, translator) for name, translator in ours.items()}
        text = in_order_of_length(read_text(plan), model)
        bleu = metrics(ours["knnmt"], text.references)[0] if text.references else None
        tables = [
            {"batch": batch, "beam": beam, "rows": measure(systems, text, bleu, batch, beam, plan.repeats)}
            for batch in plan.batches
            for beam in plan.beams
        ]
    signatures = {name: signature_without_beam(translator) for name, translator in ours.items()}
    signatures |= {"bleu": str(bleu.get_signature())} if bleu else {}
    return {
        "model": Path(model.name).name,
        "sentences": len(text.sources),
        "repeats": plan.repeats,
        "threads": threads,
        "versions": versions(),
        "signatures": signatures,
        "tables": tables,
    }


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
    model = model_of_store(open_retriever(plan.stores[0], nprobe=None).stores[0], plan.model) if plan.stores else None
    model = model or load_model(plan.model or MODEL)
    translators = {"knnmt": Translator(model, None, SearchSettings(weight=0.0))}
    names = [row_name(given) for given in plan.stores]
    if len(set(names)) < len(names):
        raise SettingsError("--store: two of them have the same name; write NAME=FOLDER")
    for name, given in zip(names, plan.stores, strict=True):
        translators[f"knnmt, {name}"] = found = with_store(model, given, k=plan.k)
        if plan.exact:
            settings = replace(found.settings, exact=True)
            translators[f"knnmt, {name}, exact"] = Translator(model, found.retriever, settings)
    if not plan.stores and not plan.source:
        memory = build_store(folder / "store", model, [demo_corpus("memory")])
        translators["knnmt, demo's memory"] = with_store(model, memory.path, k=K)
    return translators


def row_name(given: str) -> str:
    """The last part of a folder, or the name before it."""
    name = open_retriever(given, nprobe=None).names[0]
    return Path(name).name or name


def with_store(model: TranslationModel, given: str | Path, *, k: int | None = None) -> Translator:
    """The model with a store that is tuned, or with the default settings."""
    retriever = open_retriever(given, nprobe=None)
    store: Store = retriever.stores[0]
    check_fingerprint(store, store.manifest.model, model.fingerprint, model.name)
    return Translator(model, retriever, settings_for(retriever, k=k, temperature=None, weight=None, certain=None))


def ctranslate2_systems(model: TranslationModel, folder: Path, threads: int) -> dict[str, System]:
    """The same weights in CTranslate2; none where it is not installed or does not know the architecture."""
    if not find_spec("ctranslate2"):
        Console().print("CTranslate2 is not installed, so its rows are left out: pip install 'knnmt\\[bench]'")
        return {}
    from bench.converted import convert, opened

    try:
        converted = convert(model, folder / "ctranslate2")
    except ValueError as error:
        Console().print(f"CTranslate2 cannot convert {model.name}, so its rows are left out: {error}", markup=False)
        return {}
    return {f"CTranslate2 {kind}": opened(model, converted, kind, threads) for kind in ("float32", "int8")}


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
    systems: Mapping[str, System], text: Text, bleu: BLEU | None, batch: int, beam: int, repeats: int
) -> dict[str, dict[str, float]]:
    """One table: speed, ratio and, where there are references, BLEU of each system."""
    batches = [text.sources[first : first + batch] for first in range(0, len(text.sources), batch)]
    said: dict[str, list[Translated]] = {}
    works = {name: work_of(system, batches, beam, said, name) for name, system in systems.items()}
    measured = speeds(works, repeats)
    tokens = {name: sum(output.tokens for output in outputs) for name, outputs in said.items()}
    scores = {name: bleu_of(outputs, bleu) for name, outputs in said.items()} if bleu else {}
    title = f"translating {len(text.sources)} sentences, batch {batch}, beam {beam}"
    return show(title, measured, REFERENCE, tokens=tokens, bleu=scores)


def bleu_of(outputs: list[Translated], bleu: BLEU) -> float:
    return round(bleu.corpus_score([output.text for output in outputs], None).score, 2)


def work_of(system: System, batches: list[list[str]], beam: int, said: dict[str, list[Translated]], name: str) -> Work:
    """Translates all batches, remembers the outputs and returns the number of tokens."""

    def work() -> int:
        outputs = [output for batch in batches for output in system(batch, beam)]
        said[name] = outputs
        return sum(output.tokens for output in outputs)

    return work


def signature_without_beam(translator: Translator) -> str:
    return "|".join(part for part in signature_of(translator).split("|") if not part.startswith("beam:"))


def versions() -> dict[str, str]:
    """Of the libraries that are compared."""
    names = ("torch", "transformers", "faiss-cpu", *(["ctranslate2"] if find_spec("ctranslate2") else []))
    return {name: version(name) for name in names}
