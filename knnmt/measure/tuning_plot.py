"""Plots a tuning: the likelihood of the references over the settings, and which settings were decoded.

The plot has two views of the three settings. Each cell shows the best value over the setting that the view leaves out.
"""

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.errors import SettingsError
from knnmt.files import check_writable, write_durably
from knnmt.measure.candidates import Candidate
from knnmt.measure.tuning import Tuning

ENDINGS = (".png", ".svg")
INCHES = (12.0, 5.3)
COLOURS_FROM = 20  # percentile: the worst corner is so bad that it would take all colours for itself
LABEL_WIDTH = 2  # cells
AXES = ("k", "temperature", "weight")


def check_drawable(file: Path) -> None:
    """Raise before the work begins if the plot cannot be drawn or written."""
    if file.suffix.lower() not in ENDINGS:
        raise SettingsError(f"--plot {file}: must end in {' or '.join(ENDINGS)}")
    check_writable(file, "--plot")
    if find_spec("matplotlib") is None:
        raise SettingsError("--plot needs matplotlib: pip install 'knnmt[plot]'")


def draw_tuning(tuning: Tuning, file: Path) -> None:
    """Plot the result of tuning to a PNG or SVG file. The file ending selects the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_view(left, tuning, across="weight", upwards="temperature")
    colours = draw_view(right, tuning, across="k", upwards="temperature")
    figure.colorbar(colours, ax=[left, right], label="mean log-likelihood of a reference token", extend="min")
    figure.suptitle(title_of(tuning))
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix.lower()[1:], dpi=150)
    write_durably(file, lambda out: out.write(picture.getvalue()))


def title_of(tuning: Tuning) -> str:
    chosen = tuning.chosen.settings.fixed
    values = f"k {chosen.k}, temperature {chosen.temperature:g}, weight {chosen.weight:g}"
    return (
        f"★ {'the learned head' if tuning.chosen.is_learned else values}: "
        f"BLEU {tuning.chosen.bleu:.2f} on {tuning.chosen.sentences:,} of {tuning.lines:,} sentences"
        f"{alone_of(tuning)}\n"
        "colour: likelihood of the references; marks: settings that were decoded, with their BLEU"
    )


def alone_of(tuning: Tuning) -> str:
    """BLEU of the model alone, on as many sentences as it was decoded."""
    alone = next((one for one in tuning.candidates if one.is_alone), tuning.chosen)
    return "" if alone is tuning.chosen else f"; the model alone: {alone.bleu:.2f} on {alone.sentences:,}"


def draw_view(axes: Any, tuning: Tuning, *, across: str, upwards: str) -> Any:
    """One view: colours for likelihood, a mark and its BLEU for every setting that was decoded."""
    surface = tuning.surface
    left_out = next(axis for axis in AXES if axis not in (across, upwards))
    cells = surface.likelihoods.max(axis=AXES.index(left_out))
    cells = cells if AXES.index(upwards) < AXES.index(across) else cells.T
    worst = float(np.percentile(surface.likelihoods, COLOURS_FROM))
    colours = axes.imshow(cells, origin="lower", aspect="auto", cmap="viridis", vmin=worst)
    name_ticks(axes.set_xticks, values_along(tuning, across))
    name_ticks(axes.set_yticks, values_along(tuning, upwards))
    axes.set(xlabel=across, ylabel=upwards, title=f"each cell at its best {left_out}")
    mark(axes, tuning, across, upwards)
    return colours


def values_along(tuning: Tuning, axis: str) -> Sequence[float]:
    grid = tuning.surface.grid
    return {"k": grid.ks, "temperature": grid.temperatures, "weight": grid.weights}[axis]


def name_ticks(set_ticks: Any, values: Sequence[float]) -> None:
    every = 2 if len(values) > 12 else 1
    set_ticks(range(0, len(values), every), [f"{value:g}" for value in values[::every]])


def mark(axes: Any, tuning: Tuning, across: str, upwards: str) -> None:
    """Candidates with retrieval; where several fall on one place, the best of them."""
    marked: dict[tuple[int, int], Candidate] = {}
    for candidate in tuning.candidates:
        if not candidate.is_learned and not candidate.is_alone:
            place = (step_along(tuning, candidate, across), step_along(tuning, candidate, upwards))
            marked.setdefault(place, candidate)
    for (column, row), candidate in marked.items():
        chosen = candidate is tuning.chosen
        axes.plot(column, row, marker="*" if chosen else "o", markersize=16 if chosen else 7, color="red", mec="white")
        # The label stands on the left, or above where another mark is so near that it would be covered.
        crowded = any((column - left, row) in marked for left in range(1, LABEL_WIDTH + 1))
        offset, sides = ((0, 9), ("center", "bottom")) if crowded else ((-9, 0), ("right", "center"))
        axes.annotate(
            f"{candidate.bleu:.2f}", (column, row), xytext=offset, textcoords="offset points", ha=sides[0], va=sides[1],
            color="white", fontweight="bold", bbox={"boxstyle": "round,pad=0.15", "facecolor": "#000000a0", "lw": 0},
        )  # fmt: skip


def step_along(tuning: Tuning, candidate: Candidate, axis: str) -> int:
    return list(values_along(tuning, axis)).index(getattr(candidate.settings.fixed, axis))
