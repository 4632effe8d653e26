"""Peak memory of `knnmt translate` with a large store of random keys: model + index file + 500 MB at most."""

import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from bench.peak import peak_of
from knnmt import load_model
from knnmt.cli.demo import read_demo
from knnmt.layout.manifest import PARTS
from knnmt.layout.parts import EncodedSegment, PartWriter
from knnmt.layout.records import PartRecord
from knnmt.models.translation_model import TranslationModel
from knnmt.store.building import write_manifest
from knnmt.store.datastore import Store
from knnmt.store.index_files import make_store_index
from knnmt.text.corpus import Segment

PART_SEGMENTS = 4096
SEGMENT_TOKENS = 32
INDEX = None  # by size, as users get it
ALLOWED = 500e6


def peak_memory(entries: int) -> dict[str, float]:
    """Make the store, translate in a process of its own, compare its highest memory with what is allowed."""
    model = load_model("builtin:de-en")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = random_store(Path(folder) / "store", model, entries)
        text = "\n".join(segment.source for segment in read_demo("test"))
        peak = peak_of(
            "from knnmt.cli.main import main; main()", "translate", "--store", str(store.path), stdin=text.encode()
        )
        weights = sum(weight.numel() * weight.element_size() for weight in model.network.parameters())
        index = sum(record.bytes for record in store.manifest.index.files().values())
    allowed = weights + index + ALLOWED
    Console().print(
        f"peak memory with {entries:,} entries: {peak / 1e6:,.0f} MB; model {weights / 1e6:,.0f} MB "
        f"+ index {index / 1e6:,.0f} MB + 500 MB = {allowed / 1e6:,.0f} MB; ratio {peak / allowed:.2f} (bar: 1)"
    )
    return {"entries": entries, "peak": peak, "allowed": allowed, "ratio": round(peak / allowed, 3)}


def random_store(path: Path, model: TranslationModel, entries: int) -> Store:
    """A store of the wanted size whose keys mean nothing."""
    random = np.random.default_rng(0)
    (path / PARTS).mkdir(parents=True)
    parts: list[PartRecord] = []
    while sum(part.entries for part in parts) < entries:
        parts.append(random_part(path, len(parts), model, random))
    index = make_store_index(path, parts, factory=INDEX)
    write_manifest(path, model, [{"name": "random", "files": []}], parts, index, {})
    return Store.open(path)


def random_part(path: Path, number: int, model: TranslationModel, random: np.random.Generator) -> PartRecord:
    vocabulary = model.network.config.vocab_size - 1
    segments = [
        EncodedSegment(Segment("random", "random", "random", row), [], tokens)
        for row, tokens in enumerate(random.integers(1, vocabulary, (PART_SEGMENTS, SEGMENT_TOKENS)).tolist())
    ]
    writer = PartWriter(path, number, segments, dimension=model.dimension)
    for row in range(PART_SEGMENTS):
        writer.put(row, random.normal(size=(SEGMENT_TOKENS, model.dimension)).astype(np.float32))
    return writer.finish(consumed=PART_SEGMENTS * (number + 1), skipped={})
