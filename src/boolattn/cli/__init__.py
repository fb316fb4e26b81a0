"""The command line: few verbs, each importing what it needs when it is called.

Results go to stdout, everything else to stderr; an error a user can mend is one line and exit
status 2. May import: every room.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import boolattn
from boolattn.cli import data, demo, evaluate, explain, export, reproduce, search, serve, train
from boolattn.errors import BoolattnError

app = typer.Typer(
    name="boolattn",
    help="Dense retrieval that understands and, or and not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.command()(demo.demo)
app.command()(explain.explain)
app.command()(train.pretrain)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(evaluate.compare)
app.command()(reproduce.reproduce)
app.command()(export.export)
app.command()(search.index)
app.command()(search.search)
app.command()(serve.serve)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(boolattn.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Dense retrieval that understands and, or and not."""


def main() -> None:
    """Run one command."""
    try:
        app()
    except BoolattnError as error:
        typer.echo(f"boolattn: {error}", err=True)
        sys.exit(2)
