"""`python -m bench`: every benchmark, one table or several each, and bench/results/latest.json."""

import argparse
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.ablation import ablation
from bench.adding import adding
from bench.bars import draw_bars
from bench.building import build_against_forward
from bench.clusters import CLUSTERS, clusters
from bench.endless import LINES, endless
from bench.growing import growing
from bench.memory import peak_memory
from bench.peers import peers
from bench.placement import placement
from bench.rewriting import rewriting
from bench.scale import scale
from bench.searching import DIMENSIONS, SIZES, searching
from bench.serving import Served, serving
from bench.shards import shards
from bench.translating import BATCHES, BEAMS, SENTENCES, Plan, translating, where_time_goes
from bench.unit_costs import UNITS, unit_costs
from knnmt.cli.demo import MODEL
from knnmt.errors import KnnmtError, SettingsError
from knnmt.switches import FAST_PATHS

ADDED_TO = 1_000_000
RESULTS = Path(__file__).parent / "results" / "latest.json"
BENCHMARKS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "building": lambda arguments: build_against_forward(arguments.repeats),
    "translating": lambda arguments: translating(plan_of(arguments)),
    "phases": lambda arguments: where_time_goes(plan_of(arguments)),
    "ablation": lambda arguments: ablation(plan_of(arguments), arguments.path or tuple(FAST_PATHS)),
    "searching": lambda arguments: searching(
        tuple(arguments.size or SIZES),
        tuple(arguments.dimension or DIMENSIONS),
        arguments.repeats,
        arguments.keys_of,
        plan_of(arguments),
    ),
    "adding": lambda arguments: adding(ADDED_TO, arguments.repeats),
    "peers": lambda arguments: peers(plan_of(arguments), arguments.knn_transformers),
    "placement": lambda arguments: placement(arguments.model or MODEL, arguments.tagged),
    "growing": lambda arguments: growing(arguments.additions),
    "endless": lambda arguments: endless(arguments.lines),
    "memory": lambda arguments: peak_memory(arguments.entries),
    "rewriting": lambda _: rewriting(),
    "scale": lambda arguments: scale(
        tuple(arguments.size or (300_000, 1_000_000)),
        tuple(arguments.dimension or (256,)),
        arguments.repeats,
        arguments.keys_of,
        arguments.memory << 30,
        arguments.folder,
        arguments.minutes_at_most,
        only_build=arguments.only_build,
    ),
    "clusters": lambda arguments: clusters(tuple(arguments.size or CLUSTERS), arguments.repeats, arguments.keys_of),
    "shards": lambda arguments: shards(plan_of(arguments)),
    "serving": lambda arguments: serving(served_of(arguments)),
    "units": lambda arguments: unit_costs(plan_of(arguments), min(2, arguments.repeats), arguments.units),
}


def main() -> None:
    arguments = parser().parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in arguments.names or runnable(arguments):
        try:
            check_given(name, arguments)
            results[name] = BENCHMARKS[name](arguments)
        except KnnmtError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        if name == "translating":
            draw(results[name], arguments.plot)


def runnable(arguments: argparse.Namespace) -> list[str]:
    """All but those that need something that was not given."""
    given = {"peers": arguments.knn_transformers, "placement": arguments.tagged, "shards": arguments.store}
    return [name for name in BENCHMARKS if name not in given or given[name]]


def check_given(name: str, arguments: argparse.Namespace) -> None:
    if name == "placement" and arguments.tagged is None:
        raise SettingsError("--tagged is missing: an XLIFF whose targets are a human's, with tags")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; all by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--entries", type=int, default=3_000_000, help="of the store whose memory is measured")
    parser.add_argument("--minutes", type=float, default=0.5, help="of overload, where serving is measured")
    parser.add_argument("--flood", type=float, default=0.5, help="minutes of twice what serving can do")
    parser.add_argument("--corrections", type=int, default=60, help="one after another, where serving is measured")
    parser.add_argument("--path", action="append", choices=FAST_PATHS, help="of ablation; again for more (all)")
    parser.add_argument("--knn-transformers", type=Path, metavar="FOLDER", help="a checkout of it, for peers")
    parser.add_argument("--memory", type=int, default=8, help="gigabytes that indexing may take, of scale")
    parser.add_argument("--folder", type=Path, help="of scale: keeps what was done, so that the next call goes on")
    parser.add_argument("--minutes-at-most", type=float, help="of scale, with --folder: building stops then")
    parser.add_argument("--only-build", action="store_true", help="of scale, with --folder: a later call searches")
    parser.add_argument("--tagged", type=Path, metavar="XLIFF", help="human translations with tags, for placement")
    parser.add_argument("--additions", type=int, default=10_000, help="of growing: one pair each")
    parser.add_argument("--lines", type=int, default=LINES, help=f"of endless ({LINES:,})")
    parser.add_argument("--units", type=int, default=UNITS, help=f"of the document of units ({UNITS:,})")
    group = parser.add_argument_group("searching")
    group.add_argument("--size", type=int, action="append", help="entries; again for more rows (10⁵, 10⁶ and 10⁷)")
    group.add_argument("--dimension", type=int, action="append", help="of synthetic keys (256, 512 and 1024)")
    group.add_argument("--keys-of", metavar="STORE", help="make the keys out of a store's own and not synthetic ones")
    add_options_of_translating(parser.add_argument_group("translating"))
    return parser


def add_options_of_translating(group: Any) -> None:
    group.add_argument("--store", action="append", default=[], help="FOLDER or NAME=FOLDER; again for more rows")
    group.add_argument("--model", help="by default the one that the first store names, else the embedded one")
    group.add_argument("--source", type=Path, help="a sentence a line; by default the demo's test sentences")
    group.add_argument("--target", type=Path, help="their references, for BLEU")
    group.add_argument("--sentences", type=int, default=SENTENCES, help="the first N that are not empty (32)")
    group.add_argument("--batch", type=int, action="append", help="again for more tables (32 and 1)")
    group.add_argument("--beam", type=int, action="append", help="again for more tables (5 and 1)")
    group.add_argument("--threads", type=int, help="of every system; by default what PyTorch takes")
    group.add_argument("--k", type=int, help="neighbours; by default as the store was tuned")
    group.add_argument("--exact", action="store_true", help="a second row for each store: the paper's plain method")
    group.add_argument(
        "--index", action="append", help="a FAISS factory; one more row for each store with such an index"
    )
    group.add_argument("--precision", action="append", help="one more row for each store in this precision")
    group.add_argument("--mixing", action="append", help="one more row for each store with this kind of mixing")
    group.add_argument("--plot", type=picture, default=RESULTS.with_name("translating.png"), help="PNG or SVG")


def plan_of(arguments: argparse.Namespace) -> Plan:
    return Plan(
        model=arguments.model,
        stores=tuple(arguments.store),
        source=arguments.source,
        target=arguments.target,
        sentences=arguments.sentences,
        batches=tuple(arguments.batch or BATCHES),
        beams=tuple(arguments.beam or BEAMS),
        repeats=arguments.repeats,
        threads=arguments.threads,
        k=arguments.k,
        exact=arguments.exact,
        indexes=tuple(arguments.index or ()),
        precisions=tuple(arguments.precision or ()),
        mixings=tuple(arguments.mixing or ()),
    )


def served_of(arguments: argparse.Namespace) -> Served:
    return Served(
        store=arguments.store[0] if arguments.store else None,
        model=arguments.model,
        source=arguments.source,
        minutes=arguments.minutes,
        flood=arguments.flood,
        corrections=arguments.corrections,
    )


def picture(text: str) -> Path:
    """Checked before hours of measuring."""
    if not text.lower().endswith((".png", ".svg")):
        raise argparse.ArgumentTypeError(f"{text}: must end in .png or .svg")
    return Path(text)


def draw(result: dict[str, Any], file: Path) -> None:
    if find_spec("matplotlib"):
        draw_bars(result, file)
    else:
        Console().print("matplotlib is not installed, so no picture is drawn: pip install 'knnmt\\[bench]'")


if __name__ == "__main__":
    main()
