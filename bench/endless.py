"""Memory of `knnmt translate` over very many lines of input, none of which comes twice."""

import itertools
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from knnmt import BuildSettings, build_store, load_model
from knnmt.cli.demo import MODEL, demo_corpus, read_demo

LINES = 1_000_000
SAMPLES = 20
SETTLED = 0.2  # of the lines; until then libraries still make what they keep
RESIDENT = re.compile(r"VmRSS:\s+(\d+) kB")


def endless(lines: int) -> dict[str, Any]:
    """Translate so many lines by the demo's memory, and sample the process's memory on the way."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = build_store(Path(folder) / "store", load_model(MODEL), [demo_corpus("memory")], BuildSettings())
        samples = watched(["translate", "--store", str(store.path), "--beam", "1"], lines)
    settled = next(size for done, size in samples if done >= SETTLED * lines)
    growth = round(samples[-1][1] / settled, 3)
    show(samples, growth)
    return {"samples": samples, "growth": growth}


def watched(arguments: list[str], lines: int) -> list[tuple[int, float]]:
    """The lines that were translated and the megabytes of the process, again and again."""
    command = [sys.executable, "-m", "knnmt", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        feeding = threading.Thread(target=fed, args=(process.stdin, lines), daemon=True)
        feeding.start()
        every = max(1, lines // SAMPLES)
        samples = [
            (done, resident(process.pid)) for done, _ in enumerate(process.stdout, 1) if not done % every
        ]  # read as they come, so that the process never waits
        feeding.join()
    if process.returncode or len(samples) < SAMPLES:
        sys.exit(f"{' '.join(command)}: ended with {process.returncode}")
    return samples


def fed(stdin: IO[bytes], lines: int) -> None:
    with stdin:
        for line in itertools.islice(texts(), lines):
            stdin.write(line.encode())


def texts() -> Iterator[str]:
    """Words of the demo with a number, so that no line is known from before."""
    words = sorted({word for pair in read_demo("memory") for word in pair.source.split() if word.isalpha()})
    for number in itertools.count():
        yield f"{words[number % len(words)]} {number}\n"


def resident(pid: int) -> float:
    found = RESIDENT.search(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return round(int(found.group(1)) * 1024 / 1e6, 1)


def show(samples: list[tuple[int, float]], growth: float) -> None:
    table = Table("lines", "MB")
    for done, size in samples:
        table.add_row(f"{done:,}", f"{size:,.0f}")
    Console().print(table, f"memory at the end ÷ memory after {SETTLED:.0%} of the lines: {growth}")
