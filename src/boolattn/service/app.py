"""The web application, and the server that runs it on a port until SIGTERM or SIGINT.

No postponed annotations here: FastAPI reads them when a route is made.
"""

import asyncio
import json
import logging
import math
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

import boolattn
from boolattn.errors import ConfigError
from boolattn.search import Searcher
from boolattn.service import schemas
from boolattn.service.handlers import Handlers
from boolattn.service.middleware import LimitsMiddleware
from boolattn.service.schemas import raise_again
from boolattn.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

_MAX_CONNECTIONS = 1000


def create_app(searcher: Searcher, settings: ServiceSettings | None = None) -> FastAPI:
    """Build the application over an index."""
    settings = settings or ServiceSettings()
    handlers = Handlers(searcher, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        handlers.batcher.start()
        yield
        await handlers.close()

    app = FastAPI(
        title="boolattn",
        version=boolattn.__version__,
        description=(
            "Dense retrieval that understands and, or and not. A query has at most "
            f"{settings.max_length} characters, a search returns at most {settings.max_k} "
            f"results, a body has at most {settings.max_body} bytes, a request takes at most "
            f'{settings.timeout:g} s. Every error has the form {{"error": {{"code", "message"}}}}.'
        ),
        lifespan=lifespan,
        docs_url=None,  # both load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={RequestValidationError: raise_again, HTTPException: raise_again},
        responses={
            kind: {"model": schemas.ErrorReply, "description": text}
            for kind, text in schemas.ERRORS.items()
        },
    )
    app.state.stop = handlers.stopping.set
    document = "/documents/{document_id:path}"
    app.post("/search", responses=_example("search"))(handlers.search)
    app.get("/search", responses=_example("search"))(handlers.search_by_address)
    app.get(document, responses=_example("document"))(handlers.document)
    app.delete(document, responses=_example("change"))(handlers.delete)
    app.post("/documents", responses=_example("change"))(handlers.add)
    for name in ("health", "about", "examples", "facets"):
        app.get(f"/{name}", responses=_example(name))(getattr(handlers, name))

    @app.get(
        "/metrics", response_class=PlainTextResponse, responses=_example("metrics", "text/plain")
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        text = await asyncio.to_thread(handlers.metrics.text)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    page = StaticFiles(packages=[("boolattn.service", "page")], html=True)
    app.mount("/page", page)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    app.add_middleware(
        LimitsMiddleware, settings=settings, metrics=handlers.metrics, stopping=handlers.stopping
    )
    return app


def _example(name: str, kind: str = "application/json") -> dict[int | str, dict[str, Any]]:
    """Return the example of a reply for the OpenAPI description."""
    examples = json.loads(files("boolattn.service").joinpath("examples.json").read_text("utf-8"))
    return {200: {"content": {kind: {"example": examples[name]}}}}


def listen(host: str, port: int, n_workers: int = 1) -> list[socket.socket]:
    """Open a listening socket for each worker; Linux divides the connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    open_socket = partial(socket.create_server, family=family)
    try:
        listener = open_socket((host, port))  # unlike those of several workers, alone at its port
        if n_workers == 1:
            return [listener]
        with listener:
            port = listener.getsockname()[1]
        return [open_socket((host, port), reuse_port=True) for _ in range(n_workers)]
    except (OSError, UnicodeError) as error:
        reason = f"{getattr(error, 'strerror', None) or error}; choose another --port"
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}") from error


def address_of(listener: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class Protocol(H11Protocol):
    """One connection: it waits a limited time for a request, and may be closed for another.

    A server has a class of its own with these attributes.
    """

    limit: int  # connections that are open at once
    seconds: float  # in which a request's head must arrive, and the rest of a refused body
    waiting: dict["Protocol", None]  # connections without a complete request, oldest first
    next_line = 0.0  # when the log tells again that there are too many
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; where too many do, close the connection that has waited longest."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) <= self.limit:
            return
        if time.monotonic() >= self.next_line:
            type(self).next_line = time.monotonic() + 60
            logger.warning(
                "%d connections are open: those that send nothing are closed", self.limit
            )
        oldest = next(iter(self.waiting))
        del self.waiting[oldest]
        oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.waiting.pop(self, None)
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what arrived."""
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; a request whose body it is ends without an answer."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        super().send_400_response(msg)

    def _watch(self) -> None:
        """Limit the time without a request; a body's time is limited by the application."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and not self.cycle.more_body:
            self.waiting.pop(self, None)
        else:
            self.waiting.setdefault(self)
        # Idle after an answer: that has a longer limit, so that proxies may keep connections.
        is_idle = self.cycle is not None and self.conn.their_state is h11.IDLE
        if is_answering or (is_idle and not self.conn.trailing_data[0]):
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """``run(sockets=[listen(host, port)])`` starts it; a signal ends it."""

    def __init__(
        self, app: FastAPI, settings: ServiceSettings, *, ready: Callable[[], object] = lambda: None
    ) -> None:
        """Configure the server; ``ready`` is called when it accepts requests."""
        # Half of the files that may be open; below 0 there is no limit of these.
        n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = min(_MAX_CONNECTIONS, n_files // 2) if n_files > 0 else _MAX_CONNECTIONS
        attributes = {"limit": limit, "seconds": settings.timeout, "waiting": {}}
        config = uvicorn.Config(
            app,
            http=type("ServerProtocol", (Protocol,), attributes),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,  # the middleware logs requests
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            # Longer than proxies keep a connection, which must not close while they use it again.
            timeout_keep_alive=75,
            # Accepted at once, before any can be closed again.
            backlog=max(1, limit // 16),
            timeout_graceful_shutdown=math.ceil(settings.timeout) + 1,
        )
        super().__init__(config)
        self._stop, self._ready = app.state.stop, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell that requests are accepted."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_MAX_CONNECTIONS)  # the queue of the system may be longer
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 - a frame
        """Stop: answers end their connection from now on."""
        self._stop()
        super().handle_exit(sig, frame)
