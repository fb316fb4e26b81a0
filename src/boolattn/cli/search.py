"""The verb ``search``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from boolattn.cli.output import AsJson, StrictNot, console, note, print_json, quiet_libraries
from boolattn.errors import QuerySyntaxError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from boolattn.search import Hit, Searcher, SearchResult

#: Characters of a text in the table.
SNIPPET = 160
_OPERATORS = {"AND": "bold green", "OR": "bold cyan", "NOT": "bold red"}
_OPERANDS = ("yellow", "blue", "magenta", "cyan", "green")
#: Verdicts for people.
_VERDICTS = {"put down": "ranked lower"}


def search(  # noqa: PLR0913 - options of a command line
    index: Annotated[Path, Argument(help="Folder of the index.")],
    query: Annotated[str, Argument(help='Plain language, or "moths AND Borneo NOT Java".')],
    k: Annotated[int, Option("-k", min=1, help="Number of results.")] = 10,
    mode: Annotated[str, Option(help="Query syntax: auto, plain, explicit.")] = "auto",
    filters: Annotated[
        list[str] | None,
        Option(
            "--filter", metavar="KEY=VALUE", help="On metadata; also !=, >=, >, <=, <; repeatable."
        ),
    ] = None,
    hybrid: Annotated[bool, Option("--hybrid", help="Add lexical search.")] = False,
    strict_not: StrictNot = False,
    plain: Annotated[bool, Option("--plain", help="Search with one vector only.")] = False,
    exhaustive: Annotated[bool, Option("--exhaustive", help="Score all documents.")] = False,
    explain: Annotated[
        bool, Option("--explain", help="Show the rank for each operand, and what is ranked lower.")
    ] = False,
    model: Annotated[str, Option(help="Default: the model named by the index.")] = "",
    verify: Annotated[bool, Option("--verify", help="Check hashes of the index files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search an index."""
    from boolattn.search.filters import parse_filters

    quiet_libraries()
    conditions = parse_filters(filters or [])
    searcher = open_index(index, model, verify=verify)
    try:
        result = searcher.search(
            query,
            k=k,
            mode=mode,
            filters=conditions,
            hybrid=hybrid,
            compose=not plain,
            strict_not=strict_not,
            exhaustive=exhaustive,
            explain=explain,
        )
    except QuerySyntaxError as error:
        note(error.pointer())
        raise
    if as_json:
        print_json(result.to_dict())
    else:
        _print_result(result, explain=explain)


def open_index(
    folder: Path, model: str = "", *, device: str | None = None, verify: bool = False
) -> Searcher:
    """Open an index; without a model's name, with the model that the index names."""
    from boolattn.search import Searcher, load_model

    if device and not model:
        from boolattn.search.storage.manifest import read_manifest

        model = read_manifest(folder).model
    found = load_model(model, device=device) if model else None
    return Searcher.open(folder, found, verify=verify)


def _print_result(result: SearchResult, *, explain: bool) -> None:
    """Print the parsed query to stderr and the results to stdout."""
    from rich.text import Text

    out, err = console(markup=True), console(stderr=True)
    err.print(coloured_query(result))
    if result.is_composed or result.parsed != result.tree:
        used = "" if result.is_composed else ", too low: searched with one vector"
        tree = Text(result.parsed_text)
        for operator, style in _OPERATORS.items():
            tree.highlight_regex(rf"(?<![^ (]){operator}(?= )", style)
        err.print("parsed as", tree, end="")
        err.print(f"   (confidence {result.confidence:.0%}{used})", style="dim")
    for warning in result.warnings:
        err.print(f"note: {warning}", style="yellow")
    out.print(_table(result, result.hits, explain=explain))
    if result.ranked_lower:
        out.print("\nranked lower than by one vector:", style="dim")
        out.print(_table(result, result.ranked_lower, explain=explain))
    err.print(f"{len(result.hits)} results in {result.took['total']:.0f} ms", style="dim")


def _table(result: SearchResult, hits: tuple[Hit, ...], *, explain: bool) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from boolattn.composition.fitted import SHORTLIST

    has_ranks = explain and result.is_composed
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("score", justify="right")
    for name, is_negated in zip(result.operands, result.is_negated, strict=True):
        if has_ranks:
            head = f"[red]NOT[/red] {escape(name)}" if is_negated else escape(name)
            table.add_column(head, justify="right", max_width=14)
    table.add_column("document")
    for rank, hit in enumerate(hits, start=1):
        cells = [str(rank), f"{hit.score:.3f}"]
        if has_ranks:
            cells += [str(own) if own <= SHORTLIST else f">{SHORTLIST}" for own in hit.ranks]
        text = " ".join(hit.text[: 2 * SNIPPET].split())[:SNIPPET]
        document = f"[bold]{escape(hit.title or hit.id)}[/bold]  {escape(text)}"
        if explain and hit.why:
            verdict = _VERDICTS.get(hit.verdict, hit.verdict)
            document += f"\n[red]{verdict} because it {escape(hit.why)}[/red]"
        table.add_row(*cells, document)
    return table


def coloured_query(result: SearchResult) -> Text:
    """Colour the words of each operand in the query; negated operands are struck out."""
    from rich.text import Text

    text = Text(result.query, style="" if result.is_composed else "bold")
    pairs = zip(result.spans, result.is_negated, strict=False)
    for number, (spans, is_negated) in enumerate(pairs):
        style = "red strike" if is_negated else _OPERANDS[number % len(_OPERANDS)]
        for start, end in spans:
            text.stylize(style, start, end)
    return text
