"""Runs the application on a port until SIGTERM or SIGINT, and then ends active requests."""

from __future__ import annotations

import logging
import math
import resource
import socket
import time
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fastapi import FastAPI

    from boolattn.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

_MAX_CONNECTIONS = 1000
#: Seconds between two lines of the log about too many connections.
_QUIET_S = 60.0
#: Longer than proxies keep a connection, which must not close while they use it again.
_KEEP_ALIVE_S = 75


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port"
        ) from error


def address_of(listener: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def max_connections() -> int:
    """Return how many connections are open at once: half of the files that may be."""
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(_MAX_CONNECTIONS, n_files // 2) if n_files > 0 else _MAX_CONNECTIONS


class Protocol(H11Protocol):
    """One connection: it waits a limited time for a request, and may be closed for another.

    A server has a class of its own with these attributes.
    """

    limit: int  # connections that are open at once
    seconds: float  # in which a request's head must arrive, and the rest of a refused body
    waiting: dict[Protocol, None]  # connections without a complete request, oldest first
    next_line = 0.0  # when the log tells again that there are too many
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; where too many do, close the connection that has waited longest."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) <= self.limit:
            return
        if time.monotonic() >= self.next_line:
            type(self).next_line = time.monotonic() + _QUIET_S
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
        self, app: FastAPI, settings: ServiceSettings, *, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Configure the server; ``ready`` is called when it accepts requests."""
        limit = max_connections()
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
            timeout_keep_alive=_KEEP_ALIVE_S,
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
