"""The commands that make a datastore, change it, and show what it is and was."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.options import (
    AsJson,
    BatchTokens,
    CapOption,
    ColumnsOption,
    CorpusOption,
    IndexOption,
    Limit,
    ModelOption,
    NameOption,
    SourceLang,
    SourceOption,
    StoreArgument,
    TargetLang,
    TargetOption,
    UnfinishedOption,
    WhereOption,
    corpora_of,
    corpus_files,
    errors,
    output,
    print_json,
)

if TYPE_CHECKING:
    from knnmt.store.adding import Added

CONFLICTS_SHOWN = 5

store_commands = typer.Typer()


@store_commands.command()
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
    from knnmt.models.translation_model import load_model
    from knnmt.store.building import BuildSettings, build_store, check_place

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


@store_commands.command()
def add(
    store: StoreArgument,
    corpus: CorpusOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    columns: ColumnsOption = None,
    unfinished: UnfinishedOption = False,
    model: ModelOption = None,
    name: NameOption = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="A new translation of a known source takes the old one's place.")
    ] = False,
    limit: Limit = None,
    batch_tokens: BatchTokens = 4096,
) -> None:
    """Add sentence pairs to a datastore; pairs that it has already are left out."""
    from knnmt.store.adding import AddSettings, add_to_store
    from knnmt.store.datastore import Store
    from knnmt.translate.translator import model_of_store

    settings = AddSettings(replace=replace, limit=limit, batch_tokens=batch_tokens, show_progress=sys.stderr.isatty())
    files = corpus_files(corpus, source, target)
    opened = Store.open(store)
    languages = (opened.manifest.model.source_lang, opened.manifest.model.target_lang)
    corpora = corpora_of(files, languages, name, columns, unfinished)
    report(store, add_to_store(store, model_of_store(opened, model), corpora, settings))


def report(path: Path, added: "Added") -> None:
    """What was added, what was not, and which sources now have two translations."""
    parts = [f"{added.segments:,} pairs added, {added.entries:,} entries"]
    parts += [f"{added.duplicates:,} known already"] if added.duplicates else []
    parts += [f"{added.replaced:,} replaced"] if added.replaced else []
    parts += [f"left out: {added.skipped}"] if added.skipped.total else []
    errors.print(f"{path}: {'; '.join(parts)}")
    if added.conflicts and not added.replaced:
        errors.print(
            f"{len(added.conflicts):,} of them translate a known source anew; all are kept (--replace: the newest)"
        )
        for conflict in added.conflicts[:CONFLICTS_SHOWN]:
            errors.print(f"  {conflict.source!r}: {conflict.before!r}, now also {conflict.now!r}")
    if added.compact_suggested:
        errors.print(f"the store has outgrown its index; `knnmt compact {path}` would make it faster")


@store_commands.command()
def remove(
    store: StoreArgument,
    segment: Annotated[list[int] | None, typer.Option("--segment", help="A number that `explain` shows.")] = None,
    corpus: Annotated[list[str] | None, typer.Option("--corpus", help="Every segment of this corpus.")] = None,
    source_text: Annotated[
        list[str] | None, typer.Option("--source-text", help="Every segment with exactly this source sentence.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="Every segment that meets this, such as client=X.")
    ] = None,
) -> None:
    """Remove sentence pairs: no translation uses them any more; `compact` takes them off the disk."""
    from knnmt.store.removing import remove_from_store

    _, gone = remove_from_store(
        store, segments=segment or [], corpora=corpus or [], source_texts=source_text or [], where=where or []
    )
    errors.print(f"{store}: {gone:,} pairs removed")


@store_commands.command()
def merge(
    store: StoreArgument,
    others: Annotated[list[Path], typer.Argument(metavar="OTHER…", help="Stores of the same model.")],
) -> None:
    """Take the content of other datastores into one; they stay as they are."""
    from knnmt.store.merging import merge_stores

    merged = merge_stores(store, others)
    errors.print(f"{store}: now {merged.live_segments:,} pairs, {merged.live_entries:,} entries")


@store_commands.command()
def compact(
    store: StoreArgument,
    index: IndexOption = None,
    cap: CapOption = None,
    drop_keys: Annotated[
        bool, typer.Option("--drop-keys", help="Keep only the index's codes: smaller, distances less exact.")
    ] = False,
) -> None:
    """Write a datastore anew: what was removed leaves the disk, one index is trained, earlier versions go."""
    from knnmt.store.compacting import compact_store
    from knnmt.store.datastore import Store

    before = Store.open(store).bytes
    after = compact_store(store, index=index, cap=cap, drop_keys=drop_keys, show_progress=sys.stderr.isatty())
    errors.print(f"{store}: {before / 1e6:,.1f} MB before, {after.bytes / 1e6:,.1f} MB now")


@store_commands.command()
def export(
    store: StoreArgument,
    output_file: Annotated[Path, typer.Option("--output", help="A .tmx, .tsv, .csv or .jsonl file (or .gz) to write.")],
    where: WhereOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
) -> None:
    """Give the memory back as a file, with the metadata of each pair."""
    from knnmt.store.datastore import Store
    from knnmt.store.filters import chosen_segments
    from knnmt.text.exporting import check_exportable, write_memory

    opened = Store.open(store)
    opened.hold()
    record = opened.manifest.model
    languages = (source_lang or record.source_lang, target_lang or record.target_lang)
    check_exportable(output_file, languages)
    written = write_memory(output_file, chosen_segments(opened, where or []), languages)
    errors.print(f"{output_file}: {written:,} pairs")


@store_commands.command()
def versions(store: StoreArgument, as_json: AsJson = False) -> None:
    """List what was done to a datastore, and the versions that it can go back to."""
    from knnmt.store.datastore import Store
    from knnmt.store.versions import versions_of

    facts = [
        {"version": m.version, "changed": m.changed, "change": m.change, "segments": m.segments, "entries": m.entries}
        for m in versions_of(Store.open(store))
    ]
    if as_json:
        print_json(facts)
        return
    for fact in facts:
        output.print(f"{fact['version']:>4}  {fact['changed']}  {fact['change']}")


@store_commands.command()
def rollback(
    store: StoreArgument,
    version: Annotated[int, typer.Argument(help="A version that `knnmt versions` lists.")],
) -> None:
    """Make an earlier version of a datastore the newest."""
    from knnmt.store.versions import roll_back

    store_now = roll_back(store, version)
    errors.print(f"{store}: {store_now.manifest.change}, as version {store_now.manifest.version}")


@store_commands.command()
def info(store: StoreArgument, as_json: AsJson = False) -> None:
    """Show what is in a datastore and how it was made."""
    from knnmt.cli.views import show_store, store_facts
    from knnmt.store.datastore import Store

    opened = Store.open(store)
    if as_json:
        print_json(store_facts(opened))
    else:
        show_store(opened, output)


@store_commands.command()
def verify(store: StoreArgument) -> None:
    """Check a datastore: checksums, counts, and whether the index agrees with the parts."""
    from knnmt.cli.views import count_of
    from knnmt.store.datastore import Store
    from knnmt.store.verification import problems_of

    opened = Store.open(store)
    problems = list(problems_of(opened))
    for problem in problems:
        errors.print(f"knnmt: {problem}")
    if problems:
        raise typer.Exit(2)
    parts = count_of(len(opened.manifest.parts), "part")
    output.print(f"{store}: {opened.entries:,} entries in {parts}, all as written")
