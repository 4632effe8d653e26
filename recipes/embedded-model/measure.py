"""Measure a model against the bars that an embedded model has to reach: BLEU, what it copies, and its speed."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from text import read_lines, write_lines

# The IT test text writes some entities and tags with spaces inside: "& kde;".
COPIED = re.compile(
    r"""
      <[ ]?/?[ ]?[A-Za-z][^<>]*>                     # tags
    | &[ ]?\#?[\w.-]+;                               # entities
    | \$?\{[^{}\s]*\} | \$\[[^\[\]\s]*\]             # {0}, ${name}, $[name]
    | %\(\w+\)[a-z] | %\d+\$[a-z] | %\d+ | %l?[a-zA-Z]\b
    | (?<![\w-])--[a-z][\w-]*(?:=\w+)?              # options
    | (?<!\S)-[A-Za-z](?!\S)
    | (?<![\w/])(?:/[\w.-]*[\w-]){2,} | \w+://[^\s<>,;]*[^\s<>,;.)]  # paths and addresses
    | [\w.]+@\w+\.[\w.]*\w | \b\w+\(\)                # a@b.org, function()
    """,
    re.VERBOSE,
)


def copied(text: str) -> list[str]:
    return COPIED.findall(text)


def count_kept(sources: Sequence[str], translations: Sequence[str]) -> tuple[int, int]:
    """How many things of the sources stand in the translations too, and how many there are."""
    wanted = [Counter(copied(source)) for source in sources]
    found = [Counter(copied(line)) for line in translations]
    kept = sum((want & got).total() for want, got in zip(wanted, found, strict=True))
    return kept, sum(want.total() for want in wanted)


def evaluate(model: str, source: Path, target: Path, *, beam: int) -> dict[str, float]:
    """BLEU and tokens per second by `knnmt evaluate`."""
    call = ["evaluate", "--model", model, "--source", source, "--target", target, "--beam", str(beam), "--json"]
    base = json.loads(knnmt(*map(str, call)))["base"]
    return {"bleu": base["bleu"], "tokens_per_second": base["tokens_per_second"]}


def knnmt(*arguments: str, text: str | None = None) -> str:
    call = [sys.executable, "-m", "knnmt", *arguments]
    return subprocess.run(call, input=text, stdout=subprocess.PIPE, text=True, check=True, encoding="utf-8").stdout


def measure_copying(model: str, source: Path, *, sentences: int, beam: int, save: Path | None) -> dict[str, float]:
    chosen = [line for line in read_lines(source) if copied(line)][:sentences]
    output = knnmt("translate", "--model", model, "--beam", str(beam), text="".join(f"{line}\n" for line in chosen))
    translations = output.removesuffix("\n").split("\n")
    if save:
        write_lines(save, (f"{line}\t{made}" for line, made in zip(chosen, translations, strict=True)))
    kept, all_things = count_kept(chosen, translations)
    return {"sentences": len(chosen), "things": all_things, "kept": kept, "percent": round(100 * kept / all_things, 1)}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder, or builtin:de-en")
    parser.add_argument("--test", nargs=2, type=Path, action="append", default=[], metavar=("SOURCE", "TARGET"))
    parser.add_argument("--copying", type=Path, metavar="SOURCE", help="text with placeholders, tags and options")
    parser.add_argument("--sentences", type=int, default=300, help="of --copying")
    parser.add_argument("--save", type=Path, help="gets the sentences of --copying and their translations")
    parser.add_argument("--limit", type=int, help="only the first pairs of each test text")
    parser.add_argument("--beam", type=int, default=5)
    return parser.parse_args(arguments)


def first_lines(path: Path, limit: int | None, folder: Path) -> Path:
    if limit is None:
        return path
    write_lines(folder / path.name, list(read_lines(path))[:limit])
    return folder / path.name


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    scores = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in options.test:
            source, target = (first_lines(path, options.limit, Path(folder)) for path in pair)
            scores.append(evaluate(options.model, source, target, beam=options.beam))
            print(json.dumps({"test": source.name} | scores[-1]), flush=True)
    if scores:
        print(json.dumps({"mean_bleu": round(sum(score["bleu"] for score in scores) / len(scores), 2)}), flush=True)
    if options.copying:
        found = measure_copying(
            options.model, options.copying, sentences=options.sentences, beam=options.beam, save=options.save
        )
        print(json.dumps(found))


if __name__ == "__main__":
    main()
