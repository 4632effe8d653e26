"""The commands that build, change and show datastores."""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.cli.options import (
    AsJson,
    BatchTokens,
    CapOption,
    ColumnsOption,
    CorpusOption,
    GeneralOption,
    IndexOption,
    Limit,
    MemoryOption,
    MixingOption,
    ModelOption,
    NameOption,
    RayOption,
    SourceLang,
    SourceOption,
    StoreArgument,
    TargetLang,
    TargetOption,
    UnfinishedOption,
    WhereOption,
    bytes_of,
    corpora_of,
    corpus_files,
    errors,
    output,
    print_json,
    refuse,
)
from knnmt.cli.store_view import mixing_line
from knnmt.errors import SettingsError
from knnmt.text.endings import WRITTEN_AS_MEMORY, either_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from knnmt.store.adding import Added
    from knnmt.store.building import Workers

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
    memory: MemoryOption = None,
    limit: Limit = None,
    cap: CapOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted build.")] = False,
    batch_tokens: BatchTokens = 4096,
    ray: RayOption = None,
    mixing: MixingOption = "learned",
    general: GeneralOption = None,
    source_prefix: Annotated[
        str | None, typer.Option("--source-prefix", help="Text to add before every source, as T5 needs.")
    ] = None,
    key_site: Annotated[
        str | None,
        typer.Option("--key-site", help="For an unknown architecture: path of the module whose input is the key."),
    ] = None,
) -> None:
    """Build a datastore from parallel text."""
    from knnmt.measure.fitting import fit_mixing, general_sentences
    from knnmt.models.translation_model import load_model
    from knnmt.store.building import BuildSettings, build_store, check_place

    check_mixing(mixing)
    if general is not None:
        general_sentences(None, general)
    settings = BuildSettings(
        index=index,
        memory=bytes_of(memory),
        limit=limit,
        cap=cap,
        resume=resume,
        batch_tokens=batch_tokens,
        show_progress=sys.stderr.isatty(),
    )
    files = corpus_files(corpus, source, target)
    check_place(store, resume)
    loaded = load_model(
        model, source_lang=source_lang, target_lang=target_lang, source_prefix=source_prefix, key_site=key_site
    )
    languages = (source_lang or loaded.source_lang, target_lang or loaded.target_lang)
    corpora = corpora_of(files, languages, name, columns, unfinished)
    with building_workers(ray) as workers:
        built = build_store(store, loaded, corpora, settings, workers=workers)
    fitted = fit_mixing(store, loaded, kind=mixing, general=general, show_progress=sys.stderr.isatty())
    skipped = ", ".join(f"{count:,} pairs {reason}" for reason, count in built.manifest.skipped.items())
    if built.manifest.downsampling:
        skipped += f"{', ' if skipped else ''}{built.manifest.downsampling['dropped']:,} entries above --cap {cap}"
    errors.print(
        f"{store}: {built.entries:,} entries from {built.manifest.segments:,} pairs"
        + (f"; left out: {skipped}" if skipped else "")
    )
    errors.print(f"mixing: {mixing_line(fitted.manifest.mixing)}")


@store_commands.command()
def fit(
    store: StoreArgument,
    mixing: MixingOption = "learned",
    general: GeneralOption = None,
    model: ModelOption = None,
) -> None:
    """Fit how a datastore mixes neighbours and model, on the memory alone. `build` also does this."""
    from knnmt.measure.fitting import fit_mixing
    from knnmt.store.datastore import Store
    from knnmt.translate.translator import model_of_store

    check_mixing(mixing)
    opened, progress = Store.open(store), sys.stderr.isatty()
    loaded = model_of_store(opened, model)
    fitted = fit_mixing(store, loaded, kind=mixing, general=general, keep_tuning=False, show_progress=progress)
    forgotten = "; what it was tuned to is forgotten" if opened.manifest.tuned else ""
    errors.print(f"{store}: mixing {mixing_line(fitted.manifest.mixing)}{forgotten}")


def check_mixing(kind: str) -> None:
    from knnmt.translate.settings import KINDS

    if kind not in KINDS:
        raise SettingsError(f"--mixing {kind}: must be one of {', '.join(KINDS)}")


def keep_fitted_to(path: Path) -> None:
    """Fit the mixing again if a change has changed the store much. The model is loaded only for that."""
    from knnmt.store.datastore import Store

    store = Store.open(path)
    record = store.manifest.mixing
    if record is None or not record.outgrown(store.live_segments) or not store.has_keys or not store.live_entries:
        return
    from knnmt.measure.fitting import fit_mixing
    from knnmt.translate.translator import model_of_store

    fitted = fit_mixing(path, model_of_store(store), kind=record.kind, show_progress=sys.stderr.isatty())
    errors.print(f"{path}: mixing fitted anew: {mixing_line(fitted.manifest.mixing)}")


@contextmanager
def building_workers(ray: str | None) -> "Iterator[Workers | None]":
    """The workers of a build: a Ray cluster, or None for this process."""
    if ray is None:
        yield None
        return
    from knnmt.cluster.connection import connected

    with connected(ray):
        from knnmt.cluster.workers import RayWorkers

        yield RayWorkers()


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
    replace: Annotated[bool, typer.Option("--replace", help="Replace older translations of the same source.")] = False,
    limit: Limit = None,
    batch_tokens: BatchTokens = 4096,
) -> None:
    """Add sentence pairs to a datastore. Pairs that it already contains are skipped."""
    from knnmt.store.adding import AddSettings, add_to_store
    from knnmt.store.datastore import Store
    from knnmt.translate.translator import model_of_store

    settings = AddSettings(replace=replace, limit=limit, batch_tokens=batch_tokens, show_progress=sys.stderr.isatty())
    files = corpus_files(corpus, source, target)
    opened = Store.open(store)
    languages = (opened.manifest.model.source_lang, opened.manifest.model.target_lang)
    corpora = corpora_of(files, languages, name, columns, unfinished)
    report(store, add_to_store(store, model_of_store(opened, model), corpora, settings))
    keep_fitted_to(store)


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
    segment: Annotated[
        list[int] | None, typer.Option("--segment", help="Remove the segment with this number, as `explain` shows it.")
    ] = None,
    corpus: Annotated[list[str] | None, typer.Option("--corpus", help="Remove all segments of this corpus.")] = None,
    source_text: Annotated[
        list[str] | None, typer.Option("--source-text", help="Remove all segments with exactly this source sentence.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Remove all segments that match this condition, such as client=X."),
    ] = None,
) -> None:
    """Remove sentence pairs from a datastore. `compact` also deletes them from disk."""
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
    """Merge other datastores into this one. The others are not changed."""
    from knnmt.store.merging import merge_stores

    merged = merge_stores(store, others)
    errors.print(f"{store}: now {merged.live_segments:,} pairs, {merged.live_entries:,} entries")
    keep_fitted_to(store)


@store_commands.command()
def compact(
    store: StoreArgument,
    index: IndexOption = None,
    cap: CapOption = None,
    memory: MemoryOption = None,
    drop_keys: Annotated[
        bool,
        typer.Option(
            "--drop-keys", help="Keep only the codes of the index. The store is smaller, but distances are less exact."
        ),
    ] = False,
    tiers: Annotated[
        bool,
        typer.Option(
            "--tiers", help="Only join small parts and indexes. Versions are kept; others may use the store meanwhile."
        ),
    ] = False,
) -> None:
    """Rewrite a datastore: delete removed pairs and earlier versions from disk, and train one new index."""
    from knnmt.store.compacting import compact_store
    from knnmt.store.datastore import Store

    if tiers:
        refuse(
            {"index": index, "cap": cap, "memory": memory, "drop_keys": drop_keys or None}, "not together with --tiers"
        )
        join_tiers(store)
        return
    before = Store.open(store).bytes
    after = compact_store(
        store, index=index, cap=cap, memory=bytes_of(memory), drop_keys=drop_keys, show_progress=sys.stderr.isatty()
    )
    errors.print(f"{store}: {before / 1e6:,.1f} MB before, {after.bytes / 1e6:,.1f} MB now")
    keep_fitted_to(store)


def join_tiers(path: Path) -> None:
    from knnmt.store.compacting_tiers import compact_tiers
    from knnmt.store.datastore import Store

    steps = compact_tiers(path)
    manifest = Store.open(path).manifest
    shape = f"{len(manifest.parts):,} parts, {len(manifest.indexes):,} indexes"
    errors.print(f"{path}: joined in {steps:,} steps, now {shape}" if steps else f"{path}: nothing to join, {shape}")


@store_commands.command()
def export(
    store: StoreArgument,
    output_file: Annotated[
        Path, typer.Option("--output", help=f"File to write: {either_of(WRITTEN_AS_MEMORY)} (or .gz).")
    ],
    where: WhereOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
) -> None:
    """Export the memory to a file, with the metadata of each pair."""
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
    """List the changes of a datastore. `rollback` can restore these versions."""
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
    """Restore an earlier version of a datastore, as its newest version."""
    from knnmt.store.versions import roll_back

    store_now = roll_back(store, version)
    errors.print(f"{store}: {store_now.manifest.change}, as version {store_now.manifest.version}")


@store_commands.command()
def info(store: StoreArgument, as_json: AsJson = False) -> None:
    """Show what is in a datastore and how it was made."""
    from knnmt.cli.store_view import show_store, store_facts
    from knnmt.store.datastore import Store

    opened = Store.open(store)
    if as_json:
        print_json(store_facts(opened))
    else:
        show_store(opened, output)


@store_commands.command()
def verify(store: StoreArgument) -> None:
    """Check the files of a datastore: checksums, counts, and whether the index fits the parts."""
    from knnmt.cli.store_view import count_of
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
