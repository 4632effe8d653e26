"""What `evaluate`, `tune` and `sweep` print: tables for people."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from rich.console import Console
from rich.table import Table
from rich.text import Text

from knnmt.measure.evaluation import Evaluation
from knnmt.measure.sweep import Sweep
from knnmt.measure.tuning import Candidate, Tuning


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for column, side in (("", "left"), ("BLEU", "right"), ("chrF", "right"), ("tokens/s", "right")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for name, scores in (("base", evaluation.base), ("kNN", evaluation.knn)):
        if scores:
            speed = "–" if scores.tokens_per_second is None else f"{scores.tokens_per_second:,.1f}"
            table.add_row(name, f"{scores.bleu:.2f}", f"{scores.chrf:.2f}", speed)
    console.print(table)
    if evaluation.p_value is not None:
        console.print(f"p = {evaluation.p_value:.4f} (paired bootstrap on BLEU, {evaluation.sentences:,} sentences)")
    for name, signature in evaluation.signature.items():
        console.print(Text(f"{name}: {signature}", style="dim"), soft_wrap=True)


def show_tuning(tuning: Tuning, console: Console) -> None:
    """Every setting that was decoded, the chosen one first."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "k", "temperature", "weight", "likelihood", "BLEU", "sentences"):
        table.add_column(column, justify="left" if column == "" else "right", no_wrap=True)
    for candidate in tuning.candidates:
        settings, style = candidate.settings.fixed, "bold" if candidate is tuning.chosen else ""
        retrieval = (f"{settings.k}", f"{settings.temperature:g}") if settings.weight else ("–", "–")
        likelihood = "–" if candidate.likelihood is None else f"{candidate.likelihood:.3f}"
        scores = (likelihood, f"{candidate.bleu:.2f}", f"{candidate.sentences:,}")
        table.add_row(origin_of(candidate), *retrieval, f"{settings.weight:g}", *scores, style=style)
    console.print(table)
    show_tuning_cost(tuning, console)


def origin_of(candidate: Candidate) -> str:
    """`likeliest`, `skipping 12% at 0.8`."""
    certain = candidate.settings.fixed.certain
    return f"{candidate.origin} {candidate.skipped:.0%} at {certain:g}" if certain < 1 else candidate.origin


def show_tuning_cost(tuning: Tuning, console: Console) -> None:
    chosen, surface = tuning.chosen.settings.fixed, tuning.surface
    points = surface.likelihoods.size
    left_out = f"; {surface.left_out:,} pairs empty or too long were left out of it" if surface.left_out else ""
    skipping = f", certain {chosen.certain:g}" if chosen.certain < 1 else ""
    console.print(f"chosen: k {chosen.k}, temperature {chosen.temperature:g}, weight {chosen.weight:g}{skipping}")
    if chosen.weight == 0:
        console.print("the memory did not help on this text, so the store now translates as the model alone would;")
        console.print("`knnmt rollback` takes that back")
    console.print(f"likelihood of {points:,} settings on {surface.tokens:,} reference tokens{left_out}")
    console.print(f"cost: {tuning.seconds:,.0f} s, as {tuning.plain_decodes:.1f} decodes by the model alone")
    for name, signature in tuning.signature.items():
        console.print(Text(f"{name}: {signature}", style="dim"), soft_wrap=True)


def show_sweep(sweep: Sweep, console: Console) -> None:
    """One line for each setting, the model alone first."""
    table = Table(box=None, pad_edge=False)
    for column in ("k", "temperature", "weight", "beam", "nprobe", "entries", "BLEU", "chrF", "tokens/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in dict.fromkeys(sweep.results.values()):  # two points may come to the same, such as nprobe and its default
        settings = (row.k, row.temperature, row.weight, row.beam, row.nprobe)
        entries = "–" if row.entries is None else f"{row.entries:,}"
        shown = ("–" if value is None else f"{value:g}" for value in settings)
        table.add_row(*shown, entries, f"{row.bleu:.2f}", f"{row.chrf:.2f}", f"{row.tokens_per_second:,.1f}")
    console.print(table)


def marked(words: Sequence[str], good: set[int], style: str) -> Text:
    """A sentence with some of its words marked."""
    text = Text()
    for position, word in enumerate(words):
        text.append(word, style=style if position in good else "")
        text.append(" ")
    text.right_crop(1)
    return text


def words_also_in(words: Sequence[str], reference: Sequence[str]) -> set[int]:
    """Positions of the words that stand in the reference too, in its order."""
    blocks = SequenceMatcher(None, words, reference, autojunk=False).get_matching_blocks()
    return {block.a + offset for block in blocks for offset in range(block.size)}
