"""The FastAPI application: its routes, errors and middleware."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from knnmt.errors import KnnmtError
from knnmt.release import __version__
from knnmt.serve import documents, libretranslate, memories, metrics, other_apis, pages, translations
from knnmt.serve.calls import Server
from knnmt.serve.guarding import Guard
from knnmt.serve.openapi import openapi_document
from knnmt.service.failures import ApiError

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_app(server: Server, lifespan: Lifespan | None = None) -> FastAPI:
    """The application of a server; `lifespan` loads its models."""
    app = FastAPI(
        title="knnmt",
        version=__version__,
        description="Nearest-neighbour machine translation with your translation memory.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/spec",
        lifespan=lifespan or waiting,
    )
    app.state.server = server
    for shape in (libretranslate.router, translations.router, memories.router, documents.router, metrics.router):
        app.include_router(shape)
    for shape in (
        documents.libretranslate,
        other_apis.deepl,
        other_apis.tmserver,
        other_apis.apertium,
        pages.router,
    ):
        app.include_router(shape)
    app.include_router(other_apis.deepl, prefix="/deepl", include_in_schema=False)
    app.exception_handler(ApiError)(on_api_error)
    app.exception_handler(RequestValidationError)(on_invalid)
    app.exception_handler(HTTPException)(on_http_error)
    app.exception_handler(KnnmtError)(on_user_error)
    app.add_middleware(Guard, server=server)
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def waiting(app: FastAPI) -> AsyncIterator[None]:
    app.state.server.expect()
    yield


def error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


async def on_api_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, ApiError)
    speaks_deepl = request.url.path.startswith(other_apis.DEEPL)  # whose clients look for another name
    content = {"error": failure.message} | ({"message": failure.message} if speaks_deepl else {})
    return JSONResponse(content, failure.status, failure.headers)


async def on_invalid(request: Request, failure: Exception) -> Response:  # noqa: ARG001
    assert isinstance(failure, RequestValidationError)
    first = failure.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    return error(400, f"Invalid request: {place or 'body'}: {first['msg']}")


async def on_http_error(request: Request, failure: Exception) -> Response:  # noqa: ARG001
    assert isinstance(failure, HTTPException)
    known = failure.status_code in (404, 405)
    message = HTTPStatus(failure.status_code).phrase if known else str(failure.detail)
    return error(failure.status_code, message, dict(failure.headers or {}))


async def on_user_error(request: Request, failure: Exception) -> Response:
    service = await request.app.state.server.service()
    return error(400, service.shelf.without_paths(str(failure)))
