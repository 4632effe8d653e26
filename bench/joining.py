"""What a sentence that arrives could gain by joining the batch that is running, instead of waiting for its end.

It could gain the wait, half a batch on average, and the places of sentences that have ended. So what is measured is how
full a batch is, step by step, and what the same sentences cost in batches of several sizes.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from rich.console import Console

from knnmt import Translator
from knnmt.engine.stepping import Step, Stepper

SIZES = (32, 16, 8, 1)


def joining(translator: Translator, texts: Sequence[str]) -> dict[str, float]:
    """Seconds of all sentences by size of the batch, and the part of a batch's places that is taken."""
    translator.translate(texts)
    with counting_rows() as rows:
        translator.translate(texts)
    result = {"places taken": statistics.mean(rows) / max(rows), "steps": float(len(rows))}
    for size in SIZES:
        begun = time.perf_counter()
        for first in range(0, len(texts), size):
            translator.translate(texts[first : first + size])
        result[f"seconds in batches of {size}"] = time.perf_counter() - begun
    Console().print({f"batches, {len(texts)} sentences": result})
    return result


@contextmanager
def counting_rows() -> Iterator[list[int]]:
    """Inside, the rows of every step are written down."""
    rows: list[int] = []
    plain = Stepper.step

    def step(self: Stepper, tokens: torch.Tensor) -> Step:
        rows.append(len(tokens))
        return plain(self, tokens)

    Stepper.step = step  # type: ignore[method-assign]
    try:
        yield rows
    finally:
        Stepper.step = plain  # type: ignore[method-assign]
