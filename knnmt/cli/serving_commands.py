"""The commands that serve over HTTP."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from knnmt.cli.options import (
    ModelOption,
    RayOption,
    ShardsOption,
    SourceLang,
    StoresOption,
    TargetLang,
    errors,
    searched_by,
)
from knnmt.errors import SettingsError

serving_commands = typer.Typer()
keys_commands = typer.Typer(help="API keys of a server.", no_args_is_help=True)
serving_commands.add_typer(keys_commands, name="keys")

KeysFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of keys.")]


@serving_commands.command()
def serve(
    store: StoresOption = None,
    model: ModelOption = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    ray: RayOption = None,
    shards: ShardsOption = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 5000,
    api_keys: Annotated[
        Path | None, typer.Option("--api-keys", help="File of keys, which every caller then needs; see knnmt keys.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let other machines translate without keys; without it, only this one.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name that a server without keys may be called by.")
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", help="An origin whose web pages may call, such as https://cms.example."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="Folder for documents at work. [default: ~/.local/state/knnmt/PORT]")
    ] = None,
    limit_characters: Annotated[int, typer.Option("--limit-characters", help="Of all texts of a request.")] = 50_000,
    limit_texts: Annotated[int, typer.Option("--limit-texts", help="Texts of a request.")] = 1_000,
    limit_upload: Annotated[int, typer.Option("--limit-upload", help="Megabytes of an uploaded file.")] = 64,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds that a request may wait.")] = 60.0,
    echo: Annotated[
        list[str] | None,
        typer.Option("--echo", help="Answer a pair, such as en-de, with the text itself; Weblate tests with it."),
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write texts and translations to the log.")] = False,
) -> None:
    """Translate over HTTP, as LibreTranslate does and more, with a page at /."""
    try:
        from knnmt.serve.running import Running
        from knnmt.serve.settings import ServerSettings
        from knnmt.service.limits import Limits
    except ModuleNotFoundError as error:
        raise SettingsError(f"serve needs {error.name}: pip install 'knnmt[server]'") from error
    limits = Limits(characters=limit_characters, texts=limit_texts, upload_bytes=limit_upload << 20, deadline=deadline)
    settings = ServerSettings(
        host=host,
        port=port,
        api_keys=api_keys,
        public=public,
        cors=tuple(cors or ()),
        hosts=tuple(allow_host or ()),
        state=state,
        log_texts=log_texts,
        echo=tuple(echo or ()),
        limits=limits,
    )
    running = Running(lambda: load(store, model, source_lang, target_lang, ray, shards), settings)
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("knnmt.serve").setLevel(logging.INFO)
    announce(settings, running.address)
    running.run()


def load(
    stores: list[str] | None,
    model: str | None,
    source_lang: str | None,
    target_lang: str | None,
    ray: str | None,
    shards: int | None,
) -> Any:
    from knnmt.service.shelf import shelve

    spread = searched_by(ray, shards)
    return shelve(stores or [], model=model, source_lang=source_lang, target_lang=target_lang, searched_by=spread)


def announce(settings: Any, address: str) -> None:
    if settings.public and settings.api_keys is None:
        errors.print("knnmt: WARNING: --public without --api-keys: everyone who reaches this machine may translate")
    errors.print(f"knnmt: listening on {address}; loading")


@keys_commands.command("add")
def add(
    file: KeysFile,
    name: Annotated[str, typer.Option("--name", help="Whose key it is.")],
    role: Annotated[str, typer.Option("--role", help="translate, correct or admin.")] = "translate",
    rate: Annotated[int | None, typer.Option("--rate", help="Requests a minute. [default: no limit]")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="A store it may see. [default: all]")] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="Only pairs that meet this, such as client=acme; repeatable.")
    ] = None,
) -> None:
    """Make a key and print it; the file keeps only its hash."""
    from knnmt.service.access import Access, add_api_key

    stores = None if store is None else tuple(store)
    print(add_api_key(file, Access(name=name, role=role, rate=rate, stores=stores, filters=tuple(where or ()))))


@keys_commands.command("list")
def list_keys(file: KeysFile) -> None:
    """Show the names of the keys and what they may do."""
    from knnmt.service.access import read_api_keys

    for record in read_api_keys(file):
        access = record.access
        stores = "all stores" if access.stores is None else ", ".join(access.stores) or "no store"
        rate = f"{access.rate} requests a minute" if access.rate else "any rate"
        print("\t".join([access.name, access.role, rate, stores, " ".join(access.filters)]).rstrip())


@keys_commands.command("remove")
def remove(file: KeysFile, name: Annotated[str, typer.Option("--name", help="Whose key it is.")]) -> None:
    """Remove a key. A running server stops accepting it."""
    from knnmt.service.access import remove_api_key

    remove_api_key(file, name)
