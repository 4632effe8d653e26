"""Make pairs that teach a model to copy: the same random thing in the same place on both sides.

A pair is fit if its sides share a number or a name, each standing exactly once on each side. The thing then
takes its place, or goes around it, or in front of or behind the sentence. Some pairs are joined with those before, so
that several sentences have things in them, and a few lines are nothing but things or a list of them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

from text import read_lines, read_pairs, write_lines
from things import KINDS, TAGS, Chooser, thing, word

ANCHOR = re.compile(r"\b(?:[A-Z][\w-]{2,}|\d[\d.,:]*\d|\d)\b")
AROUND = 0.15  # of the pairs keep what they share and get tags or quotes around it
OUTSIDE = 0.25  # of the pairs get a further thing in front or behind
QUOTES = (('"', '"', '"', '"'), ("„", "“", "“", "”"), ("'", "'", "'", "'"), ("»", "«", "“", "”"), ("(", ")", "(", ")"))
AGAIN = 0.2  # of the things stand in a second place, too
JOINED = 0.45  # of the pairs are joined with the one before, which may be joined itself
BARE = 0.1  # of the lines are nothing but things
LISTED = 0.3  # of these are lists in words
LEADS = (("", ""), ("", ""), ("Siehe auch ", "See also "), ("Siehe ", "See "), ("Zum Beispiel ", "For example "))
COMMON = range(200, 20_000)  # ranks of the words of which things are made
JUNCTIONS, ENGLISH = (("und", "."), ("oder", "."), ("und", "")), {"und": "and", "oder": "or"}
JOINTS = (("", " "), ("", ": "), (" ", ""), (": ", ""), ("", ""))  # after a thing in front, before one behind


def anchors(source: str, target: str) -> list[str]:
    """What stands exactly once on each side."""
    counts = [Counter(ANCHOR.findall(side)) for side in (source, target)]
    return [text for text, times in counts[0].items() if times == 1 and counts[1][text] == 1]


def put(pair: tuple[str, str], anchor: str, replacements: tuple[str, str]) -> tuple[str, str]:
    """Replace the anchor where it stands as a word of its own."""
    place = re.compile(rf"\b{re.escape(anchor)}\b")
    source, target = (
        place.sub(text.replace("\\", r"\\"), side, count=1) for side, text in zip(pair, replacements, strict=True)
    )
    return source, target


def wrapped(anchor: str, choose: Chooser) -> tuple[str, str]:
    if choose.random() < 0.5:
        opening, closing, target_opening, target_closing = choose.choice(QUOTES)
        inner = choose.choice((anchor, thing(choose)))
        return f"{opening}{inner}{closing}", f"{target_opening}{inner}{target_closing}"
    kind = choose.choice((*TAGS, word(choose)))
    both = f"<{kind}>{anchor}</{kind}>"
    return both, both


def outside(pair: tuple[str, str], choose: Chooser) -> tuple[str, str]:
    added, (after, before) = thing(choose), choose.choice(JOINTS)
    if (after and not before) or choose.random() < 0.5:
        joint = after or " "
        return f"{added}{joint}{pair[0]}", f"{added}{joint}{pair[1]}"
    joint = before or choose.choice(("", " "))
    return f"{pair[0]}{joint}{added}", f"{pair[1]}{joint}{added}"


def augment(pair: tuple[str, str], choose: Chooser) -> tuple[str, str] | None:
    """The pair with something to copy, or None if it has no place for it."""
    places = anchors(*pair)
    if not places:
        return None
    choose.shuffle(places)
    copied = thing(choose)
    for anchor in places[: choose.choice((1, 1, 2, 3))]:
        copied = copied if choose.random() < AGAIN else thing(choose)
        around = choose.random() < AROUND
        pair = put(pair, anchor, wrapped(anchor, choose) if around else (copied, copied))
    return outside(pair, choose) if choose.random() < OUTSIDE else pair


def listed(choose: Chooser) -> tuple[str, str]:
    """Things of one kind as a list, of which only the words between them are translated."""
    make, lead = choose.choice([maker for maker, _ in KINDS]), choose.choice(LEADS)
    *first, last = (make(choose) for _ in range(choose.randint(2, 5)))
    (joint, end), joined = choose.choice(JUNCTIONS), ", ".join(first)
    return f"{lead[0]}{joined} {joint} {last}{end}", f"{lead[1]}{joined} {ENGLISH[joint]} {last}{end}"


def bare(choose: Chooser) -> tuple[str, str]:
    """A line that a translation does not change."""
    if choose.random() < LISTED:
        return listed(choose)
    line = " ".join(thing(choose) for _ in range(choose.choice((1, 1, 2, 4, 8))))
    return line, line


def lexicon_of(lines: Iterable[str]) -> tuple[str, ...]:
    """Words of the text that are neither among the most frequent nor rare, in small letters."""
    counts = Counter(word for line in lines for word in re.findall(r"[A-Za-z]{3,12}", line))
    return tuple(word.lower() for word, _ in islice(counts.most_common(COMMON.stop), COMMON.start, None))


def augmented(
    pairs: Iterable[tuple[str, str]], *, seed: int, longest: int, lexicon: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Every fit pair once, in the order of the text; a function of the text and the seed."""
    choose = Chooser(seed)
    choose.lexicon = tuple(lexicon) or choose.lexicon
    before: tuple[str, str] | None = None
    for pair in pairs:
        if max(len(side) for side in pair) > longest or not (made := augment(pair, choose)):
            continue
        if before and max(map(len, (*before, *made))) < longest and choose.random() < JOINED:
            made = f"{before[0]} {made[0]}", f"{before[1]} {made[1]}"
        yield made
        before = made
        if choose.random() < BARE:
            yield bare(choose)


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
    pairs = [pair for corpus in options.corpus for pair in read_pairs(*corpus) if pair[0] not in excluded]
    lexicon = lexicon_of(pair[0] for pair in pairs)
    made = list(augmented(pairs, seed=options.seed, longest=options.longest, lexicon=lexicon))
    chosen = made if len(made) <= options.pairs else Random(options.seed).sample(made, options.pairs)
    for side, suffix in enumerate(("source", "target")):
        write_lines(Path(f"{options.output}.{suffix}"), (pair[side] for pair in chosen))
    print(f"{len(made)} pairs made, {len(chosen)} written", file=sys.stderr)


if __name__ == "__main__":
    main()
