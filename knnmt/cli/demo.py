"""The demo: build, translate, evaluate and explain with the embedded model and a memory of e-bike manuals.

Nothing that it shows is stored in advance.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from knnmt.cli.explanation_view import show_explanation
from knnmt.cli.measuring_view import marked_words, show_evaluation, words_also_in
from knnmt.measure.evaluation import Evaluation, evaluate
from knnmt.models.translation_model import load_model
from knnmt.store.building import build_store, check_place
from knnmt.text.corpus import Corpus, Segment, Skipped
from knnmt.translate.translator import Translator

MODEL = "builtin:de-en"
LANGUAGES = ("de", "en")
SHOWN = 6


def run_demo(console: Console, *, keep: Path | None = None) -> Evaluation:
    """Build, translate and score, compare, explain."""
    began = time.perf_counter()
    with folder_for_demo(keep) as folder:
        console.rule("1. A translation memory becomes a datastore")
        write_demo_files(folder)
        build_demo_store(folder / "store", console)
        translator = Translator.from_store(folder / "store")
        console.rule("2. Sentences that are not in the memory, without and with it")
        tests = read_demo("test")
        sources, references = [test.source for test in tests], [test.target for test in tests]
        evaluation = evaluate(translator, sources, references)
        show_side_by_side(evaluation, sources, references, console)
        console.rule(f"3. The scores, over all {len(tests)} sentences")
        show_evaluation(evaluation, console)
        console.rule("4. Why: the neighbours behind each word")
        show_explanation(translator.explain(most_improved(evaluation, sources, references)), console, neighbours=1)
    kept = f"Kept in {keep}." if keep else "Keep the datastore and its texts with `knnmt demo --keep FOLDER`."
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s. {kept}")
    return evaluation


@contextmanager
def folder_for_demo(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        check_place(keep, resume=False)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="knnmt-demo-") as folder:
        yield Path(folder)


def write_demo_files(folder: Path) -> None:
    """The texts of the demo, to try the other commands on: memory.tmx, test.de and test.en."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(demo_corpus("memory").source, folder / "memory.tmx")
    tests = read_demo("test")
    (folder / "test.de").write_text("".join(f"{test.source}\n" for test in tests), encoding="utf-8")
    (folder / "test.en").write_text("".join(f"{test.target}\n" for test in tests), encoding="utf-8")


def demo_corpus(name: str) -> Corpus:
    return Corpus(Path(str(resources.files("knnmt"))) / "data" / "demo" / f"{name}.tmx", languages=LANGUAGES)


def read_demo(name: str) -> list[Segment]:
    return list(demo_corpus(name).segments(Skipped()))


def build_demo_store(folder: Path, console: Console) -> None:
    began = time.perf_counter()
    store = build_store(folder, load_model(MODEL), [demo_corpus("memory")])
    console.print(
        f"{store.manifest.segments} sentence pairs of an e-bike manual → {store.entries:,} entries "
        f"in {time.perf_counter() - began:.1f} s, with {MODEL}, "
        "a tiny model that needs no download; without memory it translates poorly"
    )


def show_side_by_side(evaluation: Evaluation, sources: list[str], references: list[str], console: Console) -> None:
    """The sentences that gained most. Words that are in the reference and on one side only are marked."""
    assert evaluation.knn is not None
    for position in by_gain(evaluation, references)[:SHOWN]:
        base, knn, reference = (
            side[position].split() for side in (evaluation.base.translations, evaluation.knn.translations, references)
        )
        right_before, right_now = words_also_in(base, reference), words_also_in(knn, reference)
        better = {at for at in right_now if knn[at] not in {base[other] for other in right_before}}
        table = Table.grid(padding=(0, 1))
        table.add_row(Text("source", style="dim"), Text(sources[position], style="italic"))
        table.add_row(Text("base", style="dim"), " ".join(base))
        table.add_row(Text("kNN", style="dim"), marked_words(knn, better, "bold green"))
        table.add_row(Text("human", style="dim"), " ".join(reference))
        console.print(table, end="\n")
        console.print()


def by_gain(evaluation: Evaluation, references: list[str]) -> list[int]:
    """Positions of sentences, those that gained most words first."""
    assert evaluation.knn is not None

    def gain(position: int) -> int:
        reference = references[position].split()
        now, before = (
            len(words_also_in(side[position].split(), reference))
            for side in (evaluation.knn.translations, evaluation.base.translations)  # type: ignore[union-attr]
        )
        return now - before

    return sorted(range(len(references)), key=gain, reverse=True)


def most_improved(evaluation: Evaluation, sources: list[str], references: list[str]) -> str:
    return sources[by_gain(evaluation, references)[0]]
