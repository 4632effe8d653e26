"""The command line: options in, one call of the library, text or JSON out."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt.errors import CorpusError, KnnmtError, SettingsError
from knnmt.options import (
    AsJson,
    BatchTokens,
    Beam,
    CapOption,
    ColumnsOption,
    CorpusOption,
    IndexOption,
    K,
    Limit,
    ModelOption,
    NameOption,
    Nprobe,
    SourceLang,
    SourceOption,
    StoreArgument,
    StoresOption,
    TargetLang,
    TargetOption,
    Temperature,
    UnfinishedOption,
    Weight,
    WhereOption,
    corpora_of,
    corpus_files,
    errors,
    output,
)
from knnmt.store_commands import store_commands
from knnmt.version import __version__

if TYPE_CHECKING:
    from knnmt.translator import Translation, Translator

WRONG_CALL: type[typer.BadParameter] = typer.BadParameter.__bases__[0]  # every error that the option parser raises

FEW_SENTENCES = 100
STOPPED = 130  # as shells count an interrupt

app = typer.Typer(
    name="knnmt",
    help="Nearest-neighbour machine translation: your translation memory makes any model better, without training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(store_commands)


def main() -> None:
    """Run a command. Exit code 0: done; 2: a wrong call or bad input, one line on stderr; 1: a fault of knnmt."""
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input is read, whatever the locale
    try:
        check_arguments(sys.argv[1:])
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except KnnmtError as error:
        code = fail(str(error))
    except WRONG_CALL as error:
        code = fail(error.format_message() + hint_for(error.format_message()))
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has gone
        code = 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        code = fail(f"{place}{(error.strerror or str(error)).lower()}")
    if code == STOPPED:
        fail("stopped")
    sys.exit(code if isinstance(code, int) else 0)


def check_arguments(arguments: list[str]) -> None:
    """Bytes that are no text in the locale's encoding would surprise every part of the program."""
    for argument in arguments:
        if not argument.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in argument):
            raise SettingsError(f"{argument.encode('utf-8', 'replace').decode()}: not UTF-8 text")


def fail(message: str) -> int:
    """One line on stderr; the exit code of bad input."""
    errors.print(f"knnmt: {' '.join(message.split())}")
    return 2


def hint_for(message: str) -> str:
    """The likeliest slip of all: a file given where standard input is read."""
    stray = "unexpected extra argument" in message and "translate" in sys.argv
    return "; it reads standard input: knnmt translate … < FILE" if stray else ""


def version(wanted: bool) -> None:
    if wanted:
        output.print(f"knnmt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
) -> None:
    pass


@app.command()
def build(
    store: StoreArgument,
    model: Annotated[str, typer.Option("--model", help="Hugging Face name, folder, or builtin:de-en.")],
    corpus: CorpusOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    columns: ColumnsOption = None,
    unfinished: UnfinishedOption = False,
    name: NameOption = None,
    index: IndexOption = None,
    limit: Limit = None,
    cap: CapOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a build that was stopped.")] = False,
    batch_tokens: BatchTokens = 4096,
    source_prefix: Annotated[
        str | None, typer.Option("--source-prefix", help="Text before every source, as T5 wants it.")
    ] = None,
    key_site: Annotated[
        str | None, typer.Option("--key-site", help="The module whose input is the key, for a new kind of model.")
    ] = None,
) -> None:
    """Make a datastore out of parallel text."""
    from knnmt.building import BuildSettings, build_store, check_place
    from knnmt.model import load_model

    settings = BuildSettings(
        index=index, limit=limit, cap=cap, resume=resume, batch_tokens=batch_tokens, show_progress=sys.stderr.isatty()
    )
    files = corpus_files(corpus, source, target)
    check_place(store, resume)
    loaded = load_model(
        model, source_lang=source_lang, target_lang=target_lang, source_prefix=source_prefix, key_site=key_site
    )
    languages = (source_lang or loaded.source_lang, target_lang or loaded.target_lang)
    built = build_store(store, loaded, corpora_of(files, languages, name, columns, unfinished), settings)
    skipped = ", ".join(f"{count:,} pairs {reason}" for reason, count in built.manifest.skipped.items())
    if built.manifest.downsampling:
        skipped += f"{', ' if skipped else ''}{built.manifest.downsampling['dropped']:,} entries above --cap {cap}"
    errors.print(
        f"{store}: {built.entries:,} entries from {built.manifest.segments:,} pairs"
        + (f"; left out: {skipped}" if skipped else "")
    )


def make_translator(
    stores: list[str] | None,
    model: str | None,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    beam: int | None = None,
    **retrieval: Any,
) -> "Translator":
    """A translator of stores, or of the base model alone; a flag that would have no effect is an error."""
    from knnmt.translator import Translator

    if stores:
        refuse({"target_lang": target_lang}, "a store knows its own; leave it out")
        where = retrieval.pop("where", None) or []
        return Translator.from_store(stores, model=model, beam=beam, where=where, source_lang=source_lang, **retrieval)
    if model is None:
        raise SettingsError("--store or --model is missing")
    refuse(retrieval, "only with --store; the model alone retrieves nothing")
    chosen = {} if beam is None else {"beam": beam}
    return Translator.from_model(model, source_lang=source_lang, target_lang=target_lang, **chosen)


def refuse(given: dict[str, Any], reason: str) -> None:
    for name, value in given.items():
        if value is not None:
            shown = " ".join(value) if isinstance(value, list) else value
            raise SettingsError(f"--{name.replace('_', '-')} {shown}: {reason}")


@app.command()
def translate(
    store: StoresOption = None,
    model: ModelOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    k: K = None,
    temperature: Temperature = None,
    weight: Weight = None,
    beam: Beam = None,
    nprobe: Nprobe = None,
    where: WhereOption = None,
    as_json: AsJson = False,
) -> None:
    """Translate standard input, line by line, to standard output."""
    from knnmt.streaming import line_blocks

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
        where=where,
    )
    if sys.stdin is None:
        raise SettingsError("standard input is closed; it is what would be translated")
    first = 1
    for lines in line_blocks(sys.stdin.buffer):
        for number, translation in enumerate(translator.translations(lines), start=first):
            warn_of_cuts(translation, f"line {number}")
            print(as_record(translation) if as_json else translation.text)
        sys.stdout.flush()
        first += len(lines)


def warn_of_cuts(translation: "Translation", place: str) -> None:
    """Nothing is cut silently."""
    if translation.cut:
        errors.print(f"knnmt: {place}: too long for the model; its end was not translated")
    if translation.unfinished:
        errors.print(f"knnmt: {place}: the translation reached the model's longest output and may lack its end")


def as_record(translation: "Translation") -> str:
    """One line of `translate --json`; `missing` are placeholders of the source that the translation lacks."""
    from knnmt.placeholders import missing

    tokens = len(translation.tokens)
    record = {
        "source": translation.source,
        "translation": translation.text,
        "score": round(translation.log_probability, 4),
        "score_per_token": round(translation.log_probability / max(1, tokens), 4),
        "tokens": tokens,
        "cut": translation.cut,
        "unfinished": translation.unfinished,
        "missing": missing(translation.source, translation.text),
    }
    return json.dumps(record, ensure_ascii=False)


@app.command()
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
    from knnmt.evaluation import evaluate as evaluate_translator
    from knnmt.evaluation import read_earlier, read_test_set, save
    from knnmt.views import show_evaluation

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


@app.command()
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
    """Find k, temperature and weight on text with known translations, and make them the store's defaults."""
    from knnmt.evaluation import read_test_set
    from knnmt.surface import check_drawable, draw_tuning
    from knnmt.tuning import tune as tune_translator
    from knnmt.tuning import write_tuning
    from knnmt.views import show_tuning

    if plot:
        check_drawable(plot)
    sources, references = read_test_set(source, target, limit)
    translator = make_translator([str(store)], model, source_lang=source_lang, beam=beam, nprobe=nprobe)
    files = {"source": source.name, "target": target.name}
    tuning = tune_translator(translator, sources, references, files=files, show_progress=sys.stderr.isatty())
    if plot:
        draw_tuning(tuning, plot)
    write_tuning(translator.stores[0], tuning)
    if as_json:
        print_json(tuning.to_json())
    else:
        show_tuning(tuning, output)
    if len(sources) < FEW_SENTENCES:
        errors.print(
            f"knnmt: {len(sources)} sentences are few to tune on; what is best for them may not be best for others"
        )


@app.command()
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
    from knnmt.curves import draw_sweep
    from knnmt.evaluation import read_test_set
    from knnmt.surface import check_drawable
    from knnmt.sweep import Axes
    from knnmt.sweep import sweep as sweep_translator
    from knnmt.views import show_sweep

    axes = Axes.parse(k=k, temperature=temperature, sizes=sizes, nprobe=nprobe, beam=beam)
    if plot:
        check_drawable(plot)
    sources, references = read_test_set(source, target, limit)
    fixed = {name: axes.fixed(name) for name in ("k", "temperature", "beam")}
    translator = make_translator([str(store)], model, weight=weight, **fixed)
    found = sweep_translator(translator, axes, sources, references, output=csv, show_progress=sys.stderr.isatty())
    if plot:
        draw_sweep(found, plot)
    show_sweep(found, output)


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="A sentence to translate and explain.")],
    store: StoresOption = None,
    model: ModelOption = None,
    k: K = None,
    temperature: Temperature = None,
    weight: Weight = None,
    beam: Beam = None,
    nprobe: Nprobe = None,
    where: WhereOption = None,
    neighbours: Annotated[
        int, typer.Option("--neighbours", help="Memory sentences shown per word, or neighbours per token.")
    ] = 2,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show each token and its neighbours, not words.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page for the browser to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Translate a sentence and show, word by word, the sentences of the memory that it came from."""
    from knnmt.explanation_page import write_page
    from knnmt.explanation_view import show_explanation, show_tokens

    if not text.strip():
        raise CorpusError("the sentence to explain is empty")
    if not store:
        raise SettingsError("--store is missing: only a translation with a datastore can be explained")
    if neighbours < 0:
        raise SettingsError(f"--neighbours {neighbours}: must be at least 0")
    translator = make_translator(
        store, model, k=k, temperature=temperature, weight=weight, beam=beam, nprobe=nprobe, where=where
    )
    explanation = translator.explain(text)
    if explanation.cut:
        errors.print("knnmt: the sentence is too long for the model; its end was not translated")
    if html is not None:
        write_page(explanation, html)
        errors.print(f"{html}: written; open it in a browser")
    if as_json:
        print_json(explanation.to_json())
    elif html is None:
        show = show_tokens if tokens else show_explanation
        show(explanation, output, neighbours=neighbours)


@app.command()
def info(store: StoreArgument, as_json: AsJson = False) -> None:
    """Show what is in a datastore and how it was made."""
    from knnmt.store import Store
    from knnmt.views import show_store, store_facts

    opened = Store.open(store)
    if as_json:
        print_json(store_facts(opened))
    else:
        show_store(opened, output)


@app.command()
def verify(store: StoreArgument) -> None:
    """Check a datastore: checksums, counts, and whether the index agrees with the parts."""
    from knnmt.store import Store
    from knnmt.verification import problems_of
    from knnmt.views import count_of

    opened = Store.open(store)
    problems = list(problems_of(opened))
    for problem in problems:
        errors.print(f"knnmt: {problem}")
    if problems:
        raise typer.Exit(2)
    parts = count_of(len(opened.manifest.parts), "part")
    output.print(f"{store}: {opened.entries:,} entries in {parts}, all as written")


@app.command()
def demo(
    keep: Annotated[Path | None, typer.Option("--keep", help="Keep datastore and texts in this new folder.")] = None,
) -> None:
    """Build, translate, score and explain on the embedded model and a small translation memory."""
    from knnmt.demo import run_demo

    run_demo(output, keep=keep)


def print_json(record: Any) -> None:
    print(json.dumps(record, ensure_ascii=False, indent=2))
