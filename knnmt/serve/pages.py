"""Serves the files of the web page: HTML, CSS and ES modules."""

from importlib import resources
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from knnmt.service.failures import NotFound

router = APIRouter(include_in_schema=False)
FOLDER = Path(str(resources.files("knnmt.serve"))) / "page"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FRESH = {"cache-control": "no-cache"}  # a new version's files must not meet the old one's


def file(name: str) -> Response:
    known = {path.name: path for path in FOLDER.iterdir() if path.suffix in KINDS}
    if name not in known:
        raise NotFound("Not Found")
    return FileResponse(known[name], media_type=KINDS[known[name].suffix], headers=FRESH)


@router.get("/")
async def index() -> Response:
    return file("index.html")


@router.get("/docs")
async def docs() -> Response:
    return file("docs.html")


@router.get("/favicon.ico")
async def icon() -> Response:
    return file("icon.svg")


@router.get("/page/{name}")
async def part(name: str) -> Response:
    return file(name)
