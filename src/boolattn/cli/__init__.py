"""The command line: its verbs, each imported when it is called, and the output of all of them.

Results go to stdout, everything else to stderr; a user's error is one line and exit status 2.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

import click

import boolattn
from boolattn.errors import BoolattnError
from boolattn.files import installed_by

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
_LOUD = ("accelerate", "faiss", "httpx", "sentence_transformers", "transformers", "uvicorn")
#: The verbs under the headings of the help, each with its module.
_VERBS = {
    "Search": {"index": "documents", "search": "search", "serve": "serve", "explain": "explain"},
    "Documents of an index": dict.fromkeys(("info", "add", "update", "delete"), "documents"),
    "Models": dict.fromkeys(("pretrain", "train", "average", "export", "checksums"), "train")
    | dict.fromkeys(("evaluate", "compare"), "evaluate"),
    "Data and paper": {"reproduce": "train", "data": "train"},
}
_MODULES = {verb: module for verbs in _VERBS.values() for verb, module in verbs.items()}


class _Verbs(click.Group):
    """The verbs; none is imported before it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in _MODULES:
            message = f"there is no command {cmd_name!r}; see boolattn --help."
            raise click.exceptions.NoSuchCommand(cmd_name, message, _MODULES)
        module = import_module(f"boolattn.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, verbs in _VERBS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(verb, self.get_command(ctx, verb).get_short_help_str(99)) for verb in verbs]
                )


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog='Begin: boolattn index DOCUMENTS --out moths; boolattn search moths "moths not ants". '
    'Completion in bash: eval "$(_BOOLATTN_COMPLETE=bash_source boolattn)".',
)
@click.version_option(boolattn.__version__, message="%(version)s", help="Show the version.")
def app() -> None:
    """Search that understands and, or and not."""


def main() -> None:
    """Run one command."""
    gc.set_threshold(50_000)  # what is imported makes many objects and no garbage
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb in ("search", "serve"):
        # Read by numpy: a query has too little work for threads, and would wait for them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if verb == "serve":
        # Modules that are being loaded would turn KeyboardInterrupt into other errors.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with installed_by("train", "this"):
            sys.exit(app(standalone_mode=False))
    except (click.Abort, KeyboardInterrupt):
        click.echo("boolattn: stopped", err=True)
        sys.exit(1)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        line = " ".join(error.format_message().split())
    except (BoolattnError, MemoryError) as error:
        line = str(error) or "there is not enough memory"
    except OSError as error:  # a file that cannot be read, for example
        # A full disk names no file.
        file = f": {str(error.filename)[:200]}" if error.filename else ""
        line = f"{error.strerror or error}{file}"
    click.echo(f"boolattn: {line}", err=True)
    sys.exit(2)


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


def show_progress(task: str, done: int, total: int) -> None:
    """Show on one line of stderr how much of a task is done."""
    click.echo(f"\r{task}: {done:,} of {total:,}", err=True, nl=done == total)


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
