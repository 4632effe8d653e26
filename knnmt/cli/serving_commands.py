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
keys_commands = typer.Typer(help="Manage the API keys of a server.", no_args_is_help=True)
serving_commands.add_typer(keys_commands, name="keys")

KeysFile = Annotated[Path, typer.Argument(metavar="FILE", help="File that contains the keys.")]


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
        Path | None,
        typer.Option("--api-keys", help="File of API keys (see `knnmt keys`). Every caller then needs one."),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Let other machines translate without an API key.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="Host name under which a server without API keys may be called; may be repeated."
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors", help="Origin of web pages that may call the server, such as https://cms.example; may be repeated."
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="Folder for document jobs. [default: ~/.local/state/knnmt/PORT]")
    ] = None,
    limit_characters: Annotated[
        int, typer.Option("--limit-characters", help="Maximum number of characters per request.")
    ] = 50_000,
    limit_texts: Annotated[int, typer.Option("--limit-texts", help="Maximum number of texts per request.")] = 1_000,
    limit_upload: Annotated[int, typer.Option("--limit-upload", help="Maximum size of an uploaded file, in MB.")] = 64,
    deadline: Annotated[
        float, typer.Option("--deadline", help="Maximum time that a request may wait, in seconds.")
    ] = 60.0,
    echo: Annotated[
        list[str] | None,
        typer.Option(
            "--echo", help="Language pair, such as en-de, to answer with the source text; needed by Weblate's test."
        ),
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write texts and translations to the log.")] = False,
) -> None:
    """Start an HTTP server with LibreTranslate's API, an API of its own, and a web page at /."""
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
    check_given(store, model)
    running = Running(lambda: load(store, model, source_lang, target_lang, ray, shards), settings)
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("knnmt.serve").setLevel(logging.INFO)
    announce(settings, running.address)
    running.run()


def check_given(stores: list[str] | None, model: str | None) -> None:
    """What can be known before the server says that it listens."""
    from knnmt.retrieval.memories import open_memory

    if not stores and model is None:
        raise SettingsError("--store or --model is missing")
    for text in stores or []:
        open_memory(text)


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
    name: Annotated[str, typer.Option("--name", help="Name of the key's owner.")],
    role: Annotated[str, typer.Option("--role", help="Role: translate, correct or admin.")] = "translate",
    rate: Annotated[
        int | None, typer.Option("--rate", help="Maximum number of requests per minute. [default: no limit]")
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", help="Name of a store that the key may use; may be repeated. [default: all]"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where", help="Use only segments that match this condition, such as client=acme; may be repeated."
        ),
    ] = None,
) -> None:
    """Make an API key and print it. The file stores only a hash of it."""
    from knnmt.service.access import Access, add_api_key

    stores = None if store is None else tuple(store)
    print(add_api_key(file, Access(name=name, role=role, rate=rate, stores=stores, filters=tuple(where or ()))))


@keys_commands.command("list")
def list_keys(file: KeysFile) -> None:
    """List the keys with their names, roles and limits."""
    from knnmt.service.access import read_api_keys

    for record in read_api_keys(file):
        access = record.access
        stores = "all stores" if access.stores is None else ", ".join(access.stores) or "no store"
        rate = f"{access.rate} requests a minute" if access.rate else "any rate"
        print("\t".join([access.name, access.role, rate, stores, " ".join(access.filters)]).rstrip())


@keys_commands.command("remove")
def remove(file: KeysFile, name: Annotated[str, typer.Option("--name", help="Name of the key's owner.")]) -> None:
    """Remove an API key. A running server stops accepting it."""
    from knnmt.service.access import remove_api_key

    remove_api_key(file, name)
