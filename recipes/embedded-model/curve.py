"""Draw the validation loss of a run over its target tokens: `python curve.py training.json curve.png`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def points(scores: Sequence[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Each corpus's loss, and the mean, over millions of target tokens; without the average of checkpoints."""
    last = [score for score in scores if score["weights"] == "last"]
    losses = [score["by_corpus"] | {"mean": score["loss"]} for score in last]
    return {
        name: [(score["target_tokens"] / 1e6, loss[name]) for score, loss in zip(last, losses, strict=True)]
        for name in (losses[0] if losses else ())
    }


def draw(scores: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, curve in points(scores).items():
        tokens, losses = zip(*curve, strict=True)
        axes.plot(tokens, losses, marker=".", label=name, linewidth=2.5 if name == "mean" else 1)
    axes.set_xlabel("target tokens, millions")
    axes.set_ylabel("validation loss per token")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["scores"], Path(sys.argv[2]))
