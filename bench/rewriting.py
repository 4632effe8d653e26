"""Documents of 10 MB and 50,000 units, read and written without a model: memory in file sizes, and time a unit."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.peak import peak_of

UNITS = 50_000
BAR = 10.0  # of XML: memory in file sizes
PADDING = "x" * 60

# Opens the document, and rewrites it with each source as its translation; without a file, what the imports take.
CODE = """
import sys, time
from pathlib import Path
from knnmt.documents.content import UnitResult
from knnmt.documents.document import DocumentOptions
from knnmt.documents.kinds import open_document
if len(sys.argv) > 1:
    begun = time.perf_counter()
    document = open_document(Path(sys.argv[1]), options=DocumentOptions(target_lang="en"))
    with open(sys.argv[1] + ".out", "wb") as out:
        document.write((UnitResult(unit.source, confidence=0.5) for unit in document.units()), out)
    Path(sys.argv[1] + ".seconds").write_text(str(time.perf_counter() - begun))
"""

TEXT = "Satz {0} hat ein Zeichen wie & und 🙂"


def xliff_1(units: int) -> str:
    text = TEXT.replace("&", '&amp;<g id="1">hier</g>')
    unit = '<trans-unit id="{0}">\n<source>' + text + f"</source>\n<note>{PADDING}</note>\n</trans-unit>\n"
    body = "".join(unit.format(number) for number in range(units))
    head = '<xliff version="1.2"><file original="a" datatype="x" source-language="de" target-language="en"><body>'
    return f"{head}{body}</body></file></xliff>"


def xliff_2(units: int) -> str:
    text = TEXT.replace("&", '&amp;<pc id="1">hier</pc>')
    unit = '<unit id="{0}"><notes><note>' + PADDING + "</note></notes>\n<segment><source>" + text
    body = "".join(unit.format(number) + "</source></segment></unit>\n" for number in range(units))
    head = '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de" trgLang="en"><file id="f">'
    return f"{head}{body}</file></xliff>"


def repeated(form: str) -> Callable[[int], str]:
    return lambda units: "".join(form.format(TEXT.format(number)) for number in range(units))


KINDS: dict[str, Callable[[int], str]] = {
    "1.xlf": xliff_1,
    "2.xlf": xliff_2,
    "a.po": repeated(f'#: {PADDING}\nmsgid "{{0}}"\nmsgstr ""\n\n'),
    "a.csv": repeated(f'"{{0}} {PADDING}",""\n'),
    "a.jsonl": repeated(f'{{{{"source": "{{0}}", "note": "{PADDING}"}}}}\n'),
    "a.txt": repeated(f"{{0}} {PADDING}\n"),
    "a.srt": repeated(f"1\n00:00:01,000 --> 00:00:02,000\n{{0}}\n{PADDING}\n\n"),
    "a.html": repeated(f"<p class='{PADDING}'>{{0}} <b>hier</b></p>\n"),
    "a.md": repeated(f"- {{0}} **hier** {PADDING}\n\n"),
}


def rewriting(units: int = UNITS) -> list[dict[str, Any]]:
    """A row a kind; only XML has a bar."""
    baseline = peak_of(CODE)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row_of(Path(folder) / name, make(units), units, baseline) for name, make in KINDS.items()]
    show(rows, units)
    return rows


def row_of(path: Path, text: str, units: int, baseline: int) -> dict[str, Any]:
    data = text.encode()
    path.write_bytes(data)
    peak = peak_of(CODE, str(path))
    seconds = float(path.with_name(f"{path.name}.seconds").read_text())
    return {
        "kind": path.name,
        "megabytes": round(len(data) / 1e6, 1),
        "memory": round((peak - baseline) / len(data), 2),
        "microseconds": round(seconds / units * 1e6, 1),
    }


def show(rows: list[dict[str, Any]], units: int) -> None:
    table = Table(
        "document", "MB", "memory / file size", "µs a unit", title=f"{units:,} units, no model; XML bar {BAR:g}"
    )
    for row in rows:
        table.add_row(row["kind"], f"{row['megabytes']}", f"{row['memory']}", f"{row['microseconds']}")
    Console().print(table)
