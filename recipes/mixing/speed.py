"""How fast is each way to mix, beside the model alone?

    python recipes/mixing/speed.py STORE --source FILE [--sentences N] [--batch N] [--kinds learned,fixed,paper]

Tokens per second of processor time, in one thread, which hardly depends on what else the machine does. Every system
translates the same sentences in turn, once to warm up and then REPEATS times; shown are medians and extremes.
"""

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from knnmt import Translator
from knnmt.search.library import faiss
from knnmt.text.inputs import read_lines
from knnmt.translate.settings import TranslateSettings
from knnmt.translate.translator import model_of_store, open_retriever

ONE_BATCH = 10**9  # tokens: whatever is given at once is translated at once


def main(
    store: Path,
    source: Annotated[Path, typer.Option(help="A sentence a line.")],
    sentences: int = 32,
    batch: int = 32,
    repeats: int = 3,
    kinds: str = "learned,fixed,paper",
) -> None:
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    retriever = open_retriever(str(store))
    model = model_of_store(retriever.stores[0])
    texts = list(dict.fromkeys(islice(filter(str.strip, read_lines(source)), sentences)))
    lengths = {text: len(ids) for text, ids in zip(texts, model.encode_sources(texts), strict=True)}
    texts.sort(key=lambda text: -lengths[text])
    systems = {"model alone": Translator(model, None, TranslateSettings(weight=0.0))}
    for kind in kinds.split(","):
        systems[kind] = Translator.with_memory(model, retriever, TranslateSettings(mixing=kind))
    for system in systems.values():
        speed(system, texts, batch)
    rounds = [{name: speed(system, texts, batch) for name, system in systems.items()} for _ in range(repeats)]
    print(f"| {len(texts)} sentences, {batch} at a time | tokens/s | of the model alone |\n| --- | --- | --- |")
    for name in systems:
        speeds = [found[name] for found in rounds]
        ratio = median(found[name] / found["model alone"] for found in rounds)
        print(f"| {name} | {median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f}) | {ratio:.3f} |")


def speed(system: Translator, texts: Sequence[str], batch: int) -> float:
    """Tokens per second of processor time."""
    began, tokens = time.process_time(), 0
    for first in range(0, len(texts), batch):
        done = system.translations(texts[first : first + batch], batch_tokens=ONE_BATCH)
        tokens += sum(len(one.tokens) for one in done)
    return tokens / (time.process_time() - began)


if __name__ == "__main__":
    typer.run(main)
