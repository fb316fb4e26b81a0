"""Output of the verbs: results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    Decorator = Callable[[Callable[..., None]], Callable[..., None]]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
#: Seconds between two lines of progress.
_PAUSE = 5.0
_LOUD = ("accelerate", "faiss", "httpx", "sentence_transformers", "transformers", "uvicorn")


def joined(*decorators: Decorator) -> Decorator:
    """Make one decorator of the options that several verbs have."""
    return lambda command: reduce(lambda f, decorate: decorate(f), decorators[::-1], command)


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print a value as JSON; numbers that JSON does not have become null."""
    text = json.dumps(value, ensure_ascii=False, default=sorted)
    finite = json.loads(text, parse_constant=lambda _: None)
    click.echo(json.dumps(finite, ensure_ascii=False, indent=indent))


def plural(n: int, name: str) -> str:
    """Return a number of things in words: "1 row", "2,000 rows"."""
    return f"{n:,} {name}{'s' * (n != 1)}"


def note(line: str, **style: Any) -> None:
    """Print a line to stderr."""
    click.secho(line, err=True, **style)


def progress_lines() -> Callable[[str, int, int], None]:
    """Return a function that prints now and then how much of a task is done."""
    last = time.monotonic()

    def show(task: str, done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            note(f"{task}: {done:,} of {total:,}")

    return show


def quiet_libraries(log_format: str = "") -> None:
    """Turn off progress bars of libraries; with a format, send our log to stderr."""
    if log_format:
        logging.basicConfig(level=logging.INFO, format=log_format, stream=sys.stderr)
        for name in _LOUD:
            logging.getLogger(name).setLevel(logging.WARNING)
    # Read when transformers is imported, which most verbs never do.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if (library := sys.modules.get("transformers.utils.logging")) is not None:
        library.disable_progress_bar()
