"""Options that several commands share."""

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from knnmt.errors import SettingsError
from knnmt.text.endings import READ_AS_MEMORY, either_of
from knnmt.translate.settings import KINDS

if TYPE_CHECKING:
    from knnmt.retrieval.local_retriever import SearchedBy
    from knnmt.text.corpus import Corpus
    from knnmt.translate.settings import TranslateSettings
    from knnmt.translate.translator import Translator

errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
output = Console(highlight=False, markup=False, emoji=False)

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="The datastore's folder.")]
StoresOption = Annotated[
    list[str] | None,
    typer.Option("--store", help="Datastore, as [NAME=]FOLDER[:WEIGHT]; may be repeated."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", help="Use only segments that match this condition, such as corpus=house; may be repeated."),
]
CorpusOption = Annotated[
    list[Path] | None,
    typer.Option("--corpus", help=f"A {either_of(READ_AS_MEMORY)} file (or .gz); may be repeated."),
]
SourceOption = Annotated[
    list[Path] | None, typer.Option("--source", help="Text file of source lines; may be repeated.")
]
TargetOption = Annotated[
    list[Path] | None, typer.Option("--target", help="Text file of target lines, aligned with --source.")
]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="Names of the two columns of a table, as SOURCE,TARGET.")
]
UnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="Also use pairs that are marked as unfinished in an XLIFF or PO file.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the corpus. [default: its file name]")]
IndexOption = Annotated[
    str | None, typer.Option("--index", help="FAISS factory string of the index. [default: chosen by size]")
]
MemoryOption = Annotated[
    str | None,
    typer.Option("--memory", help="Maximum memory for indexing, such as 8G. [default: half of the machine's memory]"),
]
CapOption = Annotated[
    int | None, typer.Option("--cap", help="Keep at most N entries per target token, spread evenly over the text.")
]
MixingOption = Annotated[
    str,
    typer.Option("--mixing", help=f"Mixing method to fit: {either_of(KINDS)}. With paper, nothing is fitted."),
]
GeneralOption = Annotated[
    Path | None,
    typer.Option(
        "--general",
        help="General text in the source language, to be translated as without memory. [default: built in]",
    ),
]
BatchTokens = Annotated[
    int, typer.Option("--batch-tokens", help="Maximum number of tokens per forward pass, padding included.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Hugging Face name, folder, or builtin:de-en. [default: the store's model]"),
]
SourceLang = Annotated[str | None, typer.Option("--source-lang", help="Source language, for example de.")]
TargetLang = Annotated[str | None, typer.Option("--target-lang", help="Target language, for example en.")]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Use the Ray cluster at HOST:PORT; local starts one. [without a value: a running local one, else local]",
    ),
]
ShardsOption = Annotated[
    int | None, typer.Option("--shards", help="With --ray: number of Ray actors that share the search. [default: 2]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int | None, typer.Option("--limit", help="Use only the first N pairs.")]


def corpus_files(
    corpus: list[Path] | None, source: list[Path] | None, target: list[Path] | None
) -> list[tuple[Path, Path | None]]:
    """The given files, as (file, None) or (source, target)."""
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
    from knnmt.translate.document_settings import columns_of
    from knnmt.units.pairs import DocumentPair, is_document_pair

    chosen = columns_of(columns)
    return [
        (DocumentPair if is_document_pair(source, target) else Corpus)(
            source, target, languages, name or "", chosen, unfinished
        )
        for source, target in files
    ]


def bytes_of(text: str | None) -> int | None:
    """`8G`, `500M` or a number of bytes."""
    if text is None:
        return None
    matched = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper())
    if not matched or not int(matched[1]):
        raise SettingsError(f"--memory {text}: must be a size such as 8G or 500M")
    return int(matched[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[matched[2]]


def translator_from_options(
    stores: list[str] | None,
    model: str | None,
    settings: "TranslateSettings",
    *,
    source_lang: str | None = None,
    target_lang: str | None = None,
    ray: str | None = None,
    shards: int | None = None,
) -> "Translator":
    """A translator of stores, or of the base model alone; a flag that would have no effect is an error."""
    from knnmt.translate.translator import Translator

    if stores:
        refuse({"target_lang": target_lang}, "a store knows its own; leave it out")
        spread = searched_by(ray, shards)
        return Translator.from_store(stores, settings, model=model, source_lang=source_lang, searched_by=spread)
    if model is None:
        raise SettingsError("--store or --model is missing")
    refuse({"ray": ray, "shards": shards}, "only with --store; the model alone searches nothing")
    refuse(settings.for_memory(), "only with --store; the model alone retrieves nothing")
    return Translator.from_model(model, settings, source_lang=source_lang, target_lang=target_lang)


def searched_by(ray: str | None, shards: int | None) -> "SearchedBy":
    """What searches the stores: this process, or shards on a cluster that this process joins."""
    if ray is None:
        from knnmt.retrieval.local_retriever import LocalRetriever

        refuse({"shards": shards}, "only with --ray")
        return LocalRetriever
    from knnmt.cluster.connection import connect

    connect(ray)
    from knnmt.cluster.sharded_retriever import SHARDS, ShardedRetriever

    return partial(ShardedRetriever, shards=SHARDS if shards is None else shards)


def refuse(given: dict[str, Any], reason: str) -> None:
    for name, value in given.items():
        if value is not None:
            shown = " ".join(value) if isinstance(value, tuple) else value
            raise SettingsError(f"--{name.replace('_', '-')} {shown}: {reason}")


def print_json(record: Any) -> None:
    print(json.dumps(record, ensure_ascii=False, indent=2))
