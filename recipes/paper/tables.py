"""Turn the results of the recipes into the tables of docs/results.md, each between its two marker comments.

The signatures of the numbers go to docs/results-signatures.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from steps import Json, read_json

# Khandelwal et al. 2021, domain adaptation with the WMT'19 model: BLEU of the base model and of each memory.
PAPER_DOMAINS = {
    "medical": {"base": 39.91, "in-domain": 54.35, "out-of-domain": 40.22, "all domains": 54.54},
    "law": {"base": 45.71, "in-domain": 61.78, "out-of-domain": 46.74, "all domains": 61.11},
    "it": {"base": 37.98, "in-domain": 45.82, "out-of-domain": 40.27, "all domains": 48.63},
    "koran": {"base": 16.30, "in-domain": 19.45, "out-of-domain": 17.99, "all domains": 19.22},
}
SIGNIFICANT = 0.05
SIGNATURES = "results-signatures.md"
COMMON = ("test", "memory", "entries", "base", "kNN", "gain", "p", "k, T, weight")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def common(row: Json) -> list[str]:
    """The columns that every comparison of base and kNN has."""
    gain = f"{row['knn'] - row['base']:+.2f}"
    return [
        row["test"], row["memory"], f"{row['entries']:,}", f"{row['base']:.2f}", f"{row['knn']:.2f}",
        f"**{gain}**" if row["p"] < SIGNIFICANT and row["knn"] > row["base"] else gain, f"{row['p']:.3f}",
        settings_of(row["signature"]["knnmt"]),
    ]  # fmt: skip


def settings_of(signature: str) -> str:
    parts = dict(part.split(":", 1) for part in signature.split("|"))
    return f"{parts['k']}, {parts['T']}, {parts['weight']}"


def comparison(rows: list[Json]) -> str:
    return table(COMMON, [common(row) for row in rows])


def domains(rows: list[Json]) -> str:
    """With the paper's own numbers beside, where it has them."""
    return table((*COMMON, "paper: base → kNN"), [[*common(row), paper_domain(row)] for row in rows])


def paper_domain(row: Json) -> str:
    known = PAPER_DOMAINS.get(row["test"], {})
    condition = row["memory"].split(",")[0]
    return f"{known['base']:.2f} → {known[condition]:.2f}" if known else "–"


def downsampling(rows: list[Json]) -> str:
    shown = [[*common(row), f"{row['bytes'] / 1e6:,.0f} MB", f"{row['knn_speed']:,.0f}"] for row in rows]
    return table((*COMMON, "size", "kNN tokens/s"), shown)


def figures(rows: list[Json]) -> str:
    """The sweep as `knnmt sweep` wrote it."""
    names = ("k", "temperature", "weight", "beam", "nprobe", "entries", "bleu", "tokens_per_second")
    header = ("k", "T", "weight", "beam", "nprobe", "entries", "BLEU", "tokens/s")
    return table(header, [[row[name] or "–" for name in names] for row in rows])


def finetuning(rows: list[Json]) -> str:
    """Each system's processor time and scores, on the text that it was made for and on another one."""
    kinds = [kind for kind in ("own", "foreign") if f"{kind}_bleu" in rows[0]]
    header = ["system", "CPU seconds", *(f"{kind} text: base → BLEU (p)" for kind in kinds)]
    return table(
        header, [[row["system"], f"{row['seconds']:,}", *(scored(row, kind) for kind in kinds)] for row in rows]
    )


def scored(row: Json, kind: str) -> str:
    """`30.73 → 34.67 (0.021; 0.003)`: p of the differences from the datastore and from the model that it is on."""
    known = [f"{row[name]:.3f}" for name in (f"{kind}_p", f"{kind}_p_on") if row.get(name) is not None]
    return f"{row[f'{kind}_base']:.2f} → {row[f'{kind}_bleu']:.2f}" + (f" ({'; '.join(known)})" if known else "")


KINDS = ("learned", "fixed", "tuned", "paper", "robust", "adaptive")
TITLES = {"fixed": "fixed, fitted to the memory", "tuned": "fixed, tuned on dev text"}


def mixing(rows: list[Json]) -> str:
    """Ways to mix, each as `BLEU, chrF`, first on text of the memories' own kind."""
    systems = [row["systems"] | ({"tuned": row["tuned"]} if "tuned" in row else {}) for row in rows]
    kinds = [kind for kind in KINDS if any(kind in known for known in systems)]
    header = ("memory", "entries", "text", "model alone", *(TITLES.get(kind, kind) for kind in kinds))
    lines = [
        [
            row["memory"],
            f"{row['entries']:,}",
            row["text"],
            mixed(row["base"]),
            *(mixed(known.get(kind)) for kind in kinds),
        ]
        for row, known in sorted(zip(rows, systems, strict=True), key=lambda pair: not pair[0]["own"])
    ]
    return table(header, lines)


def mixed(scores: Json | None) -> str:
    """With p, against the model alone, where the difference may be chance."""
    if scores is None:
        return "–"
    p = scores.get("p_value", 0)
    return f"{scores['bleu']:.2f}, {scores['chrf']:.2f}" + (f" (p {p:.2f})" if p >= SIGNIFICANT else "")


TABLES: dict[str, Callable[[list[Json]], str]] = {
    "single_pair": comparison, "domains": domains, "opus-mt": comparison, "multilingual": comparison,
    "downsampling": downsampling, "figures": figures, "finetuning": finetuning, "finetuning-opus-mt": finetuning,
    "mixing": mixing, "mixing-opus-zh-en": mixing, "mixing-opus-en-fr": mixing,
}  # fmt: skip


def signatures(rows: list[Json]) -> list[str]:
    """What each row's numbers depend on."""
    own = [row["signature"]["knnmt"] if isinstance(row["signature"], dict) else row["signature"] for row in rows]
    return list(dict.fromkeys(own))


def section(record: Json, name: str) -> str:
    rows = record["rows"]
    first = rows[0]
    bleu = first["signature"]["bleu"] if isinstance(first["signature"], dict) else first["bleu_signature"]
    sentences = ", ".join(dict.fromkeys(f"{int(row['sentences']):,}" for row in rows))
    known = f"[signatures]({SIGNATURES}#{name})"
    return f"{TABLES[record['recipe']](rows)}\n\n`{record['command']}`: {sentences} sentences. BLEU: `{bleu}`; {known}."


def put(page: str, name: str, text: str) -> str:
    """The page with the text between the markers of that name."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    if page.count(opening) != 1 or page.count(closing) != 1:
        sys.exit(f"the page needs one {opening} and one {closing}")
    before, rest = page.split(opening)
    return f"{before}{opening}\n{text}\n{closing}{rest.split(closing)[1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("results"), help="where the recipes wrote to")
    parser.add_argument("--page", type=Path, default=Path(__file__).parents[2] / "docs" / "results.md")
    given: Any = parser.parse_args(arguments)
    for name in TABLES:
        file = given.output / "results" / f"{name}.json"
        if file.is_file():
            write(read_json(file), name, given.page)
        else:
            print(f"{file}: not there; its table stays as it is", file=sys.stderr)


def write(record: Json, name: str, page: Path) -> None:
    """The table into the page, its signatures into the page beside it."""
    beside = page.with_name(SIGNATURES)
    page.write_text(put(page.read_text(encoding="utf-8"), name, section(record, name)), encoding="utf-8")
    lines = "\n".join(signatures(record["rows"]))
    beside.write_text(put(beside.read_text(encoding="utf-8"), name, f"```\n{lines}\n```"), encoding="utf-8")


if __name__ == "__main__":
    main()
