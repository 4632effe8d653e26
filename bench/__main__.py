"""`python -m bench`: every benchmark, one table each, and bench/results/latest.json."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.adding import adding
from bench.building import build_against_forward
from bench.decoding import search_against_generate
from bench.memory import peak_memory

ADDED_TO = 1_000_000
RESULTS = Path(__file__).parent / "results" / "latest.json"
BENCHMARKS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "building": lambda arguments: build_against_forward(arguments.repeats),
    "decoding": lambda arguments: search_against_generate(arguments.repeats),
    "adding": lambda arguments: adding(ADDED_TO, arguments.repeats),
    "memory": lambda arguments: peak_memory(arguments.entries),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; all by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--entries", type=int, default=3_000_000, help="of the store whose memory is measured")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in arguments.names or BENCHMARKS:
        results[name] = BENCHMARKS[name](arguments)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
