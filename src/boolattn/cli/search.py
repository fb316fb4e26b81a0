"""The verb ``search``."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from boolattn import STARTED
from boolattn.cli.output import AsJson, note, quiet_libraries
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
#: Queries that the prompt remembers.
_HISTORY = 1000


def search(  # noqa: PLR0913 - options of a command line
    context: typer.Context,
    index: Annotated[str, Argument(metavar="ADDRESS", help=ADDRESS_HELP)],
    query: Annotated[
        list[str] | None,
        Argument(help='Plain language, or "moths AND Borneo NOT Java"; left out: a prompt.'),
    ] = None,
    positive: Annotated[
        list[str] | None, Option(help="Operand to add; like:ID is a document; repeatable.")
    ] = None,
    negative: Annotated[list[str] | None, Option(help="Operand to exclude; repeatable.")] = None,
    k: Annotated[int, Option("-k", "--top", "--limit", min=1, help="Number of results.")] = 10,
    offset: Annotated[int, Option(min=0, help="Results to pass over, for the next page.")] = 0,
    mode: Annotated[str, Option(help="Query syntax: auto, plain, explicit.")] = "auto",
    filters: Annotated[
        list[str] | None,
        Option("--filter", metavar="KEY=VALUE", help="Also !=, ~, >=, >, <=, <; repeatable."),
    ] = None,
    hybrid: Annotated[
        bool | None,
        Option("--hybrid/--no-hybrid", help="Search by words too; default: if the index has them."),
    ] = None,
    strict_not: Annotated[
        bool | None,
        Option(
            "--strict-not/--no-strict-not",
            help="Leave out documents with what NOT excludes, by words and kinds; default: yes.",
        ),
    ] = None,
    kinds: Annotated[
        bool,
        Option("--kinds/--no-kinds", help="Let things of a negated kind count, as cream does."),
    ] = True,
    allow: Annotated[
        list[str] | None, Option(help="Word that is not of a negated kind; repeatable.")
    ] = None,
    min_score: Annotated[
        float | None, Option(help="Least similarity of a result to what is asked for, as 0.3.")
    ] = None,
    plain: Annotated[
        bool, Option("--plain", help="Do not read and, or, not: compare the whole text.")
    ] = False,
    exhaustive: Annotated[bool, Option("--exhaustive", help="Score all documents.")] = False,
    explain: Annotated[
        bool, Option("--explain", help="Show the rank for each operand, and what is ranked lower.")
    ] = False,
    model: Annotated[str, Option(help="Default: the model named by the index.")] = "",
    verify: Annotated[bool, Option("--verify", help="Check hashes of the index files.")] = False,
    fields: Annotated[
        str, Option(help=f"To show: {', '.join(BASE_FIELDS)}, and metadata; with commas.")
    ] = "",
    form: Annotated[
        str, Option("--format", help=f"Of the results: {', '.join(FORMATS)}.")
    ] = FORMATS[0],
    as_json: AsJson = False,
) -> None:
    """Search an index: one query, or without one a prompt (or the lines of stdin)."""
    from boolattn.search.options import SearchOptions
    from boolattn.stores.filters import parse_filters

    quiet_libraries()
    conditions = parse_filters(filters or [])
    searcher = open_index(index, model, verify=verify)
    names = SearchOptions.__dataclass_fields__.keys() & context.params.keys()
    options = {name: value for name in names if (value := context.params[name]) is not None}
    options |= {"filters": conditions, "compose": not plain}
    chosen = choose_fields(fields, searcher.fields)
    show = printer("json" if as_json else form, chosen, k, explain=explain)

    def answer(text: str, number: int, start: float) -> None:
        try:
            result = searcher.search(text, k, **options)
        except QuerySyntaxError as error:
            note(error.pointer())
            raise
        show(result, number, start)

    if query or positive:
        answer(" ".join(query or []), 1, STARTED)
        return
    n_wrong = 0
    for number, text in enumerate(queries(), start=1):
        try:
            answer(text, number, time.perf_counter())
        except BoolattnError as error:
            n_wrong += 1
            note(f"boolattn: query {number}: {error}")
    if n_wrong and not sys.stdin.isatty():
        raise typer.Exit(2)


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
    address: str, model: str = "", *, device: str | None = None, verify: bool = False
) -> Searcher:
    """Open an index; without a model's name, with the model that the index names."""
    from boolattn.search import Searcher, load_model
    from boolattn.stores.address import open_store

    if device and not model:
        model = open_store(address).settings.model
    encoder = load_model(model, device=device) if model else None
    return Searcher.open(address, encoder, verify=verify)
