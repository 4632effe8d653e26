"""Building a datastore against a bare teacher-forced forward pass without projection, over the same batches."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench.ratios import show, speeds
from knnmt import BuildSettings, Corpus, build_store, load_model
from knnmt.cli.demo import read_demo
from knnmt.models.batching import batches_by_tokens
from knnmt.models.translation_model import TranslationModel

COPIES = 8  # of the demo's memory: enough that starting up does not count


def build_against_forward(repeats: int) -> dict[str, dict[str, float]]:
    model = load_model("builtin:de-en")
    pairs = [(segment.source, segment.target) for segment in read_demo("memory")] * COPIES
    sources = model.encode_sources([source for source, _ in pairs])
    targets = model.encode_targets([target for _, target in pairs])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.tsv"
        file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
        works = {
            "forward pass": lambda: forward(model, sources, targets),
            "build": lambda: build(model, file, Path(folder) / "store"),
        }
        return show("building ÷ bare forward pass (bar: 0.95)", speeds(works, repeats), "forward pass")


@torch.inference_mode()
def forward(model: TranslationModel, sources: list[list[int]], targets: list[list[int]]) -> int:
    """Encoder and decoder without the projection; nothing is kept, and the tokens were ready beforehand."""
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for batch in batches_by_tokens(lengths, BuildSettings().batch_tokens):
        inputs = model.teacher_forcing([sources[row] for row in batch], [targets[row] for row in batch])
        network: Any = model.network
        network.model(**inputs, use_cache=False)
    return sum(len(target) for target in targets)


def build(model: TranslationModel, file: Path, store: Path) -> int:
    """All of it: reading, encoding, keys, checksums, index, manifest."""
    shutil.rmtree(store, ignore_errors=True)
    return build_store(store, model, [Corpus(file)]).entries
