"""The command line. Each verb imports what it needs when it is called.

Results go to stdout, everything else to stderr; a user's error is one line and exit status 2.
"""

from __future__ import annotations

import gc
import os
import sys
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any

import typer

import boolattn
from boolattn.cli import data, documents, evaluate, explain, reproduce, search, serve, train
from boolattn.cli.output import Command, Group
from boolattn.errors import BoolattnError

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="boolattn",
    help="Search that understands and, or and not.",
    epilog='Begin: boolattn index DOCUMENTS --out moths; boolattn search moths "moths not ants"',
    no_args_is_help=True,
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
_VERBS: dict[str, list[Callable[..., None]]] = {
    "Search": [documents.index, search.search, serve.serve, explain.explain],
    "Documents of an index": [documents.info, documents.add, documents.delete],
    "Models": [
        train.pretrain,
        train.train,
        train.average,
        train.export,
        train.checksums,
        evaluate.evaluate,
        evaluate.compare,
    ],
    "Data and paper": [reproduce.reproduce],
}
for panel, verbs in _VERBS.items():
    for verb in verbs:
        app.command(rich_help_panel=panel, cls=Command)(verb)
app.command(
    "update",
    cls=Command,
    rich_help_panel="Documents of an index",
    help="Add documents to an index; each replaces the one with its id, if there is one.",
)(documents.add)
app.add_typer(data.app, name="data", rich_help_panel="Data and paper")


#: The base class of wrong options and arguments, in click or in typer's copy of it.
_ClickError: Any = typer.BadParameter.__mro__[2]
#: Packages of the extra ``train``.
_TRAIN = ("accelerate", "sentence_transformers", "torch", "transformers")


def _show_version(is_given: bool) -> None:
    if is_given:
        typer.echo(boolattn.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Search that understands and, or and not."""


def _app_of(verb: str) -> typer.Typer:
    """Return an application with one verb: to build all of them takes as long as a search."""
    if verb in ("search", "serve"):
        # Read by numpy: a query has too little work for threads, and would wait for them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    chosen = copy(app)
    named = [c for c in app.registered_commands if c.callback and c.callback.__name__ == verb]
    if named:
        chosen.registered_commands, chosen.registered_groups = named[:1], []
    return chosen


def main() -> None:
    """Run one command."""
    gc.set_threshold(50_000)  # what is imported makes many objects and no garbage
    chosen = _app_of(sys.argv[1] if len(sys.argv) > 1 else "")
    if sys.argv[1:2] == ["serve"]:
        from boolattn.service.supervisor import supervise

        supervise()
    try:
        # For people, typer draws a box around a wrong option; a program gets one line.
        sys.exit(chosen(standalone_mode=sys.stderr.isatty()))
    except _ClickError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            typer.echo(f"boolattn: {' '.join(error.format_message().split())}", err=True)
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(1)
    except BoolattnError as error:
        typer.echo(f"boolattn: {error}", err=True)
        sys.exit(2)
    except MemoryError:
        typer.echo("boolattn: there is not enough memory", err=True)
        sys.exit(2)
    except OSError as error:  # a file that cannot be read, for example
        # A full disk names no file.
        file = f": {str(error.filename)[:200]}" if error.filename else ""
        typer.echo(f"boolattn: {error.strerror or error}{file}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _TRAIN:
            raise
        line = f"boolattn: this needs {name}; pip install 'boolattn[train]'"
        typer.echo(line, err=True)
        sys.exit(2)
