"""What `evaluate`, `tune` and `sweep` print: tables for people."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from rich.console import Console
from rich.table import Table
from rich.text import Text

from knnmt.measure.candidates import Candidate
from knnmt.measure.evaluation import Evaluation, Scores
from knnmt.measure.sweep import Sweep
from knnmt.measure.tuning import Tuning


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for column, side in (("", "left"), ("BLEU", "right"), ("chrF", "right"), ("tokens/s", "right")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    several: dict[str, Scores | None] = {kind: mixed.scores for kind, mixed in (evaluation.mixing or {}).items()}
    for name, scores in {"base": evaluation.base, **(several or {"kNN": evaluation.knn})}.items():
        if scores:
            speed = "–" if scores.tokens_per_second is None else f"{scores.tokens_per_second:,.1f}"
            table.add_row(name, f"{scores.bleu:.2f}", f"{scores.chrf:.2f}", speed)
    console.print(table)
    for line in p_values_of(evaluation):
        console.print(line)
    if evaluation.p_value is not None and not several:
        console.print(f"p = {evaluation.p_value:.4f} (paired bootstrap on BLEU, {evaluation.sentences:,} sentences)")
    for name, signature in evaluation.signature.items():
        console.print(Text(f"{name}: {signature}", style="dim"), soft_wrap=True)


def p_values_of(evaluation: Evaluation) -> Iterator[str]:
    """A line for each of several ways to mix."""
    kinds = list(evaluation.mixing or {})
    for kind, mixed in (evaluation.mixing or {}).items():
        of_first = "" if mixed.p_value_of_first is None else f", from {kinds[0]} {mixed.p_value_of_first:.4f}"
        yield f"{kind}: p of the difference from base {mixed.p_value:.4f}{of_first} (paired bootstrap on BLEU)"
    for kind in kinds[1:]:
        yield f"{kind}: {evaluation.mixing[kind].signature}" if evaluation.mixing else ""


def show_tuning(tuning: Tuning, console: Console) -> None:
    """Every setting that was decoded, the chosen one first."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "k", "temperature", "weight", "likelihood", "BLEU", "sentences"):
        table.add_column(column, justify="left" if column == "" else "right", no_wrap=True)
    for candidate in tuning.candidates:
        settings, style = candidate.settings.fixed, "bold" if candidate is tuning.chosen else ""
        values = (f"{settings.k}", f"{settings.temperature:g}", f"{settings.weight:g}")
        if candidate.is_learned or candidate.is_alone:
            values = ("–", "–", "0" if candidate.is_alone else "–")
        likelihood = "–" if candidate.likelihood is None else f"{candidate.likelihood:.3f}"
        scores = (likelihood, f"{candidate.bleu:.2f}", f"{candidate.sentences:,}")
        table.add_row(origin_of(candidate), *values, *scores, style=style)
    console.print(table)
    for line in harm_lines(tuning):
        console.print(line)
    show_tuning_cost(tuning, console)


def origin_of(candidate: Candidate) -> str:
    """`likeliest`, `learned, 12% of steps without a search`."""
    if candidate.is_learned and candidate.skipped:
        return f"{candidate.origin}, {candidate.skipped:.0%} of steps without a search"
    return candidate.origin


def harm_lines(tuning: Tuning) -> Iterator[str]:
    """How each kind of mixing changes foreign text; the best of each kind."""
    for harm in tuning.harm:
        scored = "" if harm.bleu is None else f"; {harm.bleu:.2f} BLEU, the model alone {harm.base:.2f}"
        yield (
            f"foreign text, {harm.mixing}: {harm.same:.0%} of the sentences as by the model alone, "
            f"{harm.agreement:.1f} BLEU against its translations{scored}"
        )


def show_tuning_cost(tuning: Tuning, console: Console) -> None:
    surface = tuning.surface
    points = surface.likelihoods.size
    left_out = f"; {surface.left_out:,} pairs empty or too long were left out of it" if surface.left_out else ""
    console.print(f"chosen: {chosen_line(tuning)}")
    if tuning.chosen.is_alone:
        console.print("the memory did not help on this text, so the store now translates as the model alone would;")
        console.print("`knnmt rollback` takes that back")
    console.print(f"likelihood of {points:,} settings on {surface.tokens:,} reference tokens{left_out}")
    console.print(f"cost: {tuning.seconds:,.0f} s, as {tuning.plain_decodes:.1f} decodes by the model alone")
    for name, signature in tuning.signature.items():
        console.print(Text(f"{name}: {signature}", style="dim"), soft_wrap=True)


def chosen_line(tuning: Tuning) -> str:
    """`k 16, temperature 20, weight 0.65`, or the head."""
    if tuning.chosen.is_learned:
        own = tuning.learned is not None and tuning.learned.record is not None
        return "learned, the head refitted with this text" if own else "learned, the built-in head"
    chosen = tuning.chosen.settings.fixed
    return f"k {chosen.k}, temperature {chosen.temperature:g}, weight {chosen.weight:g}"


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


def marked_words(words: Sequence[str], good: set[int], style: str) -> Text:
    """A sentence with some of its words marked."""
    text = Text()
    for position, word in enumerate(words):
        text.append(word, style=style if position in good else "")
        text.append(" ")
    text.right_crop(1)
    return text


def words_also_in(words: Sequence[str], reference: Sequence[str]) -> set[int]:
    """Positions of the words that are also in the reference, in the same order."""
    blocks = SequenceMatcher(None, words, reference, autojunk=False).get_matching_blocks()
    return {block.a + offset for block in blocks for offset in range(block.size)}
