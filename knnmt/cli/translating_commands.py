"""The commands that translate, explain translations and look up sentences."""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.flags import with_settings
from knnmt.cli.options import (
    AsJson,
    ModelOption,
    RayOption,
    ShardsOption,
    SourceLang,
    StoreArgument,
    StoresOption,
    TargetLang,
    WhereOption,
    errors,
    output,
    print_json,
    translator_from_options,
)
from knnmt.errors import CorpusError, SettingsError
from knnmt.files import check_writable
from knnmt.translate.document_settings import DocumentSettings
from knnmt.translate.settings import TranslateSettings

if TYPE_CHECKING:
    from knnmt.translate.translator import Translation, Translator

translating_commands = typer.Typer()


@translating_commands.command()
@with_settings
def translate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Documents to translate. [default: the lines of standard input]"),
    ] = None,
    output_place: Annotated[
        Path | None, typer.Option("-o", "--output", help="File or folder to write translated documents to.")
    ] = None,
    store: StoresOption = None,
    model: ModelOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    ray: RayOption = None,
    shards: ShardsOption = None,
    *,
    settings: TranslateSettings,
    document: DocumentSettings,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a report of doubtful units to this .html or .json file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Translate documents. Without documents, translate standard input line by line to standard output."""
    if files:
        jobs = checked_jobs(files, output_place, document, report, as_json)
    else:
        refuse_without_files(document, output_place, report)
    translator = translator_from_options(
        store, model, settings, source_lang=source_lang, target_lang=target_lang, ray=ray, shards=shards
    )
    if files:
        translate_documents(translator, jobs, document, report)
    else:
        translate_lines(translator, as_json)


def checked_jobs(
    files: list[Path], place: Path | None, settings: DocumentSettings, report: Path | None, as_json: bool
) -> list[tuple[Path, Path]]:
    """Every document with its target. Wrong calls are found before a model is loaded."""
    from knnmt.documents.kinds import opener_for
    from knnmt.text.inputs import check_readable
    from knnmt.units.destinations import check_destinations, with_destinations
    from knnmt.units.report import check_report

    if place is None:
        raise SettingsError(f"-o is missing: where does {files[0]} go? (its lines to standard output: … < {files[0]})")
    if as_json:
        raise SettingsError("--json: only for standard input; --report out.json tells of documents")
    if report is not None:
        check_report(report)
    for file in files:
        check_readable(file)
        opener_for(file)
    jobs = with_destinations(files, place)
    check_destinations(jobs, force=settings.force, resume=settings.resume)
    return jobs


def refuse_without_files(settings: DocumentSettings, place: Path | None, report: Path | None) -> None:
    changed = [one.name for one in fields(settings) if getattr(settings, one.name) != one.default]
    flags = [*(f"--{name.replace('_', '-')}" for name in changed), *(["-o"] if place else [])]
    flags += ["--report"] if report else []
    if flags:
        raise SettingsError(f"{flags[0]}: only for documents: knnmt translate FILE -o FILE")


def translate_documents(
    translator: "Translator", jobs: list[tuple[Path, Path]], settings: DocumentSettings, report: Path | None
) -> None:
    from knnmt.translate.document_runs import DocumentTranslator

    run = DocumentTranslator(translator, settings, report=report, show_progress=sys.stderr.isatty())
    run.translate(jobs, say=lambda target, words: errors.print(f"{target}: {words}"))


def translate_lines(translator: "Translator", as_json: bool) -> None:
    from knnmt.cli.streaming import line_blocks

    if sys.stdin is None:
        raise SettingsError("standard input is closed; it is what would be translated")
    first = 1
    for lines in line_blocks(sys.stdin.buffer):
        for number, translation in enumerate(translator.translations(lines), start=first):
            warn_of_cuts(translation, f"line {number}")
            print(as_record(translation) if as_json else translation.text)
        sys.stdout.flush()
        first += len(lines)


@translating_commands.command()
def lookup(
    store: StoreArgument,
    text: Annotated[str, typer.Argument(help="A sentence, phrase or word in either language.")],
    where: WhereOption = None,
    least: Annotated[float, typer.Option("--least", help="Minimum similarity, in percent.")] = 70.0,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of pairs to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Search both sides of a datastore for a text: first similar sentences, then sentences that contain it."""
    from knnmt.cli.store_view import show_hits
    from knnmt.retrieval.lookup import Lookup
    from knnmt.store.datastore import Store

    if not text.strip():
        raise CorpusError("the text to look up is empty")
    if not 0 < least <= 100:
        raise SettingsError(f"--least {least:g}: must be above 0 and at most 100")
    if limit < 1:
        raise SettingsError(f"--limit {limit}: must be at least 1")
    hits = Lookup([Store.open(store)], where=tuple(where or ())).concordance(text, least=least, most=limit)
    if as_json:
        print_json([hit.to_json() for hit in hits])
    else:
        show_hits(hits, text, output)


def warn_of_cuts(translation: "Translation", place: str) -> None:
    """Report texts that were truncated."""
    if translation.cut:
        errors.print(f"knnmt: {place}: too long for the model; its end was not translated")
    if translation.unfinished:
        errors.print(f"knnmt: {place}: the translation reached the model's longest output and may lack its end")


def as_record(translation: "Translation") -> str:
    """One line of `translate --json`; `missing` are placeholders of the source that the translation lacks."""
    from knnmt.text.placeholders import missing

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


@translating_commands.command()
@with_settings
def explain(
    text: Annotated[str, typer.Argument(help="A sentence to translate and explain.")],
    store: StoresOption = None,
    model: ModelOption = None,
    source_lang: SourceLang = None,
    *,
    settings: TranslateSettings,
    neighbours: Annotated[
        int, typer.Option("--neighbours", help="Sentences to show per word; with --tokens, neighbours per token.")
    ] = 2,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show tokens and their neighbours instead of words.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write an HTML page to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Translate a sentence and show, for each word, which sentences of the memory it came from."""
    from knnmt.cli.explanation_page import write_page
    from knnmt.cli.explanation_view import show_explanation, show_tokens

    check_explainable(text, store, neighbours, html)
    translator = translator_from_options(store, model, settings, source_lang=source_lang)
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


def check_explainable(text: str, store: list[str] | None, neighbours: int, html: Path | None) -> None:
    if not text.strip():
        raise CorpusError("the sentence to explain is empty")
    if not store:
        raise SettingsError("--store is missing: only a translation with a datastore can be explained")
    if neighbours < 0:
        raise SettingsError(f"--neighbours {neighbours}: must be at least 0")
    if html is not None:
        check_writable(html, "--html")
