"""One model of several languages: a store for each pair, and stores of English sources for other source languages.

Without --model a small M2M-100 model is trained first, on the same text in all directions.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from steps import Json, Steps, Text, cut, entries_of, find, options, row, said

TRAINING = Path(__file__).parents[1] / "embedded-model" / "train.py"
PIVOT = "en"


def train(given: argparse.Namespace) -> str:
    """The model's folder; a training that was stopped is gone on with."""
    folder = given.output / "multilingual"
    model = folder / "model"
    if not (model / "training.json").is_file():
        stem = given.corpora / given.text / "train"
        pairs = permutations((find(stem, language) for language in given.languages), 2)
        corpora = [word for source, target in pairs for word in ("--corpus", str(source), str(target))]
        command = [sys.executable, str(TRAINING), "--architecture", "m2m_100", *corpora, "--output", str(folder)]
        resume = ["--resume"] if (folder / "run" / "checkpoint.pt").is_file() else []
        budget = ["--minutes", str(given.minutes), "--vocabulary", str(given.vocabulary)]
        subprocess.run([*command, *budget, *shlex.split(given.training), *resume], check=True)
    return str(model)


def text_of(steps: Steps, given: argparse.Namespace, split: str, pair: str) -> Text:
    return steps.text(f"{given.text}/{split}", pair.split("-"))


def store_of(steps: Steps, given: argparse.Namespace, pair: str) -> Path:
    source, target = pair.split("-")
    train_text = text_of(steps, given, "train", pair)
    if given.pairs:
        train_text = cut(train_text, given.output / "texts", f"{given.text}-{given.pairs}", 0, given.pairs)
    return steps.build(f"{given.text}-{pair}", [train_text], "--source-lang", source, "--target-lang", target)


def rows_of(steps: Steps, given: argparse.Namespace, pair: str) -> list[Json]:
    """The pair's own memory and, for a source other than English, the one of English sources."""
    source, target = pair.split("-")
    memories = {f"{pair}": store_of(steps, given, pair)}
    if PIVOT not in (source, target):
        memories[f"{PIVOT}-{target}"] = store_of(steps, given, f"{PIVOT}-{target}")
    rows = []
    for memory, store in memories.items():
        name, test = f"{given.text}-{pair}-with-{memory}", text_of(steps, given, "test", pair)
        tuned = steps.tune(name, store, text_of(steps, given, "dev", pair), "--source-lang", source)
        evaluation = steps.evaluate(name, [store], test, *tuned, languages=(source, target))
        rows.append(row(evaluation, test=pair, memory=memory, entries=entries_of(store)))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__, model=None)
    parser.add_argument("--text", default="it-multiway", help="text that is parallel in all languages")
    parser.add_argument("--languages", nargs="+", default=["en", "de", "fr"], help="of the model that is trained")
    parser.add_argument("--minutes", type=float, default=120, help="of training")
    parser.add_argument("--vocabulary", type=int, default=8000, help="of the model that is trained")
    parser.add_argument("--training", default="", help="further options of train.py, in one string")
    parser.add_argument("--directions", nargs="+", default=["de-en", "fr-en", "en-de", "en-fr", "de-fr", "fr-de"])
    parser.add_argument("--pairs", type=int, help="of the datastores at most")
    given = parser.parse_args(arguments)
    command = said(parser, given, "multilingual")
    given.model = given.model or train(given)
    steps = Steps.of(given)
    steps.save("multilingual", command, [row for pair in given.directions for row in rows_of(steps, given, pair)])


if __name__ == "__main__":
    main()
