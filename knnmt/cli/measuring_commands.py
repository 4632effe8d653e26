"""The commands `evaluate`, `tune` and `sweep`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.flags import Only, Without, with_settings
from knnmt.cli.options import (
    AsJson,
    GeneralOption,
    Limit,
    ModelOption,
    RayOption,
    ShardsOption,
    SourceLang,
    StoreArgument,
    StoresOption,
    TargetLang,
    errors,
    output,
    print_json,
    translator_from_options,
)
from knnmt.errors import SettingsError
from knnmt.text.endings import either_of
from knnmt.translate.settings import KINDS, TranslateSettings

if TYPE_CHECKING:
    from knnmt.measure.foreign import ForeignText

FEW_SENTENCES = 100

measuring_commands = typer.Typer()


@measuring_commands.command()
@with_settings
def evaluate(
    source: Annotated[Path, typer.Option("--source", help="Text file of source lines.")],
    target: Annotated[Path, typer.Option("--target", help="Reference translations.")],
    store: StoresOption = None,
    model: ModelOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    limit: Limit = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Earlier translations of --source to compare with, instead of the base model."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--save", help="Write the translations to base.txt and knn.txt in this folder.")
    ] = None,
    ray: RayOption = None,
    shards: ShardsOption = None,
    mixing: Annotated[
        str | None,
        typer.Option(
            "--mixing",
            help=f"Mixing method: {either_of(KINDS)}; or several with commas, to compare them. "
            "[default: as the store was fitted]",
        ),
    ] = None,
    general: GeneralOption = None,
    *,
    settings: Annotated[TranslateSettings, Without(("mixing",))],
    as_json: AsJson = False,
) -> None:
    """Score translations with and without the datastore: BLEU, chrF, significance, speed."""
    from knnmt.cli.measuring_view import show_evaluation
    from knnmt.measure.comparison import compare, kinds_of
    from knnmt.measure.evaluation import evaluate as evaluate_translator
    from knnmt.measure.evaluation import read_earlier, read_test_set, save
    from knnmt.measure.fitting import ComparedMixers

    kinds = [] if mixing is None else kinds_of(mixing)
    several = len(kinds) > 1
    if general is not None and not several:
        raise SettingsError(f"--general {general}: only with --mixing KIND,KIND, which fits what the store has not")
    if several and settings.by_hand:
        raise SettingsError(f"--mixing {mixing}: each chooses its own k, temperature and weight; leave those out")
    settings = settings if several or not kinds else replace(settings, mixing=kinds[0])
    sources, references = read_test_set(source, target, limit)
    earlier = read_earlier(against, source, limit) if against else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    translator = translator_from_options(
        store, model, settings, source_lang=source_lang, target_lang=target_lang, ray=ray, shards=shards
    )
    progress = sys.stderr.isatty()
    if several:
        fitter = ComparedMixers(translator, general)
        evaluation = compare(translator, fitter, kinds, sources, references, against=earlier, show_progress=progress)
        if fitter.fitted_now:
            errors.print(f"knnmt: fitted for this comparison and not kept: {', '.join(fitter.fitted_now)}")
    else:
        evaluation = evaluate_translator(translator, sources, references, against=earlier, show_progress=progress)
    if folder:
        save(evaluation, folder)
    if as_json:
        print_json(evaluation.to_json())
    else:
        show_evaluation(evaluation, output)


@measuring_commands.command()
@with_settings
def tune(
    store: StoreArgument,
    source: Annotated[Path, typer.Option("--source", help="Text file of source lines that are not in the store.")],
    target: Annotated[Path, typer.Option("--target", help="Reference translations.")],
    model: ModelOption = None,
    source_lang: SourceLang = None,
    limit: Limit = None,
    foreign: Annotated[
        Path | None,
        typer.Option("--foreign", help="Source lines from another domain, to report how much the memory changes them."),
    ] = None,
    foreign_target: Annotated[
        Path | None, typer.Option("--foreign-target", help="Reference translations of --foreign, to report BLEU.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Plot the result to a .png or .svg file.")] = None,
    *,
    settings: Annotated[TranslateSettings, Only(("beam", "nprobe"))],
    as_json: AsJson = False,
) -> None:
    """Fit the mixing to text with reference translations: compare the head with fixed values, keep the better."""
    from knnmt.cli.measuring_view import show_tuning
    from knnmt.measure.evaluation import read_test_set
    from knnmt.measure.tuning import tune as tune_translator
    from knnmt.measure.tuning import write_tuning
    from knnmt.measure.tuning_plot import check_drawable, draw_tuning

    if plot:
        check_drawable(plot)
    sources, references = read_test_set(source, target, limit)
    other = foreign_text(foreign, foreign_target)
    translator = translator_from_options([str(store)], model, settings, source_lang=source_lang)
    files = {"source": source.name, "target": target.name}
    tuning = tune_translator(
        translator, sources, references, files=files, foreign=other, show_progress=sys.stderr.isatty()
    )
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


def foreign_text(source: Path | None, target: Path | None) -> "ForeignText | None":
    """The text that `--foreign` names."""
    from knnmt.measure.evaluation import read_test_set
    from knnmt.measure.foreign import ForeignText

    if source is None:
        if target is not None:
            raise SettingsError(f"--foreign-target {target}: only with --foreign")
        return None
    lines, references = read_test_set(source, target or source, None)
    return ForeignText(source.name, lines, references if target else None)


@measuring_commands.command()
@with_settings
def sweep(
    store: StoreArgument,
    source: Annotated[Path, typer.Option("--source", help="Text file of source lines that are not in the store.")],
    target: Annotated[Path, typer.Option("--target", help="Reference translations.")],
    csv: Annotated[
        Path, typer.Option("--output", help="CSV file to write. Settings that it already contains are not run again.")
    ],
    k: Annotated[str | None, typer.Option("--k", help="Numbers of neighbours per step, such as 1,4,16,64.")] = None,
    temperature: Annotated[
        str | None, typer.Option("--temperature", help="Temperatures, such as 10,100; each is one line in the plot.")
    ] = None,
    sizes: Annotated[str | None, typer.Option("--sizes", help="Fractions of the datastore, such as 0.1,0.3,1.")] = None,
    nprobe: Annotated[
        str | None, typer.Option("--nprobe", help="Numbers of clusters searched, such as 1,8,32.")
    ] = None,
    beam: Annotated[str | None, typer.Option("--beam", help="Beam sizes, such as 1,5.")] = None,
    model: ModelOption = None,
    limit: Limit = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Plot the curves to a .png or .svg file.")] = None,
    *,
    settings: Annotated[TranslateSettings, Only(("weight",))],
) -> None:
    """Measure BLEU and speed for several values of k, temperature, datastore size, clusters searched and beam size."""
    from knnmt.cli.measuring_view import show_sweep
    from knnmt.measure.evaluation import read_test_set
    from knnmt.measure.sweep import Axes
    from knnmt.measure.sweep import sweep as sweep_translator
    from knnmt.measure.sweep_plot import draw_sweep
    from knnmt.measure.tuning_plot import check_drawable

    axes = Axes.parse(k=k, temperature=temperature, sizes=sizes, nprobe=nprobe, beam=beam)
    if plot:
        check_drawable(plot)
    sources, references = read_test_set(source, target, limit)
    fixed = {name: value for name in ("k", "temperature", "beam") if (value := axes.fixed(name)) is not None}
    translator = translator_from_options([str(store)], model, replace(settings, mixing="fixed", certain=1.0, **fixed))
    found = sweep_translator(translator, axes, sources, references, output=csv, show_progress=sys.stderr.isatty())
    if plot:
        draw_sweep(found, plot)
    show_sweep(found, output)
