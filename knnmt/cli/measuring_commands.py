"""The commands that measure: what a memory gains, which settings serve it best, and how that changes with them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from knnmt.cli.options import (
    AsJson,
    Beam,
    Certain,
    Exact,
    K,
    Limit,
    ModelOption,
    Nprobe,
    SourceLang,
    StoreArgument,
    StoresOption,
    TargetLang,
    Temperature,
    Weight,
    WhereOption,
    errors,
    make_translator,
    output,
    print_json,
)

FEW_SENTENCES = 100

measuring_commands = typer.Typer()


@measuring_commands.command()
def evaluate(
    source: Annotated[Path, typer.Option("--source", help="Source lines.")],
    target: Annotated[Path, typer.Option("--target", help="Reference translations.")],
    store: StoresOption = None,
    model: ModelOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    k: K = None,
    temperature: Temperature = None,
    weight: Weight = None,
    beam: Beam = None,
    nprobe: Nprobe = None,
    certain: Certain = None,
    exact: Exact = False,
    where: WhereOption = None,
    limit: Limit = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", help="Translations of --source made earlier, to compare with instead of the base model."
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--save", help="Write the translations to base.txt and knn.txt in this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score the base model and the datastore on the same text: BLEU, chrF, significance, speed."""
    from knnmt.cli.views import show_evaluation
    from knnmt.measure.evaluation import evaluate as evaluate_translator
    from knnmt.measure.evaluation import read_earlier, read_test_set, save

    sources, references = read_test_set(source, target, limit)
    earlier = read_earlier(against, source, limit) if against else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    translator = make_translator(
        store,
        model,
        source_lang=source_lang,
        target_lang=target_lang,
        k=k,
        temperature=temperature,
        weight=weight,
        beam=beam,
        nprobe=nprobe,
        certain=certain,
        exact=exact,
        where=where,
    )
    evaluation = evaluate_translator(
        translator, sources, references, against=earlier, show_progress=sys.stderr.isatty()
    )
    if folder:
        save(evaluation, folder)
    if as_json:
        print_json(evaluation.to_json())
    else:
        show_evaluation(evaluation, output)


@measuring_commands.command()
def tune(
    store: StoreArgument,
    source: Annotated[Path, typer.Option("--source", help="Source lines, not those that the store was made of.")],
    target: Annotated[Path, typer.Option("--target", help="Their translations.")],
    model: ModelOption = None,
    source_lang: SourceLang = None,
    beam: Beam = None,
    nprobe: Nprobe = None,
    limit: Limit = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw what was found: a .png or .svg file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find k, temperature, weight and certainty on text with known translations, and make them the store's defaults."""
    from knnmt.cli.views import show_tuning
    from knnmt.measure.evaluation import read_test_set
    from knnmt.measure.surface import check_drawable, draw_tuning
    from knnmt.measure.tuning import tune as tune_translator
    from knnmt.measure.tuning import write_tuning

    if plot:
        check_drawable(plot)
    sources, references = read_test_set(source, target, limit)
    translator = make_translator([str(store)], model, source_lang=source_lang, beam=beam, nprobe=nprobe)
    files = {"source": source.name, "target": target.name}
    tuning = tune_translator(translator, sources, references, files=files, show_progress=sys.stderr.isatty())
    if plot:
        draw_tuning(tuning, plot)
    if as_json:
        print_json(tuning.to_json())
    else:
        show_tuning(tuning, output)
    write_tuning(translator.stores[0], tuning)  # after it is shown: if the store is being changed, nothing is lost
    if len(sources) < FEW_SENTENCES:
        errors.print(
            f"knnmt: {len(sources)} sentences are few to tune on; what is best for them may not be best for others"
        )


@measuring_commands.command()
def sweep(
    store: StoreArgument,
    source: Annotated[Path, typer.Option("--source", help="Source lines, not those that the store was made of.")],
    target: Annotated[Path, typer.Option("--target", help="Reference translations.")],
    csv: Annotated[Path, typer.Option("--output", help="A CSV file; rows that it has already are not run again.")],
    k: Annotated[str | None, typer.Option("--k", help="Neighbours per step, such as 1,4,16,64.")] = None,
    temperature: Annotated[str | None, typer.Option("--temperature", help="Such as 10,100: a line for each.")] = None,
    sizes: Annotated[str | None, typer.Option("--sizes", help="Shares of the datastore, such as 0.1,0.3,1.")] = None,
    nprobe: Annotated[str | None, typer.Option("--nprobe", help="Clusters searched, such as 1,8,32.")] = None,
    beam: Annotated[str | None, typer.Option("--beam", help="Beams, such as 1,5.")] = None,
    weight: Weight = None,
    model: ModelOption = None,
    limit: Limit = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the curves: a .png or .svg file.")] = None,
) -> None:
    """Measure BLEU and speed over k and temperature, datastore size, clusters searched and beams."""
    from knnmt.cli.views import show_sweep
    from knnmt.measure.curves import draw_sweep
    from knnmt.measure.evaluation import read_test_set
    from knnmt.measure.surface import check_drawable
    from knnmt.measure.sweep import Axes
    from knnmt.measure.sweep import sweep as sweep_translator

    axes = Axes.parse(k=k, temperature=temperature, sizes=sizes, nprobe=nprobe, beam=beam)
    if plot:
        check_drawable(plot)
    sources, references = read_test_set(source, target, limit)
    fixed = {name: axes.fixed(name) for name in ("k", "temperature", "beam")}
    translator = make_translator([str(store)], model, weight=weight, certain=1.0, **fixed)
    found = sweep_translator(translator, axes, sources, references, output=csv, show_progress=sys.stderr.isatty())
    if plot:
        draw_sweep(found, plot)
    show_sweep(found, output)
