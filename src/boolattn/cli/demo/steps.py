"""How far the demo is, on stderr: a bar where somebody looks, lines where nobody does.

May import: nothing of this package.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds between two lines of one work.
_PAUSE = 10.0


class Steps:
    """Tells what is being done, and the seconds since the beginning."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun

    def say(self, line: str) -> None:
        """Write a line."""
        typer.echo(f"{self.seconds:5.0f} s  {line}", err=True)

    @contextmanager
    def count(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show how many of a number are done; what is given back is called with each part."""
        begun = time.monotonic()
        if sys.stderr.isatty():
            with self._bar(what, total) as advance:
                yield advance
        else:
            yield self._lines(what, total)
        seconds = max(time.monotonic() - begun, 1e-9)
        self.say(f"{what}: {total:,} in {seconds:.0f} s, {total / seconds:.0f} a second")

    @contextmanager
    def _bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = ("        {task.description}", BarColumn(24), MofNCompleteColumn())
        with Progress(
            *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
        ) as progress:
            task = progress.add_task(what, total=total)
            yield lambda n: progress.advance(task, n)

    def _lines(self, what: str, total: int) -> Callable[[int], None]:
        done, last = 0, time.monotonic()

        def advance(n: int) -> None:
            nonlocal done, last
            done += n
            if done < total and time.monotonic() - last >= _PAUSE:
                last = time.monotonic()
                self.say(f"{what}: {done:,} of {total:,}")

        return advance
