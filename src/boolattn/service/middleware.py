"""Stands before every request: key, size, number at once, time; counts and logs what went out.

Plain ASGI, because it must see a body before it is read and an exception before it is lost.
May import: boolattn.service.errors, boolattn.service.metrics, boolattn.service.settings.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

from boolattn.service.errors import RefusedError, refusal_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from boolattn.service.metrics import Metrics
    from boolattn.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

#: What costs work: limited in number at once.
WORK = ("/search", "/explain", "/documents/")
#: What only those who know the key may see; the page itself, its health and the API are open.
KEYED = (*WORK, "/metrics", "/about")
#: Nothing is loaded from elsewhere, nothing is inline, nobody may frame the page.
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
    """One request on its way: what came in, what went out."""

    scope: Scope
    receive: Receive
    send: Send
    max_body: int
    start: float
    status: int = 0
    code: str = ""
    n_bytes: int = 0
    has_body: bool = False

    async def read(self) -> Message:
        """Pass the body on while it is small enough."""
        message = await self.receive()
        if message["type"] == "http.request":
            self.n_bytes += len(message.get("body", b""))
            self.has_body = not message.get("more_body", False)
            if self.n_bytes > self.max_body:
                raise _too_large(self.max_body)
        return message

    async def write(self, message: Message) -> None:
        """Pass the answer on, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["Cache-Control"] = "no-store"
        await self.send(message)

    async def refuse(self, problem: RefusedError) -> None:
        """Answer with a problem, unless an answer has begun already."""
        self.code = problem.code
        if not self.status:
            await problem.response()(self.scope, self.receive, self.write)

    @property
    def route(self) -> str:
        """The route's own path: bounded in number and free of what a caller typed."""
        route = self.scope.get("route")
        if route is not None:
            return str(route.path)
        # Refused before it was routed.
        return next((own for own in KEYED if self.scope["path"].startswith(own)), "other")


class Guard:
    """Middleware around the application."""

    def __init__(self, app: ASGIApp, *, settings: ServiceSettings, metrics: Metrics) -> None:
        """Keep the limits.

        Args:
            app: What stands behind.
            settings: The limits.
            metrics: Where requests are counted.
        """
        self._app, self._settings, self._metrics = app, settings, metrics
        self._n_active = 0
        self._key = _digest(settings.api_key) if settings.api_key else None
        metrics.gauge("boolattn_requests_active", "Requests under way.", lambda: self._n_active)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(
            scope, receive, send, self._settings.max_body, start=time.perf_counter()
        )
        try:
            await self._pass(exchange)
        except Exception as error:  # noqa: BLE001 - the last place before the server
            # The framework takes a body that breaks off for one that cannot be parsed.
            is_large = exchange.n_bytes > exchange.max_body
            refusal = _too_large(exchange.max_body) if is_large else refusal_of(error)
            await exchange.refuse(refusal)
        finally:
            self._note(exchange)

    async def _pass(self, exchange: _Exchange) -> None:
        # As the routes see it: under a root path they strip it, and so must the key's rule.
        path = exchange.scope["path"].removeprefix(exchange.scope.get("root_path", ""))
        headers = Headers(scope=exchange.scope)
        is_work = path.startswith(WORK)
        if path.startswith(KEYED):
            self._check_key(headers)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._settings.max_body:
            raise _too_large(self._settings.max_body)
        if is_work and self._n_active >= self._settings.concurrency:
            raise RefusedError(
                503,
                "busy",
                f"{self._n_active} requests are under way already; try again in a second",
                headers={"Retry-After": "1"},
            )
        self._n_active += is_work
        try:
            await self._in_time(exchange)
        finally:
            self._n_active -= is_work

    async def _in_time(self, exchange: _Exchange) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout):
                await self._app(exchange.scope, exchange.read, exchange.write)
        except TimeoutError as error:
            limit = f"{self._settings.timeout:g} s"
            if not exchange.has_body and exchange.scope["method"] == "POST":
                raise RefusedError(
                    408, "slow_body", f"the request's body did not arrive within {limit}"
                ) from error
            raise RefusedError(504, "timeout", f"no answer within {limit}; ask for less") from error

    def _check_key(self, headers: Headers) -> None:
        """Compare digests, so that neither the bytes nor the length of a key show in the time."""
        if self._key is None:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not hmac.compare_digest(_digest(shown), self._key):
            raise RefusedError(
                401,
                "no_key" if not shown else "wrong_key",
                "this service wants its API key, in the header Authorization: Bearer or X-API-Key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _note(self, exchange: _Exchange) -> None:
        seconds = time.perf_counter() - exchange.start
        # No status: the caller hung up before an answer began.
        status = str(exchange.status or 499)
        self._metrics.requests.add(route=exchange.route, status=status)
        self._metrics.seconds.observe(seconds, route=exchange.route)
        if exchange.code:
            self._metrics.refused.add(code=exchange.code)
        code = f" {exchange.code}" if exchange.code else ""
        method = exchange.scope["method"] if exchange.status != 405 else "?"
        logger.info("%s %s %s %.1f ms%s", method, exchange.route, status, 1000 * seconds, code)


def _too_large(limit: int) -> RefusedError:
    # What is left of the body would be read as the next request.
    return RefusedError(
        413,
        "body_too_large",
        f"a request's body may have {limit} bytes",
        headers={"Connection": "close"},
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
