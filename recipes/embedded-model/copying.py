"""Make pairs that teach a model to copy: the same random thing in the same place on both sides.

A pair is fit if its sides share a number or a name, each standing exactly once on each side. The thing then
takes its place, or goes around it, or in front of or behind the sentence.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from text import read_lines, read_pairs, write_lines
from things import TAGS, thing, word

ANCHOR = re.compile(r"\b(?:[A-Z][\w-]{2,}|\d[\d.,:]*\d|\d)\b")
AROUND = 0.15  # of the pairs keep what they share and get tags or quotes around it
OUTSIDE = 0.25  # of the pairs get a further thing in front or behind
QUOTES = (('"', '"', '"', '"'), ("„", "“", "“", "”"), ("'", "'", "'", "'"), ("»", "«", "“", "”"), ("(", ")", "(", ")"))
JOINTS = (("", " "), ("", ": "), (" ", ""), (": ", ""), ("", ""))  # after a thing in front, before one behind


def anchors(source: str, target: str) -> list[str]:
    """What stands exactly once on each side."""
    counts = [Counter(ANCHOR.findall(side)) for side in (source, target)]
    return [text for text, times in counts[0].items() if times == 1 and counts[1][text] == 1]


def put(pair: tuple[str, str], anchor: str, replacements: tuple[str, str]) -> tuple[str, str]:
    """Replace the anchor where it stands as a word of its own."""
    place = re.compile(rf"\b{re.escape(anchor)}\b")
    source, target = (
        place.sub(lambda _, text=text: text, side, count=1) for side, text in zip(pair, replacements, strict=True)
    )
    return source, target


def wrapped(anchor: str, choose: Random) -> tuple[str, str]:
    if choose.random() < 0.5:
        opening, closing, target_opening, target_closing = choose.choice(QUOTES)
        inner = choose.choice((anchor, thing(choose)))
        return f"{opening}{inner}{closing}", f"{target_opening}{inner}{target_closing}"
    kind = choose.choice((*TAGS, word(choose)))
    both = f"<{kind}>{anchor}</{kind}>"
    return both, both


def outside(pair: tuple[str, str], choose: Random) -> tuple[str, str]:
    added, (after, before) = thing(choose), choose.choice(JOINTS)
    if (after and not before) or choose.random() < 0.5:
        joint = after or " "
        return f"{added}{joint}{pair[0]}", f"{added}{joint}{pair[1]}"
    joint = before or choose.choice(("", " "))
    return f"{pair[0]}{joint}{added}", f"{pair[1]}{joint}{added}"


def augment(pair: tuple[str, str], choose: Random) -> tuple[str, str] | None:
    """The pair with something to copy, or None if it has no place for it."""
    places = anchors(*pair)
    if not places:
        return None
    choose.shuffle(places)
    for anchor in places[: choose.choice((1, 1, 2, 3))]:
        if choose.random() < AROUND:
            pair = put(pair, anchor, wrapped(anchor, choose))
        else:
            copied = thing(choose)
            pair = put(pair, anchor, (copied, copied))
    return outside(pair, choose) if choose.random() < OUTSIDE else pair


def augmented(pairs: Iterable[tuple[str, str]], *, seed: int, longest: int) -> Iterator[tuple[str, str]]:
    """Every fit pair once, in the order of the text; a function of the text and the seed."""
    choose = Random(seed)
    for pair in pairs:
        if max(len(side) for side in pair) <= longest and (made := augment(pair, choose)):
            yield made


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs=2, type=Path, action="append", required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument(
        "--exclude", type=Path, action="append", default=[], help="source lines to leave out; repeatable"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PREFIX", help="gets .source and .target")
    parser.add_argument("--pairs", type=int, default=100_000, help="at most so many, drawn at random")
    parser.add_argument("--longest", type=int, default=300, metavar="CHARACTERS", help="of a side, before")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    excluded = frozenset(line for path in options.exclude for line in read_lines(path))
    pairs = (pair for corpus in options.corpus for pair in read_pairs(*corpus) if pair[0] not in excluded)
    made = list(augmented(pairs, seed=options.seed, longest=options.longest))
    chosen = made if len(made) <= options.pairs else Random(options.seed).sample(made, options.pairs)
    for side, suffix in enumerate(("source", "target")):
        write_lines(Path(f"{options.output}.{suffix}"), (pair[side] for pair in chosen))
    print(f"{len(made)} pairs made, {len(chosen)} written", file=sys.stderr)


if __name__ == "__main__":
    main()
