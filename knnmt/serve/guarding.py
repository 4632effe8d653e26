"""Checks every request before its route: allowed hosts and origins, size of the body, headers."""

import logging
import time
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.serve.calls import Server
from knnmt.serve.settings import LOOPBACK, host_in
from knnmt.service.failures import TooLarge, where

log = logging.getLogger(__name__)

UPLOADS = ("/translate_file", "/v1/documents", "/v1/memories")  # paths whose bodies are files
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
FAULT = "Internal error; the server's log has more"
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
ALLOWED_METHODS = "GET, POST, DELETE, OPTIONS"
ALLOWED_HEADERS = "authorization, content-type, x-api-key"


class Guard:
    """An ASGI layer. Starlette's own base class for these hides a client's hanging up from the routes."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app, self.settings, self.keys = app, server.settings, server.gate.keys
        self.metrics = server.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope, headers = as_meant(scope), Headers(scope=scope)
        refusal = self.refusal(headers)
        if refusal is not None:
            await JSONResponse({"error": refusal}, 403)(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await JSONResponse({}, headers=self.shared(headers))(scope, receive, send)
        else:
            await self.counted(scope, limiting(receive, headers, self.limit(scope["path"])), send, self.shared(headers))

    def refusal(self, headers: Headers) -> str | None:
        """Why a page on another site may not call: it would use the rights of the person who opens it."""
        if self.keys is None and not self.settings.public:
            name = host_in(headers.get("host", ""))
            if name not in (*LOOPBACK, *self.settings.hosts):
                return f"this server has no keys and is not called {name!r}; see --allow-host"
        origin = headers.get("origin")
        same = origin is None or urlsplit(origin).netloc == headers.get("host")
        if not same and origin not in self.settings.cors:
            return "pages of other sites may not call this server; see --cors"
        return None

    def shared(self, headers: Headers) -> dict[str, str]:
        """What lets a named site's pages read the answer."""
        origin = headers.get("origin")
        if origin is None or origin not in self.settings.cors:
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": ALLOWED_METHODS,
            "access-control-allow-headers": ALLOWED_HEADERS,
            "cross-origin-resource-policy": "cross-origin",
            "vary": "origin",
        }

    def limit(self, path: str) -> int:
        limits = self.settings.limits
        return limits.upload_bytes if path.startswith(UPLOADS) else limits.body_bytes

    async def counted(self, scope: Scope, receive: Receive, send: Send, shared: dict[str, str]) -> None:
        """Answer and count the request under its declared route, because a path may contain somebody's text."""
        begun, statuses = time.monotonic(), [500]
        finishing = self.finishing(send, shared, statuses)
        try:
            await self.app(scope, receive, finishing)
        except ClientDisconnect:
            log.debug("a client hung up before its request was whole")
        except Exception as fault:
            log.error("%s %s", scope["method"], where(fault))  # noqa: TRY400 - not its message; nor is it raised, for others would log that
            if len(statuses) == 1:
                await JSONResponse({"error": FAULT}, 500)(scope, receive, finishing)
        finally:
            seconds = time.monotonic() - begun
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count(scope["method"], route, statuses[-1], seconds)
            log.info("%s %s %d %.3f s", scope["method"], route, statuses[-1], seconds)

    def finishing(self, send: Send, shared: dict[str, str], statuses: list[int]) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, **shared}.items():
                    headers.setdefault(name, value)
                headers.update(shared)
            await send(message)

        return sending


def as_meant(scope: Scope) -> Scope:
    """HEAD is GET whose answer's body the server leaves out; `http://host:5000/` + `/translate` is `/translate`."""
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    return {**scope, "method": method, "path": "/" + scope["path"].lstrip("/")}


def limiting(receive: Receive, headers: Headers, limit: int) -> Receive:
    """The same body, as long as it is not endless."""
    seen = 0
    announced = headers.get("content-length", "")

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit or (announced.isdecimal() and len(announced) < 19 and int(announced) > limit):
            raise TooLarge(f"Invalid request: more than {limit:,} bytes")
        return message

    return receiving
