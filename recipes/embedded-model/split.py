"""Split a mixed corpus by how much each pair resembles a given sample, so that the parts can be weighted."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from pathlib import Path

from text import read_pairs, write_lines

WORD = re.compile(r"\w+|[^\w\s]")


def words(line: str) -> list[str]:
    return WORD.findall(line.lower())


def count_words(lines: Iterable[Sequence[str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    return counts


def log_odds(alike: Counter[str], others: Counter[str]) -> dict[str, float]:
    """Naive Bayes with add-one smoothing: how much each word speaks for the sample."""
    vocabulary = alike.keys() | others.keys()
    alike_total = alike.total() + len(vocabulary)
    others_total = others.total() + len(vocabulary)
    prior = log(others_total / alike_total)
    return {word: log((alike[word] + 1) / (others[word] + 1)) + prior for word in vocabulary}


def resembles(lines: Sequence[Sequence[str]], sample: Counter[str], *, rounds: int) -> list[bool]:
    """Tell for each line whether it reads like the sample.

    What the others look like is unknown at first, so the whole corpus stands for them,
    and each round estimates them anew from the lines that were not like the sample.
    """
    verdicts = [False] * len(lines)
    for _ in range(rounds):
        others = count_words(line for line, alike in zip(lines, verdicts, strict=True) if not alike)
        odds = log_odds(sample, others)
        verdicts = [sum(odds.get(word, 0.0) for word in line) > 0 for line in lines]
    return verdicts


def part_name(*, alike: bool, length: int, long: int) -> str:
    if alike:
        return "alike"
    return "other-long" if length >= long else "other-short"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs=2, type=Path, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--sample", nargs=2, type=Path, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--output", type=Path, required=True, metavar="PREFIX")
    parser.add_argument("--long", type=int, default=15, metavar="WORDS", help="source words of a long pair")
    parser.add_argument("--rounds", type=int, default=4)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    pairs = list(read_pairs(*options.corpus))
    lines = [words(f"{source} {target}") for source, target in pairs]
    sample = count_words(words(f"{source} {target}") for source, target in read_pairs(*options.sample))
    parts: dict[str, list[tuple[str, str]]] = {}
    for pair, alike in zip(pairs, resembles(lines, sample, rounds=options.rounds), strict=True):
        name = part_name(alike=alike, length=len(words(pair[0])), long=options.long)
        parts.setdefault(name, []).append(pair)
    for name, members in sorted(parts.items()):
        for side, suffix in enumerate(("source", "target")):
            write_lines(Path(f"{options.output}.{name}.{suffix}"), (pair[side] for pair in members))
        print(f"{name}: {len(members)} pairs", file=sys.stderr)


if __name__ == "__main__":
    main()
