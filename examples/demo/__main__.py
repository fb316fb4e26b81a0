"""Searches, measures, and prints how to start the page: ``python -m examples.demo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from examples.demo.progress import Progress, console

if TYPE_CHECKING:
    from rich.console import Console

    from examples.demo.queries import DemoQuery
    from examples.demo.setup import Setup

#: A quarter of the small corpus: all documents that a query names.
N_DOCUMENTS = 1000
#: Columns where the output is no terminal, and at most.
_WIDTH, _MAX_WIDTH = 100, 120


@click.command(context_settings={"show_default": True})
@click.option("-k", type=click.IntRange(1), default=6, help="Results of each list.")
@click.option("--each", type=click.IntRange(1), default=1, help="Queries of each kind, at most 5.")
@click.option(
    "--documents",
    type=click.IntRange(0),
    default=N_DOCUMENTS,
    help="Index about so many documents; 0: all 4,000.",
)
@click.option("--model", default="shipped", help="The Boolean model: shipped, or a model folder.")
@click.option("--data", type=Path, help="A taxa folder that `boolattn data build taxa` wrote.")
def demo(k: int, each: int, documents: int, model: str, data: Path | None) -> None:
    """Search the small taxa benchmark with the shipped model and with the plain encoder.

    Corpus and indexes are built once, in the user's cache.
    """
    progress = Progress()
    from rich.markup import escape

    from boolattn.cli import quiet_libraries
    from examples.demo.queries import choose_queries
    from examples.demo.setup import PLAIN, SPLIT, set_up

    quiet_libraries()
    setup = set_up(model, data, documents, progress)
    screen = console()
    screen.width = min(screen.width if screen.is_terminal else _WIDTH, _MAX_WIDTH)
    names = [f"{PLAIN} unchanged", escape(setup.name)]
    queries = choose_queries(setup.judgements.queries, setup.benchmark.documents, each)
    _print_introduction(screen, setup, names)
    limit = f" --limit-documents {documents}" if documents else ""
    folder = f" --data {_short(data)}" if data else ""
    _search(screen, setup, queries, names, k)
    progress.log("evaluating: all documents are ranked for all queries, by three systems")
    _evaluate(screen, setup, names, f"{model} --on taxa --split {SPLIT}{limit}{folder}")
    _print_next_steps(setup)
    progress.log(f"done; corpus and indexes are in {_short(setup.folder)}")


def _print_introduction(screen: Console, setup: Setup, names: list[str]) -> None:
    from examples.demo.side_by_side import legend

    about = "queries are parsed, operands scored one by one, the scores composed"
    screen.print(
        f"\n{len(setup.benchmark.documents):,} Wikipedia introductions about animals and plants: "
        f"{setup.benchmark.name}\n"
        f"left    [bold]{names[0]}[/bold]: one vector per query\n"
        f"right   [bold]{names[1]}[/bold]: {about}\n"
        "The queries are the benchmark's, with groups and wordings that no training data has; "
        "those in explicit syntax and the names are extra. The queries shown are chosen by hand, "
        "the table has all of the benchmark's. A species lives where its introduction says so."
    )
    screen.print(legend(screen))
    screen.print("A, B, …: the document's rank for that operand alone", style="dim")


def _search(
    screen: Console, setup: Setup, queries: list[DemoQuery], names: list[str], k: int
) -> None:
    from examples.demo.side_by_side import print_search

    texts = [query.query.text for query in queries]
    plain = setup.plain.search_many(texts, k, compose=False)
    boolean = setup.boolean.search_many(texts, k)
    for query, left, right in zip(queries, plain, boolean, strict=True):
        print_search(screen, query, left, right, names)


def _evaluate(screen: Console, setup: Setup, names: list[str], arguments: str) -> None:
    from examples.demo.evaluation import evaluate, results_table
    from examples.demo.setup import SPLIT

    judgements = setup.judgements
    evaluation = evaluate(setup.benchmark, SPLIT, setup.plain, setup.boolean, names)
    screen.print()
    screen.rule("[bold]Evaluation[/bold]", align="left", style="dim")
    n_boolean = sum(bool(operators) for operators in judgements.operators)
    screen.print(
        f"All {len(judgements)} queries of the benchmark with unseen wordings. {n_boolean} have "
        f"operators; {evaluation.n_composed} were parsed with enough confidence and composed, the "
        "others are searched with one vector."
    )
    if "documents" in setup.benchmark.name:
        screen.print("Only a part of the documents is ranked; with all, every value is worse.")
    screen.print(results_table(evaluation))
    screen.print(
        "R-precision     share of the n correct documents among the first n; more is better\n"
        "leak            share of the excluded documents among the first (correct + excluded); "
        "less is\n                better, but a system that finds little also leaks little\n"
        "excluded first  share of pairs of an excluded and a correct document with the excluded "
        "one\n                first; less is better, .5 is chance",
        style="dim",
    )
    command = f"{_command()} evaluate {arguments}"
    screen.print(f"The same numbers: {command}", style="dim", markup=False)


def _print_next_steps(setup: Setup) -> None:
    command = _command()
    click.echo("\nStart the page (http://127.0.0.1:8000/):\n")
    click.echo(f"  {command} serve {_short(Path(setup.boolean.store.address))}")
    click.echo("\nOr search from the command line:\n")
    click.echo(f"  {command} search {_short(Path(setup.boolean.store.address))} \\")
    click.echo('    "snakes of Peru but not Ecuador" --explain')
    click.echo("\nYour own table (or JSON, or a folder of texts), from the file to the page:\n")
    click.echo(f"  {command} index FILE.csv --text-field COLUMN")
    click.echo(f"  {command} serve FILE.index")


def _command() -> str:
    """Return the program's name as the shell finds it."""
    own = Path(sys.executable).with_name("boolattn")
    found = shutil.which("boolattn")
    if not own.is_file() or (found and Path(found).samefile(own)):
        return "boolattn"
    return str(own)


def _short(path: Path) -> str:
    """Write a path for a shell, with ~ for the home folder."""
    home = Path.home()
    if path.is_relative_to(home) and " " not in str(path):
        return f"~/{path.relative_to(home)}"
    return shlex.quote(str(path))


if __name__ == "__main__":
    demo()
