"""ASGI middleware: API key, limits, security headers, metrics and the log.

Plain ASGI, because it must see the body before it is read and every exception.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import time
from asyncio import FIRST_COMPLETED
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request

from boolattn.service.batching import CLIENT
from boolattn.service.schemas import RefusedError, as_refused

if TYPE_CHECKING:
    from threading import Event

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from boolattn.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

#: Paths that use the model or the index: limited in number at once.
CHANGED = "/documents"
LIMITED = ("/search", "/examples", "/facets", CHANGED)
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


class Metrics(Collector):
    """The metrics of one application: counts, of all workers, and gauges of this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        #: By name: what a gauge means, and the function that reads it.
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        count = partial(prometheus_client.Counter, registry=self._registry)
        self.requests = count("boolattn_requests_total", "Requests answered.", ["route", "status"])
        self.refused = count("boolattn_refused_total", "Requests refused, by error code.", ["code"])
        text = "Queries searched, by way of scoring."
        self.queries = count("boolattn_queries_total", text, ["way"])
        name, text = "boolattn_request_seconds", "Time to answer."
        self.seconds = prometheus_client.Histogram(name, text, ["route"], registry=self._registry)

    def collect(self) -> Iterator[Metric]:
        """Read the gauges."""
        for name, (text, read) in self.gauges.items():
            yield GaugeMetricFamily(name, text, read())

    def text(self) -> bytes:
        """Write all metrics in the Prometheus text format."""
        counts = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            MultiProcessCollector(counts := CollectorRegistry())  # type: ignore[no-untyped-call]
        return generate_latest(counts) + generate_latest(self)


@dataclass
class _Exchange:
    scope: Scope
    receive: Receive
    send: Send
    max_body: int
    is_change: bool  # of documents
    stopping: Event
    start: float = field(default_factory=time.perf_counter)
    status: int = 0
    code: str = ""
    body: bytes | None = None

    async def read_body(self, seconds: float) -> None:
        """Receive the whole body; refuse one that is too large or too slow."""
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for chunk in Request(self.scope, self.receive).stream():
                    body += chunk
                    if len(body) > self.max_body:
                        text = f"the body may have at most {self.max_body} bytes"
                        raise RefusedError(413, "body_too_large", text)
        except TimeoutError as error:
            text = f"the request's body did not arrive within {seconds:g} s"
            raise RefusedError(408, "slow_body", text, headers={"Connection": "close"}) from error
        self.body = bytes(body)

    async def read(self) -> Message:
        """Give the body to the application, which then waits for the caller to leave."""
        if self.body is None:
            return await self.receive()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def write(self, message: Message) -> None:
        """Send a part of the response, with the headers that every response has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
            if self.stopping.is_set():
                headers["Connection"] = "close"
        await self.send(message)

    @cached_property
    def client(self) -> str:
        """Address of the caller; of IPv6 the network, of which one caller has all addresses."""
        host = str((self.scope.get("client") or ("",))[0])
        try:
            address = IPv6Address(host)
        except ValueError:
            return host
        return str(address.ipv4_mapped or IPv6Network((address.packed, 64), strict=False))

    @property
    def route(self) -> str:
        """Path pattern of the route: few values, and nothing that a caller typed."""
        if route := self.scope.get("route"):
            return str(route.path)
        path = self.scope["path"]  # refused before it was routed
        return next((prefix for prefix in PROTECTED if path.startswith(prefix)), "other")


class LimitsMiddleware:
    """Checks every request before the application sees it."""

    def __init__(
        self, app: ASGIApp, *, settings: ServiceSettings, metrics: Metrics, stopping: Event
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._stopping = stopping
        self._active: Counter[str] = Counter()  # requests by client
        self._key = _digest(settings.api_key) if settings.api_key else None
        metrics.gauges["boolattn_requests_active"] = "Active requests.", self._active.total

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server leaves out the body
        is_change = scope["method"] != "GET" and CHANGED in scope["path"]
        max_body = self._settings.max_upload if is_change else self._settings.max_body
        exchange = _Exchange(scope, receive, send, max_body, is_change, self._stopping)
        try:
            await self._answer(exchange)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - the last place before the server
            refused = as_refused(error)
            exchange.code = refused.code
            if not exchange.status:  # no response has begun
                await refused.response()(scope, receive, exchange.write)
        finally:
            self._record(exchange)

    async def _answer(self, exchange: _Exchange) -> None:
        # Without the root path, as the routes see it.
        path = exchange.scope["path"].removeprefix(exchange.scope.get("root_path", ""))
        headers = Headers(scope=exchange.scope)
        self._check_host(headers.get("host"), exchange.scope.get("server"))
        if path.startswith(PROTECTED):
            self._check_key(headers)
        if exchange.is_change and self._key is None:
            message = "documents are changed only where an API key is set: serve --api-key-env"
            raise RefusedError(403, "no_writing", message)
        # Before it counts as active; a large body has more time.
        await exchange.read_body(self._settings.timeout * max(1, exchange.max_body >> 20))
        if not path.startswith(LIMITED):
            await self._answer_in_time(exchange)
            return
        n_active, n_client = self._active.total(), self._active[exchange.client]
        if n_active >= self._settings.concurrency or n_client >= self._settings.per_client:
            message = f"{n_active} requests are active already; try again in a second"
            raise RefusedError(503, "busy", message, headers={"Retry-After": "1"})
        self._active[exchange.client] += 1
        try:
            await self._answer_in_time(exchange)
        finally:
            self._active[exchange.client] -= 1
            self._active += Counter()  # forgets who has none

    async def _answer_in_time(self, exchange: _Exchange) -> None:
        """Answer until the time is over or the caller leaves."""
        CLIENT.set(exchange.client)
        answer = asyncio.ensure_future(self._app(exchange.scope, exchange.read, exchange.write))
        if exchange.is_change:
            # A change is not stopped half-way, so its caller waits; the key keeps others out.
            await answer
            return
        left = asyncio.ensure_future(_leaving(exchange.receive))
        try:
            async with asyncio.timeout(self._settings.timeout):
                await asyncio.wait((answer, left), return_when=FIRST_COMPLETED)
                if not answer.done() and not exchange.status:
                    raise ClientDisconnect
                await answer
        except TimeoutError as error:
            message = f"no answer within {self._settings.timeout:g} s; ask for fewer results"
            raise RefusedError(504, "timeout", message) from error
        finally:
            left.cancel()
            answer.cancel()

    def _check_host(self, sent: str | None, server: tuple[str, int] | None) -> None:
        """Refuse foreign names: a page of theirs would read the index in a visitor's browser."""
        allowed = self._settings.allowed_hosts
        if sent is None or "*" in allowed:
            return
        name, has_bracket, _ = sent.lower().lstrip("[").partition("]")
        name = name if has_bracket else name.rpartition(":")[0] or name
        if name not in allowed and name != (server or ("",))[0]:
            message = "the service has another name: start it with serve --allowed-host NAME"
            raise RefusedError(421, "wrong_host", message)

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


async def _leaving(receive: Receive) -> None:
    """Wait until the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
