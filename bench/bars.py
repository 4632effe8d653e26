"""A picture of the ratios: a panel for each setting, a bar with its spread for each system."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH_INCHES, BAR_INCHES, PANEL_INCHES = 8.0, 0.32, 0.75
GREY, BLUE = "0.6", "tab:blue"


def draw_bars(result: Mapping[str, Any], file: Path) -> None:
    """Write the picture as PNG or SVG, as the file's ending says."""
    from matplotlib.figure import Figure

    tables = result["tables"]
    height = sum(PANEL_INCHES + BAR_INCHES * len(table["rows"]) for table in tables)
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    panels = figure.subplots(len(tables), 1, sharex=True, squeeze=False)[:, 0]
    for axes, table in zip(panels, tables, strict=True):
        draw_panel(axes, table)
    panels[-1].set_xlabel("speed ÷ speed of `generate` without retrieval; median, lowest and highest round")
    figure.suptitle(f"{result['model']}, {result['sentences']} sentences, threads: {result['threads']}")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def draw_panel(axes: Any, table: Mapping[str, Any]) -> None:
    """The first row on top; ours are blue, the others grey."""
    names, rows = list(table["rows"]), list(table["rows"].values())
    axes.barh(
        names,
        [row["ratio"] for row in rows],
        xerr=spread(rows),
        color=[BLUE if name.startswith("knnmt") else GREY for name in names],
        capsize=3,
    )
    for place, row in enumerate(rows):
        end = max(row["highest"], 1)  # clear of the line at 1
        axes.annotate(label(row), (end, place), (6, 0), textcoords="offset points", va="center", size="small")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.margins(x=0.25)
    axes.invert_yaxis()
    axes.set_title(f"batch {table['batch']}, beam {table['beam']}", fontsize="medium")


def spread(rows: Sequence[Mapping[str, float]]) -> list[list[float]]:
    """How far the lowest and the highest round are from the median."""
    return [[row["ratio"] - row["lowest"] for row in rows], [row["highest"] - row["ratio"] for row in rows]]


def label(row: Mapping[str, float]) -> str:
    return f"{row['ratio']:.2f}" + (f", BLEU {row['bleu']:.1f}" if "bleu" in row else "")
