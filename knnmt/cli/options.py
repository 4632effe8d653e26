"""Options that several commands share, and what is made of them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from knnmt.errors import SettingsError

if TYPE_CHECKING:
    from knnmt.text.corpus import Corpus
    from knnmt.translate.translator import Translator

errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
output = Console(highlight=False, markup=False, emoji=False)

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="The datastore's folder.")]
StoresOption = Annotated[
    list[str] | None,
    typer.Option("--store", help="A datastore, or NAME=FOLDER:WEIGHT; may be given several times."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", help="Use only what meets this, such as corpus=house; may be given several times."),
]
CorpusOption = Annotated[
    list[Path] | None,
    typer.Option("--corpus", help="A .tmx, .xlf, .po, .tsv, .csv or .jsonl file (or .gz); may be repeated."),
]
SourceOption = Annotated[list[Path] | None, typer.Option("--source", help="Source lines; may be repeated.")]
TargetOption = Annotated[list[Path] | None, typer.Option("--target", help="Target lines, aligned with --source.")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="SOURCE,TARGET: the names of a table's two columns.")
]
UnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="Take pairs that an XLIFF or PO file calls unfinished too.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="The corpus's name. [default: its file's]")]
IndexOption = Annotated[str | None, typer.Option("--index", help="A FAISS factory string. [default: by size]")]
CapOption = Annotated[
    int | None, typer.Option("--cap", help="At most N entries of each target token, spread evenly over the text.")
]
BatchTokens = Annotated[int, typer.Option("--batch-tokens", help="Padded tokens a forward pass.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Hugging Face name, folder, or builtin:de-en; a store knows its own.")
]
SourceLang = Annotated[str | None, typer.Option("--source-lang", help="Source language, for example de.")]
TargetLang = Annotated[str | None, typer.Option("--target-lang", help="Target language, for example en.")]
K = Annotated[int | None, typer.Option("--k", help="Neighbours per step. [default: as tuned, else 64]")]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Of the neighbours' softmax. [default: as tuned, else 10]")
]
Weight = Annotated[
    float | None, typer.Option("--weight", help="Of the neighbours: 0 to 1. [default: as tuned, else 0.5]")
]
Beam = Annotated[int | None, typer.Option("--beam", help="Beams. [default: 5]")]
Nprobe = Annotated[int | None, typer.Option("--nprobe", help="Clusters searched. [default: the store's, 8 to 16]")]
Certain = Annotated[
    float | None,
    typer.Option("--certain", help="Retrieve nothing where the model is surer than this. [default: as tuned, else 1]"),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="The paper's plain method, without what makes it fast and hardly changes it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int | None, typer.Option("--limit", help="Use only the first N pairs.")]


def corpus_files(
    corpus: list[Path] | None, source: list[Path] | None, target: list[Path] | None
) -> list[tuple[Path, Path | None]]:
    """What was given, as (file, None) or (source, target)."""
    sources, targets = source or [], target or []
    if len(sources) != len(targets):
        raise SettingsError(f"--source was given {len(sources)} times but --target {len(targets)} times")
    files: list[tuple[Path, Path | None]] = [*zip(sources, targets, strict=True)]
    files += [(path, None) for path in corpus or []]
    if not files:
        raise SettingsError("--corpus, or --source and --target, is missing")
    return files


def corpora_of(
    files: list[tuple[Path, Path | None]],
    languages: tuple[str | None, str | None],
    name: str | None,
    columns: str | None = None,
    unfinished: bool = False,
) -> "list[Corpus]":
    from knnmt.text.corpus import Corpus

    chosen = columns_of(columns)
    return [Corpus(source, target, languages, name or "", chosen, unfinished) for source, target in files]


def columns_of(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise SettingsError(f"--columns {text}: must be two names, SOURCE,TARGET")
    return names[0], names[1]


def make_translator(
    stores: list[str] | None,
    model: str | None,
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    beam: int | None = None,
    exact: bool = False,
    **retrieval: Any,
) -> "Translator":
    """A translator of stores, or of the base model alone; a flag that would have no effect is an error."""
    from knnmt.translate.translator import Translator

    if stores:
        refuse({"target_lang": target_lang}, "a store knows its own; leave it out")
        where = retrieval.pop("where", None) or []
        return Translator.from_store(
            stores, model=model, beam=beam, exact=exact, where=where, source_lang=source_lang, **retrieval
        )
    if model is None:
        raise SettingsError("--store or --model is missing")
    refuse(retrieval, "only with --store; the model alone retrieves nothing")
    beams = 5 if beam is None else beam
    return Translator.from_model(model, source_lang=source_lang, target_lang=target_lang, beam=beams, exact=exact)


def refuse(given: dict[str, Any], reason: str) -> None:
    for name, value in given.items():
        if value is not None:
            shown = " ".join(value) if isinstance(value, list) else value
            raise SettingsError(f"--{name.replace('_', '-')} {shown}: {reason}")


def print_json(record: Any) -> None:
    print(json.dumps(record, ensure_ascii=False, indent=2))
