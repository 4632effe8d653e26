"""Adding 100 segments to a large store, against the forward pass that they need anyway; time and memory."""

import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from bench.memory import random_store
from bench.peak import peak_of
from knnmt import Corpus, load_model
from knnmt.cli.demo import read_demo
from knnmt.engine.keys import teacher_forced_keys
from knnmt.models.translation_model import TranslationModel
from knnmt.store.adding import add_to_store
from knnmt.store.building import encode_segments
from knnmt.text.corpus import Skipped, read_segments

SEGMENTS = 100
SMALL = 3  # times fewer entries, yet enough for the same kind of index: does memory grow with the store?

ADD = """
import sys
from pathlib import Path
from knnmt import Corpus, load_model
from knnmt.store.adding import add_to_store
add_to_store(sys.argv[1], load_model("builtin:de-en"), [Corpus(Path(sys.argv[2]))])
"""


def adding(entries: int, repeats: int) -> dict[str, float]:
    model = load_model("builtin:de-en")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        large = random_store(Path(folder) / "large", model, entries).path
        small = random_store(Path(folder) / "small", model, entries // SMALL).path
        seconds, forward = [], []
        for round_ in range(repeats + 1):
            corpus = new_segments(Path(folder), round_)
            forward.append(timed(lambda corpus=corpus: forward_pass(model, corpus)))
            seconds.append(timed(lambda corpus=corpus: add_to_store(large, model, [corpus])))
            add_to_store(small, model, [corpus])  # so that both have the same past when their memory is compared
        over = sorted(add - 2 * bare for add, bare in zip(seconds[1:], forward[1:], strict=True))[repeats // 2]
        peaks = {
            path.name: peak_of(ADD, str(path), str(new_segments(Path(folder), repeats + 1).source))
            for path in (small, large)
        }
    Console().print(
        f"adding {SEGMENTS} segments to {entries:,} entries: {over:.2f} s more than twice their forward pass (bar: 1); "
        f"peak memory {peaks['large'] / peaks['small']:.2f} times that of a store with 1/{SMALL} of the entries"
    )
    return {"entries": entries, "seconds_over": round(over, 3), "memory": round(peaks["large"] / peaks["small"], 3)}


def new_segments(folder: Path, round_: int) -> Corpus:
    """Pairs that no store has yet."""
    file = folder / f"new-{round_}.tsv"
    pairs = [f"{pair.source} {round_}\t{pair.target} {round_}\n" for pair in read_demo("memory")[:SEGMENTS]]
    file.write_text("".join(pairs), encoding="utf-8")
    return Corpus(file)


def timed(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


@torch.inference_mode()
def forward_pass(model: TranslationModel, corpus: Corpus) -> None:
    """What adding cannot do without: the keys of the segments."""
    encoded = sorted(
        encode_segments(read_segments([corpus], Skipped()), model), key=lambda segment: len(segment.target)
    )
    for first in range(0, len(encoded), 50):
        batch = encoded[first : first + 50]
        inputs = model.teacher_forcing([s.source for s in batch], [s.target for s in batch])
        teacher_forced_keys(model.network, model.key_site, inputs)
