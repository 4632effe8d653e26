"""Plots of a sweep: BLEU above, speed below, one column per axis."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from knnmt.files import write_durably
from knnmt.measure.sweep import Point, Row, Sweep, lines

COLUMN_INCHES, HEIGHT_INCHES = 4.2, 6.6
NAMES = {
    "k": "k, neighbours per step",
    "temperature": "temperature",
    "size": "entries in the datastore",
    "nprobe": "clusters searched",
    "beam": "beams",
}
GREY = "0.45"


def draw_sweep(sweep: Sweep, file: Path) -> None:
    """Plot a sweep to a PNG or SVG file. The file ending selects the format."""
    from matplotlib.figure import Figure

    columns = panels(sweep)
    width = max(2, len(columns)) * COLUMN_INCHES
    figure = Figure(figsize=(width, HEIGHT_INCHES), layout="constrained")
    rows = figure.subplots(2, len(columns), sharex="col", squeeze=False)
    for column, (axis, axis_lines) in enumerate(columns.items()):
        for axes, measure in ((rows[0][column], "bleu"), (rows[1][column], "tokens_per_second")):
            draw_panel(axes, sweep, axis, axis_lines, measure)
        rows[1][column].set_xlabel(NAMES[axis])
    rows[0][0].set_ylabel("BLEU")
    rows[1][0].set_ylabel("tokens per second")
    figure.suptitle(title_of(sweep), fontsize="medium")
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix.lower()[1:], dpi=150)
    write_durably(file, lambda out: out.write(picture.getvalue()))


def panels(sweep: Sweep) -> dict[str, list[list[Point]]]:
    """The lines of each axis that was swept."""
    found: dict[str, list[list[Point]]] = {}
    for axis, points in lines(sweep.base, sweep.axes):
        found.setdefault(axis, []).append(points)
    return found


def title_of(sweep: Sweep) -> str:
    base, row = sweep.base.settings, next(iter(sweep.results.values()))
    size = "" if sweep.base.size == 1 else f", {sweep.base.size:.0%} of the datastore"
    searched = next((one.nprobe for point, one in sweep.results.items() if point == sweep.base and one.nprobe), None)
    size += f", {searched} clusters searched" if searched else ""
    return (
        f"where not swept: k {base.fixed.k}, temperature {base.fixed.temperature:g}, weight {base.fixed.weight:g}, "
        f"beam {base.beam}{size}; {row.sentences:,} sentences"
    )


def draw_panel(axes: Any, sweep: Sweep, axis: str, axis_lines: Sequence[Sequence[Point]], measure: str) -> None:
    """One measure over one setting: a line for each temperature, and the model alone."""
    for points in axis_lines:
        rows = [sweep.results[point] for point in points]
        heights = [getattr(row, measure) for row in rows]
        axes.plot(
            [along_axis(row, axis) for row in rows], heights, marker="o", label=label_of(axis, points, axis_lines)
        )
    draw_model_alone(axes, sweep, axis, measure)
    values = sorted({along_axis(sweep.results[point], axis) for points in axis_lines for point in points})
    set_scale(axes, values)
    axes.grid(alpha=0.3)
    if measure == "bleu":
        axes.legend(fontsize="small")
    else:
        axes.set_ylim(bottom=0)


def label_of(axis: str, points: Sequence[Point], axis_lines: Sequence[Sequence[Point]]) -> str:
    return (
        f"temperature {points[0].settings.fixed.temperature:g}"
        if axis == "k" and len(axis_lines) > 1
        else "with retrieval"
    )


def draw_model_alone(axes: Any, sweep: Sweep, axis: str, measure: str) -> None:
    """A horizontal line, or a curve over beam sizes, for the model alone."""
    style = {"color": GREY, "linestyle": "--", "label": "model alone"}
    if axis != "beam":
        axes.axhline(getattr(sweep.alone(sweep.base.settings.beam), measure), **style)
        return
    beams = sweep.axes.swept("beam")
    axes.plot(beams, [getattr(sweep.alone(beam), measure) for beam in beams], marker="o", **style)


def along_axis(row: Row, axis: str) -> float:
    """The x value of a row. For sizes it is the number of entries."""
    return float(getattr(row, "entries" if axis == "size" else axis))


def set_scale(axes: Any, values: Sequence[float]) -> None:
    """One tick per value, logarithmic if they are far apart."""
    if values[-1] >= 8 * values[0]:
        axes.set_xscale("log")
    axes.set_xticks(values, [short(value) for value in values], minor=False)
    axes.minorticks_off()


def short(value: float) -> str:
    """`12,345` is `12k`."""
    for least, letter in ((1e6, "M"), (1e4, "k")):
        if value >= least:
            return f"{value / (1e6 if letter == 'M' else 1e3):.3g}{letter}"
    return f"{value:g}"
