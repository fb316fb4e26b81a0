"""Results of a search: for people as a table, for programs as CSV, JSON lines or a TREC run."""

from __future__ import annotations

import csv
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from boolattn.cli.output import console, plural, print_json
from boolattn.errors import ConfigError
from boolattn.stores.filters import known_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table
    from rich.text import Text

    from boolattn.search import Hit, SearchResult

    #: Shows the result of a query, with its number and when it was asked.
    Printer = Callable[[SearchResult, int, float], None]

FORMATS = ("table", "csv", "jsonl", "trec")
BASE_FIELDS = ("query", "rank", "score", "id", "title", "text", "passage", "verdict", "why")
_DEFAULT = BASE_FIELDS[:6]
#: Characters of a text in the table, and of those before the first word that matches.
SNIPPET, _BEFORE = 160, 40
_LEFT_OUT = 5  # documents left out that are named
_OPERATORS = {"AND": "bold green", "OR": "bold cyan", "NOT": "bold red"}
_OPERANDS = ("yellow", "blue", "magenta", "cyan", "green")


def choose_fields(text: str, metadata: Sequence[str]) -> list[str]:
    """Read the names of fields to show; refuse unknown ones."""
    known = dict.fromkeys((*BASE_FIELDS, *metadata))
    asked = (name.strip() for name in text.split(","))
    names = list(dict.fromkeys(known_name(name, known) for name in asked if name))
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"there is no field {unknown[0]!r}; there are {', '.join(known)}")
    return names


def printer(form: str, fields: list[str], k: int, *, explain: bool) -> Printer:
    """Return what prints up to ``k`` results in a format."""
    if form == "json":
        return lambda result, _number, _start: print_json(result.to_dict())
    if form == "table":
        return lambda result, _number, start: _print(result, fields, k, start, explain=explain)
    if form == "trec":
        return lambda result, number, _start: _print_run(result, number)
    if form not in FORMATS:
        raise ConfigError(f"no format {form!r}; there are {', '.join(FORMATS)}")
    names = fields or _DEFAULT
    writer = csv.writer(sys.stdout)
    if form == "csv":
        writer.writerow(names)

    def show(result: SearchResult, _number: int, _start: float) -> None:
        for rank, hit in enumerate(result.hits, start=1 + result.offset):
            values = [_value(result, hit, rank, name) for name in names]
            if form == "csv":
                writer.writerow([json.dumps(v) if isinstance(v, list) else v for v in values])
            else:
                print_json(dict(zip(names, values, strict=True)))

    return show


def _value(result: SearchResult, hit: Hit, rank: int, name: str) -> Any:  # noqa: ANN401 - metadata
    if name == "passage":
        return hit.text[slice(*(hit.passage or (None, None)))]
    if name in ("query", "rank"):
        return result.query if name == "query" else rank
    return getattr(hit, name) if name in BASE_FIELDS else hit.metadata.get(name)


def _print_run(result: SearchResult, number: int) -> None:
    from boolattn.evaluation.ranking import run_line

    for rank, hit in enumerate(result.hits, start=1 + result.offset):
        typer.echo(run_line(str(number), hit.id, rank, hit.score))


def _print(result: SearchResult, fields: list[str], k: int, start: float, *, explain: bool) -> None:
    """Print the parsed query to stderr and the results to stdout."""
    from rich.text import Text

    out, err = console(markup=True), console(stderr=True)
    err.print(coloured_query(result))
    search_modes = ["by words and meaning"] * result.hybrid
    search_modes += ["what is excluded is left out"] * result.strict_not
    if not result.is_composed:
        search_modes.insert(0, f"searched as one text: {result.why_one_vector}")
    if result.is_composed or result.parsed != result.tree:
        tree = Text(result.parsed_text)
        for operator, style in _OPERATORS.items():
            tree.highlight_regex(rf"(?<![^ (]){operator}(?= )", style)
        err.print("parsed as", tree, end="")
        search_modes.insert(0, f"confidence {result.confidence:.0%}")
        err.print(f"   ({'; '.join(search_modes)})", style="dim")
    else:
        err.print("; ".join(search_modes), style="dim")
    for warning in (*result.warnings, *result.notes):
        err.print(f"note: {warning}", style="yellow")
    if result.hits:
        out.print(_table(result, result.hits, fields, explain=explain))
    if result.left_out:
        shown = ", ".join(
            f"{document.title or document.id} ({document.why})"
            for document in result.left_out[:_LEFT_OUT]
        )
        more = ", …" if len(result.left_out) > _LEFT_OUT else ""
        err.print(Text(f"left out: {shown}{more}", style="dim"))
    if result.ranked_lower:
        out.print("\nranked lower than without and, or, not:", style="dim")
        out.print(_table(result, result.ranked_lower, fields, explain=explain))
    seconds, last = time.perf_counter() - start, result.offset + len(result.hits)
    took = f"{seconds:.2f} s (search: {result.took['total']:.0f} ms)"
    line = f"{plural(len(result), 'result')} in {took}"
    more = f"; next page: --offset {last}" if len(result.hits) == k and last < result.total else ""
    err.print(f"{line}, of {plural(result.total, 'document')}{more}", style="dim")


def _table(
    result: SearchResult, hits: tuple[Hit, ...], fields: list[str], *, explain: bool
) -> Table:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from boolattn.scoring.exact import SHORTLIST

    has_ranks = explain and result.is_composed
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("score", justify="right")
    for name, is_negated in zip(result.operands, result.is_negated, strict=True):
        if has_ranks:
            head = f"[red]NOT[/red] {escape(name)}" if is_negated else escape(name)
            table.add_column(head, justify="right", max_width=14)
    for name in fields or ["document"]:
        table.add_column(escape(name))
    is_less = explain  # which says it of each result
    for rank, hit in enumerate(hits, start=1 + result.offset):
        if not hit.fits and not is_less:
            is_less = True
            table.add_row(
                "", "", Text("(less than half as close as the best from here on)", style="dim")
            )
        cells: list[str | Text] = [str(rank), f"{hit.score:.3f}"]
        if has_ranks:
            cells += [str(n) if n <= SHORTLIST else f">{SHORTLIST}" for n in hit.ranks]
        if fields:
            values = (_value(result, hit, rank, name) for name in fields)
            cells += [Text("" if v is None else str(v)[: 2 * SNIPPET]) for v in values]
        else:
            document = Text(hit.title or hit.id, style="bold").append("  ", "not bold")
            cells.append(document.append_text(_snippet(result, hit)))
            if explain and hit.why:
                document.append(f"\n{hit.verdict} because it {hit.why}", "not bold red")
        table.add_row(*cells)
    return table


def _snippet(result: SearchResult, hit: Hit) -> Text:
    """Return the part of the best passage around the first words that match, which are marked."""
    from rich.text import Text

    begin, end = hit.passage or (0, len(hit.text))
    marked = result.highlights(hit)
    if marked and marked[0][1] > begin + SNIPPET:
        begin = hit.text.find(" ", marked[0][0] - _BEFORE, marked[0][0]) + 1 or marked[0][0]
    shown = "".join(" " if c.isspace() else c for c in hit.text[begin : min(end, begin + SNIPPET)])
    text = Text(shown, style="not bold")
    for first, last in marked:
        if first >= begin:
            text.stylize("bold underline", first - begin, last - begin)
    return Text("… ", style="not bold").append_text(text) if begin else text


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
