"""The verb ``search``."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click import IntRange, option

from boolattn import STARTED
from boolattn.cli.output import json_option, note, quiet_libraries
from boolattn.cli.results import BASE_FIELDS, FORMATS, choose_fields, printer
from boolattn.errors import BoolattnError, QuerySyntaxError
from boolattn.files import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from boolattn.search import Searcher

#: What names an index.
ADDRESS_HELP = (
    "Of the index: a folder, postgresql://HOST/DB?table=NAME, qdrant://HOST:6333/NAME or "
    "milvus://HOST:19530/NAME."
)
index_argument = click.argument("index", metavar="ADDRESS", help=ADDRESS_HELP)
model_option = option("--model", help="Default: the model named by the index.")
#: Queries that the prompt remembers.
_HISTORY = 1000


@click.command()
@index_argument
@click.argument(
    "query", nargs=-1, help='Plain language, or "moths AND Borneo NOT Java"; left out: a prompt.'
)
@option("--positive", multiple=True, help="Operand to add; like:ID is a document; repeatable.")
@option("--negative", multiple=True, help="Operand to exclude; repeatable.")
@option("-k", "--top", "--limit", "k", type=IntRange(1), default=10, help="Number of results.")
@option("--offset", type=IntRange(0), default=0, help="Results to pass over, for the next page.")
@option("--mode", default="auto", help="Query syntax: auto, plain, explicit.")
@option("--filter", "filters", multiple=True, metavar="KEY=VALUE", help="Also !=, ~, >=, >, <=, <.")
@option("--hybrid/--no-hybrid", default=None, help="Search by words too; default: if there are.")
@option(
    "--strict-not/--no-strict-not",
    default=None,
    help="Leave out documents with what NOT excludes, by words and kinds; default: yes.",
)
@option("--kinds/--no-kinds", default=True, help="Let things of a negated kind count.")
@option("--allow", multiple=True, help="Word that is not of a negated kind; repeatable.")
@option("--min-score", type=float, help="Least similarity of a result to what is asked for.")
@option("--plain", is_flag=True, help="Do not read and, or, not: compare the whole text.")
@option("--exhaustive", is_flag=True, help="Score all documents.")
@option("--explain", is_flag=True, help="Show ranks for each operand, and what is ranked lower.")
@model_option
@option("--verify", is_flag=True, help="Check hashes of the index files.")
@option("--fields", help=f"To show: {', '.join(BASE_FIELDS)}, metadata; with commas.")
@option("--format", "form", default="table", help=f"Of the results: {', '.join(FORMATS)}.")
@json_option
def search(index: str, query: tuple[str, ...], k: int, **options: Any) -> None:
    """Search an index: one query, or without one a prompt (or the lines of stdin)."""
    from boolattn.search.options import SearchOptions
    from boolattn.stores.filters import parse_filters

    quiet_libraries()
    conditions = parse_filters(options["filters"])
    searcher = open_index(index, options["model"], verify=options["verify"])
    names = SearchOptions.__dataclass_fields__.keys() & options.keys()
    values = {name: options[name] for name in names if options[name] is not None}
    values |= {"filters": conditions, "compose": not options["plain"]}
    fields = choose_fields(options["fields"] or "", searcher.fields)
    form = "json" if options["as_json"] else options["form"]
    show = printer(form, fields, k, explain=options["explain"])

    def answer(text: str, number: int, start: float) -> None:
        try:
            result = searcher.search(text, k, **values)
        except QuerySyntaxError as error:
            note(error.pointer())
            raise
        show(result, number, start)

    if query or options["positive"]:
        answer(" ".join(query), 1, STARTED)
        return
    n_wrong = 0
    for number, text in enumerate(queries(), start=1):
        try:
            answer(text, number, time.perf_counter())
        except BoolattnError as error:
            n_wrong += 1
            note(f"boolattn: query {number}: {error}")
    if n_wrong and not sys.stdin.isatty():
        raise click.exceptions.Exit(2)


def queries() -> Iterator[str]:
    """Return the queries that are typed at a prompt, with a history, or the lines of stdin."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in sys.stdin if line.strip())
        return
    import readline

    path = cache_folder() / "queries"
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        while True:
            # Where results go to a file, the prompt does not.
            text = input("search> " if sys.stdout.isatty() else "").strip()
            if text.lower() in ("quit", "exit"):
                return
            if text:
                yield text
    except (EOFError, KeyboardInterrupt):
        note("")
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(_HISTORY)
            readline.write_history_file(path)


def open_index(
    address: str, model: str | None = None, *, device: str | None = None, verify: bool = False
) -> Searcher:
    """Open an index; without a model's name, with the model that the index names."""
    from boolattn.search import Searcher, load_model
    from boolattn.stores.address import open_store

    if device and not model:
        model = open_store(address).settings.model
    encoder = load_model(model, device=device) if model else None
    return Searcher.open(address, encoder, verify=verify)
