"""The model card (README.md) and the log (training.json) of a run."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

from data import REASONS, Corpus
from vocabulary import write_json


def describe_data(training: Corpus, validation: Corpus) -> dict[str, Any]:
    return {
        "name": training.name, "weight": training.weight, "training_pairs": len(training),
        "validation_pairs": len(validation), "dropped": training.dropped,
    }  # fmt: skip


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines: list[Sequence[object]] = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def data_table(data: list[dict[str, Any]]) -> str:
    header = ["corpus", "weight", "training pairs", "validation pairs", "excluded", "empty", "too long"]
    rows = [
        [corpus["name"], corpus["weight"], corpus["training_pairs"], corpus["validation_pairs"],
         *(corpus["dropped"][reason] for reason in REASONS)]
        for corpus in data
    ]  # fmt: skip
    return table(header, rows)


def score_table(scores: list[dict[str, Any]]) -> str:
    names = list(scores[0]["by_corpus"]) if scores else []
    rows = [
        [score["step"], score["minutes"], score["target_tokens"], score["weights"], f"{score['loss']:.3f}",
         f"{exp(score['loss']):.2f}", *(f"{score['by_corpus'][name]:.3f}" for name in names)]
        for score in scores
    ]  # fmt: skip
    return table(["step", "minutes", "target tokens", "weights", "loss", "perplexity", *names], rows)


CARD = """# {start}
Trained by `recipes/embedded-model/train.py` for {steps} steps and {minutes:.1f} minutes,
on {target} target and {source} source tokens, with seed {seed}.

## Data
A weight says how often a round draws each pair of the corpus.

{data}

## Validation
Loss per target token without label smoothing on the held-out pairs, and its mean over the corpora.

{scores}

## Settings
{settings}
"""


def render_card(record: dict[str, Any]) -> str:
    settings, progress = record["settings"], record["progress"]
    return CARD.format(
        start=f"Trained from {settings['start']}" if settings["start"] else "Trained anew",
        steps=progress["step"], minutes=progress["seconds"] / 60, seed=settings["seed"],
        target=progress["target_tokens"], source=progress["source_tokens"],
        data=data_table(record["data"]), scores=score_table(record["scores"]),
        settings=table(["setting", "value"], [[key, value] for key, value in sorted(settings.items())]),
    )  # fmt: skip


def write_card(folder: Path, record: dict[str, Any]) -> None:
    write_json(folder / "training.json", record)
    (folder / "README.md").write_text(render_card(record), encoding="utf-8")
