"""ASGI middleware: API key, limits, security headers, metrics and the log.

Plain ASGI, because it must see the body before it is read and every exception.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from boolattn.service.errors import RefusedError, as_refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from boolattn.service.metrics import Metrics
    from boolattn.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

#: Paths that use the model or the index: limited in number at once.
CHANGED = "/documents"
LIMITED = ("/search", "/explain", "/examples", "/facets", CHANGED)
#: Paths that need the API key; the page, the health check and the API description are open.
PROTECTED = (*LIMITED, "/metrics", "/about")
#: No foreign and no inline scripts; the page may not be framed.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class _Exchange:
    """One request and its response."""

    scope: Scope
    receive: Receive
    send: Send
    max_body: int
    start: float
    is_change: bool  # of documents
    status: int = 0
    code: str = ""
    n_bytes: int = 0
    has_body: bool = False

    async def read(self) -> Message:
        """Receive a part of the body; refuse one that is too large."""
        message = await self.receive()
        if message["type"] == "http.request":
            self.n_bytes += len(message.get("body", b""))
            self.has_body = not message.get("more_body", False)
            if self.n_bytes > self.max_body:
                raise _too_large(self.max_body)
        return message

    async def write(self, message: Message) -> None:
        """Send a part of the response, with the headers that every response has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-store")
        await self.send(message)

    async def refuse(self, error: RefusedError) -> None:
        """Send an error, unless a response has begun."""
        self.code = error.code
        if not self.status:
            await error.response()(self.scope, self.receive, self.write)

    @property
    def route(self) -> str:
        """Path pattern of the route: few values, and nothing that a caller typed."""
        route = self.scope.get("route")
        if route is not None:
            return str(route.path)
        # Refused before it was routed.
        return next(
            (prefix for prefix in PROTECTED if self.scope["path"].startswith(prefix)), "other"
        )


class LimitsMiddleware:
    """Checks every request before the application sees it."""

    def __init__(self, app: ASGIApp, *, settings: ServiceSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._n_active = 0
        self._key = _digest(settings.api_key) if settings.api_key else None
        metrics.gauge("boolattn_requests_active", "Active requests.", lambda: self._n_active)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # The same answer as to GET, without its body.
            scope, send = {**scope, "method": "GET"}, partial(_send_head, send)
        is_change = scope["method"] not in ("GET", "HEAD") and CHANGED in scope["path"]
        max_body = self._settings.max_upload if is_change else self._settings.max_body
        exchange = _Exchange(scope, receive, send, max_body, time.perf_counter(), is_change)
        try:
            await self._answer(exchange)
        except Exception as error:  # noqa: BLE001 - the last place before the server
            # The framework reports a body that breaks off as one that cannot be parsed.
            is_large = exchange.n_bytes > max_body
            await exchange.refuse(_too_large(max_body) if is_large else as_refused(error))
        finally:
            self._record(exchange)

    async def _answer(self, exchange: _Exchange) -> None:
        # Without the root path, as the routes see it.
        path = exchange.scope["path"].removeprefix(exchange.scope.get("root_path", ""))
        headers = Headers(scope=exchange.scope)
        is_limited = path.startswith(LIMITED)
        if path.startswith(PROTECTED):
            self._check_key(headers)
        if exchange.is_change and self._key is None:
            message = "documents are changed only where an API key is set: serve --api-key-env"
            raise RefusedError(403, "no_writing", message)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > exchange.max_body:
            raise _too_large(exchange.max_body)
        if is_limited and self._n_active >= self._settings.concurrency:
            message = f"{self._n_active} requests are active already; try again in a second"
            raise RefusedError(503, "busy", message, headers={"Retry-After": "1"})
        self._n_active += is_limited
        try:
            await self._answer_in_time(exchange)
        finally:
            self._n_active -= is_limited

    async def _answer_in_time(self, exchange: _Exchange) -> None:
        try:
            # A change is not stopped half-way, so its caller waits; the key keeps others out.
            limit_s = None if exchange.is_change else self._settings.timeout
            async with asyncio.timeout(limit_s):
                await self._app(exchange.scope, exchange.read, exchange.write)
        except TimeoutError as error:
            limit = f"{self._settings.timeout:g} s"
            if not exchange.has_body and exchange.scope["method"] == "POST":
                message = f"the request's body did not arrive within {limit}"
                raise RefusedError(408, "slow_body", message) from error
            message = f"no answer within {limit}; ask for fewer results"
            raise RefusedError(504, "timeout", message) from error

    def _check_key(self, sent: Headers) -> None:
        """Compare digests, so that the time depends neither on the key's bytes nor its length."""
        if self._key is None:
            return
        scheme, _, token = sent.get("authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else sent.get("x-api-key", "")
        if not hmac.compare_digest(_digest(shown), self._key):
            code, headers = "wrong_key" if shown else "no_key", {"WWW-Authenticate": "Bearer"}
            message = "send the API key in the header Authorization: Bearer or X-API-Key"
            raise RefusedError(401, code, message, headers=headers)

    def _record(self, exchange: _Exchange) -> None:
        """Count and log a request."""
        seconds = time.perf_counter() - exchange.start
        # 499: the caller closed the connection before a response began.
        status = str(exchange.status or 499)
        self._metrics.requests.labels(route=exchange.route, status=status).inc()
        self._metrics.seconds.labels(route=exchange.route).observe(seconds)
        if exchange.code:
            self._metrics.refused.labels(code=exchange.code).inc()
        code = f" {exchange.code}" if exchange.code else ""
        method = exchange.scope["method"] if exchange.status != 405 else "?"
        logger.info("%s %s %s %.1f ms%s", method, exchange.route, status, 1000 * seconds, code)


async def _send_head(send: Send, message: Message) -> None:
    await send(message if message["type"] != "http.response.body" else {**message, "body": b""})


def _too_large(limit: int) -> RefusedError:
    # The rest of the body would be read as the next request.
    message, headers = f"the body may have at most {limit} bytes", {"Connection": "close"}
    return RefusedError(413, "body_too_large", message, headers=headers)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
