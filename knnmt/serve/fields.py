"""Reads the fields of a request: JSON, form, multipart or query string.

Whatever is not asked for is ignored, and null counts as absent.
"""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request

from knnmt.service.failures import BadRequest, TooLarge

KEY_NAMES = ("api_key", "apiKey", "auth_key", "key")
SCHEMES = ("bearer", "deepl-auth-key", "token")
MOST_FIELDS = 1_000

Fields = dict[str, Any]


async def sent_fields(request: Request) -> Fields:
    """Everything that was sent, the body before the query; a name that comes again becomes a list."""
    fields = by_name(pairs_in(request.scope["query_string"]))
    fields.update(await body_fields(request))
    return {name: value for name, value in fields.items() if value is not None}


def pairs_in(encoded: bytes) -> list[tuple[str, Any]]:
    """Fields of a query string or a form. `curl -d q=Prüfung` sends letters as UTF-8 without percent signs."""
    try:
        return [*parse_qsl(text_in(encoded), keep_blank_values=True, max_num_fields=MOST_FIELDS)]
    except ValueError as error:
        raise BadRequest(f"Invalid request: more than {MOST_FIELDS} fields") from error


def text_in(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return encoded.decode("latin-1")


def by_name(items: list[tuple[str, Any]]) -> Fields:
    fields: Fields = {}
    for name, value in items:
        if name in fields:
            fields[name] = [*(fields[name] if isinstance(fields[name], list) else [fields[name]]), value]
        else:
            fields[name] = value
    return fields


async def body_fields(request: Request) -> Fields:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await multipart_fields(request)
    body = (await request.body()).strip()
    if kind == "application/x-www-form-urlencoded" and not body.startswith(b"{"):  # `curl -d` says so of JSON too
        return by_name(pairs_in(body))
    return json_fields(body) if body else {}


def json_fields(body: bytes) -> Fields:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"Invalid request: the body is not JSON ({str(error)[:80]})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadRequest("Invalid request: the body must be a JSON object")
    return content


async def multipart_fields(request: Request) -> Fields:
    """Fields and files; python-multipart raises what Starlette turns into an HTTP error of its own."""
    try:
        form = await request.form(max_files=1, max_fields=MOST_FIELDS)
    except Exception as error:
        if isinstance(error, TooLarge | ClientDisconnect):
            raise
        raise BadRequest("Invalid request: the body is not multipart/form-data") from error
    return by_name(form.multi_items())


def key_in(request: Request, fields: Mapping[str, Any]) -> str | None:
    """The API key, wherever the client's own API puts it."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in SCHEMES and value.strip():
        return value.strip()
    if header := request.headers.get("x-api-key"):
        return header
    sent = (fields[name] for name in KEY_NAMES if isinstance(fields.get(name), str) and fields[name])
    return next(sent, None) or (key_in_address(value) if scheme.lower() == "basic" else None)


def key_in_address(encoded: str) -> str | None:
    """The key of `http://name:KEY@host/`, for clients without a place for one, such as Weblate's for tmserver."""
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    return password or user or None


def sent_text(fields: Fields, name: str, default: str | None = None) -> str:
    """A text; where there is a default, an empty one counts as absent."""
    value = fields.get(name)
    if value is None or (value == "" and default is not None):
        value = default
    if value is None or isinstance(value, UploadFile):
        raise BadRequest(f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise BadRequest(f"Invalid request: {name} must be text")
    return check_text(value, name)


def sent_texts(fields: Fields, name: str) -> tuple[list[str], bool]:
    """One text or several, and whether it was a list."""
    value = fields.get(name)
    if isinstance(value, list):
        if not all(isinstance(one, str) for one in value):
            raise BadRequest(f"Invalid request: {name} must be text or a list of texts")
        return [check_text(one, name) for one in value], True
    return [sent_text(fields, name)], False


def check_text(text: str, name: str) -> str:
    """JSON can say half of a surrogate pair, which is no text and no program can write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"Invalid request: {name} is not Unicode text") from error
    return text


def number_in(fields: Fields, name: str, least: float, most: float) -> float | None:
    """A number between two, where one was sent."""
    value = fields.get(name, "")
    if value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        raise BadRequest(f"Invalid request: {name} must be a number from {least} to {most}")
    return number


def number_of(fields: Fields, name: str, default: int, *, most: int) -> int:
    value = fields.get(name, default)
    try:
        number = int(value) if not isinstance(value, bool) else -1
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number < 0:
        raise BadRequest(f"Invalid request: {name} must be a number from 0 to {most}")
    if number > most:
        raise BadRequest(f"Invalid request: {name} ({number}) exceeds the limit ({most})")
    return number
