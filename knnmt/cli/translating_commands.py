"""The commands that translate, and say why."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.options import (
    AsJson,
    Beam,
    Certain,
    Exact,
    K,
    ModelOption,
    Nprobe,
    SourceLang,
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
from knnmt.errors import CorpusError, SettingsError
from knnmt.files import check_writable

if TYPE_CHECKING:
    from knnmt.translate.translator import Translation

translating_commands = typer.Typer()


@translating_commands.command()
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
    certain: Certain = None,
    exact: Exact = False,
    where: WhereOption = None,
    as_json: AsJson = False,
) -> None:
    """Translate standard input, line by line, to standard output."""
    from knnmt.cli.streaming import line_blocks

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
def explain(
    text: Annotated[str, typer.Argument(help="A sentence to translate and explain.")],
    store: StoresOption = None,
    model: ModelOption = None,
    k: K = None,
    temperature: Temperature = None,
    weight: Weight = None,
    beam: Beam = None,
    certain: Certain = None,
    nprobe: Nprobe = None,
    exact: Exact = False,
    where: WhereOption = None,
    source_lang: SourceLang = None,
    neighbours: Annotated[
        int, typer.Option("--neighbours", help="Memory sentences shown per word, or neighbours per token.")
    ] = 2,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show each token and its neighbours, not words.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page for the browser to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Translate a sentence and show, word by word, the sentences of the memory that it came from."""
    from knnmt.cli.explanation_page import write_page
    from knnmt.cli.explanation_view import show_explanation, show_tokens

    check_explainable(text, store, neighbours, html)
    translator = make_translator(
        store,
        model,
        source_lang=source_lang,
        k=k,
        temperature=temperature,
        weight=weight,
        beam=beam,
        certain=certain,
        nprobe=nprobe,
        exact=exact,
        where=where,
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


def check_explainable(text: str, store: list[str] | None, neighbours: int, html: Path | None) -> None:
    if not text.strip():
        raise CorpusError("the sentence to explain is empty")
    if not store:
        raise SettingsError("--store is missing: only a translation with a datastore can be explained")
    if neighbours < 0:
        raise SettingsError(f"--neighbours {neighbours}: must be at least 0")
    if html is not None:
        check_writable(html, "--html")
