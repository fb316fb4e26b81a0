"""Starts a crashed service again: the process that people start only watches the one that serves.

A fault in a memory map, which a file that is cut under the service causes, ends a process without
an exception. May import: nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

_PAUSE_S, _MAX_PAUSE_S, _LONG_S = 1.0, 30.0, 60.0
_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)


def supervise() -> None:
    """Return in a child process, and again in another when a signal killed it.

    This process passes SIGTERM and SIGINT on, and ends with the child's exit status.
    """
    pause, has_crashed, asked = _PAUSE_S, False, list[int]()
    while hasattr(os, "fork"):
        start, child = time.monotonic(), os.fork()
        if not child:
            _end_with_parent()
            return

        def pass_on(number: int, _frame: object, child: int = child) -> None:
            asked.append(number)
            with suppress(ProcessLookupError):
                os.kill(child, number)

        for number in _PASSED_ON:
            signal.signal(number, pass_on)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_DFL)  # ends while it waits
        status = 0 if -status in asked else status  # uvicorn ends with the signal
        if asked or status == 0 or (status > 0 and not has_crashed):
            sys.exit(status if status >= 0 else 128 - status)
        has_crashed = True
        pause = _PAUSE_S if time.monotonic() - start > _LONG_S else min(2 * pause, _MAX_PAUSE_S)
        cause = signal.Signals(-status).name if status < 0 else f"status {status}"
        line = f"boolattn: the service ended with {cause}; it starts again in {pause:g} s\n"
        sys.stderr.write(line)
        sys.stderr.flush()
        time.sleep(pause)


def _end_with_parent() -> None:
    """Let this process get SIGTERM when its parent ends, and Ctrl-C only from it."""
    os.setpgid(0, 0)
    # Modules that are being loaded would turn KeyboardInterrupt into other errors, or ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
