"""Starts the processes that serve, and starts one again that crashed; it only watches them.

A fault in a memory map, caused by a file that is cut, ends a process without an exception.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import socket
_PAUSE_S, _MAX_PAUSE_S, _LONG_S = 1.0, 30.0, 60.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def supervise(
    listeners: Iterable[socket.socket], address: str
) -> tuple[socket.socket, Callable[[], object]]:
    """Return in a worker for each of some sockets, and in another for one that a signal killed.

    It returns the socket, and what the worker calls when it accepts requests; then the next one
    starts. This process prints the address when all do, passes SIGTERM and SIGINT on, and ends with
    the exit status of the worker that ends first.
    """
    pause, has_crashed, asked = _PAUSE_S, False, list[int]()
    unserved = list(listeners)
    workers: dict[int, tuple[socket.socket, float]] = {}  # by process: its socket and its start

    def pass_on(number: int, _frame: object) -> None:
        asked.append(number)
        _send(number, workers)

    while True:
        is_ready = True
        while is_ready and not asked and unserved:
            reading, writing = os.pipe()
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the worker is known
            listener, worker = unserved.pop(), os.fork()
            if worker:
                workers[worker] = listener, time.monotonic()
            _handle(pass_on if worker else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            if not worker:
                os.setpgid(0, 0)  # Ctrl-C comes only from the parent, and SIGTERM when it ends
                with suppress(OSError, AttributeError):
                    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
                return listener, partial(os.write, writing, b"1")
            os.close(writing)
            is_ready = bool(os.read(reading, 1))  # nothing if the worker has ended
            os.close(reading)
            if is_ready and address and not unserved:
                click.echo(address)
                address = ""
        worker, result = os.wait()
        listener, start = workers.pop(worker)
        unserved.append(listener)
        status = os.waitstatus_to_exitcode(result)
        status = 0 if -status in asked else status  # uvicorn ends with the signal
        if asked or status == 0 or (status > 0 and not has_crashed):
            _send(signal.SIGTERM, workers)
            for _ in workers:
                os.wait()
            sys.exit(status if status >= 0 else 128 - status)
        has_crashed = True
        pause = _PAUSE_S if time.monotonic() - start > _LONG_S else min(2 * pause, _MAX_PAUSE_S)
        cause = signal.Signals(-status).name if status < 0 else f"status {status}"
        line = f"boolattn: the service ended with {cause}; it starts again in {pause:g} s"
        click.echo(line, err=True)
        _handle(signal.SIG_DFL)  # a signal ends this process, and so its workers
        time.sleep(pause)


def _handle(handler: signal.Handlers | Callable[[int, object], None]) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def _send(number: int, workers: Iterable[int]) -> None:
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, number)
