"""The OpenAPI document: FastAPI's own, with our errors instead of FastAPI's."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

ERRORS = {
    "400": "Something in the request is wrong, or the API key is missing.",
    "403": "The API key is wrong or may not do this.",
    "404": "What the request names is not there, or not for this key.",
    "413": "The body is larger than the server reads.",
    "429": "This key is over its own rate; `Retry-After` says for how long.",
    "500": "Not answered before the deadline, or a fault of the server.",
}
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def sent(needed: tuple[str, ...], **fields: dict[str, Any]) -> dict[str, Any]:
    """The body of a route that reads it itself: JSON or a form, and whatever else a client may add."""
    key = {"type": ["string", "null"], "description": "Where the server asks for one."}
    schema = {"type": "object", "required": list(needed), "properties": {**fields, "api_key": key}}
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    content = {kind: {"schema": schema} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


def text(about: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": about, **more}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Made once, on first use."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for methods in document["paths"].values():
            for operation in methods.values():
                with_errors(operation["responses"])
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["Error"] = ERROR
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema


def with_errors(responses: dict[str, Any]) -> None:
    responses.pop("422", None)
    for status, description in ERRORS.items():
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        responses.setdefault(status, {"description": description, "content": content})
