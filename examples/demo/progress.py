"""Progress of the demo on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from boolattn.cli import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


class Progress:
    """Prints steps with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def log(self, line: str) -> None:
        """Print a line."""
        note(f"{time.monotonic() - self._start:5.0f} s  {line}")

    @contextmanager
    def count(self, task: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show how much of a task is done; the function given is called with each part's size."""
        start = time.monotonic()
        with (_bar if sys.stderr.isatty() else _lines)(task, total) as advance:
            yield advance
        seconds = max(time.monotonic() - start, 1e-9)
        self.log(f"{task}: {total:,} in {seconds:.0f} s, {total / seconds:.0f} per second")


def console(*, stderr: bool = False) -> Console:
    """Return a console that shows texts without marks of its own."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False)


@contextmanager
def _bar(task: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("        {task.description}", BarColumn(24), MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console(stderr=True), transient=True
    ) as bar:
        number = bar.add_task(task, total=total)
        yield lambda n: bar.advance(number, n)


@contextmanager
def _lines(task: str, total: int) -> Iterator[Callable[[int], None]]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        tenths = 10 * done // total
        done += n
        if tenths < 10 * done // total < 10:
            note(f"{task}: {done:,} of {total:,}")

    yield advance
