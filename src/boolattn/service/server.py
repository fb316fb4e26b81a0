"""Runs the application on a port until SIGTERM or SIGINT, and then ends active requests."""

from __future__ import annotations

import math
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port"
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class Server(uvicorn.Server):
    """``run(sockets=[listen(host, port)])`` starts it; exits with status 0 after a signal."""

    def __init__(
        self, app: FastAPI, *, timeout: float, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Configure the server; ``ready`` is called when it accepts requests."""
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,  # the middleware logs requests
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(timeout) + 1,
        )
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell that requests are accepted."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle both signals without raising them again at the end, as uvicorn would."""
        is_main = threading.current_thread() is threading.main_thread()
        caught = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        before = {number: signal.signal(number, self.handle_exit) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
