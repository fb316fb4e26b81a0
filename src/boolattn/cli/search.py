"""The verb ``search``: results for people as a table, for programs as CSV, JSON lines, TREC run."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from click import IntRange, option, style

from boolattn import STARTED
from boolattn.cli import json_option, note, plural, print_json, quiet_libraries
from boolattn.errors import BoolattnError, ConfigError, QuerySyntaxError
from boolattn.stores.filters import known_name

if TYPE_CHECKING:
    from boolattn.search import Hit, Searcher, SearchResult

    #: Shows the result of a query, with its number and when it was asked.
    Printer = Callable[[SearchResult, int, float], None]

#: What names an index.
ADDRESS_HELP = (
    "Of the index: a folder, postgresql://HOST/DB?table=NAME, qdrant://HOST:6333/NAME or "
    "milvus://HOST:19530/NAME."
)
index_argument = click.argument("index", metavar="ADDRESS", help=ADDRESS_HELP)
model_option = option("--model", help="Default: the model named by the index.")
FORMATS = ("table", "csv", "jsonl", "trec")
BASE_FIELDS = ("query", "rank", "score", "id", "title", "text", "passage", "verdict", "why")
_DEFAULT = BASE_FIELDS[:6]
#: Characters of a text in the table, and of those before the first word that matches.
SNIPPET, _BEFORE = 160, 40
_LEFT_OUT = 5  # documents left out that are named


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
@option("--strict-not/--no-strict-not", default=None, help="Leave out what NOT excludes; default.")
@option("--kinds/--no-kinds", default=True, help="Let things of a negated kind count.")
@option("--allow", multiple=True, help="Word that is not of a negated kind; repeatable.")
@option("--min-score", type=float, help="Least similarity of a result to what is asked for.")
@option("--plain", is_flag=True, help="Do not read and, or, not: compare the whole text.")
@option("--exhaustive", is_flag=True, help="Score all documents.")
@option("--explain", is_flag=True, help="Show the rank of each result for each operand.")
@model_option
@option("--verify", is_flag=True, help="Check hashes of the index files.")
@option("--fields", help=f"To show: {', '.join(BASE_FIELDS)}, names of metadata; with commas.")
@option("--format", "form", type=click.Choice(FORMATS), default="table", help="Of the results.")
@json_option
def search(index: str, query: tuple[str, ...], k: int, **options: Any) -> None:
    """Search an index: one query, or without one a prompt (or the lines of stdin)."""
    from boolattn.search.inputs import SearchOptions
    from boolattn.stores.filters import parse_filters

    quiet_libraries()
    searcher = open_index(index, options["model"], verify=options["verify"])
    names = SearchOptions.__dataclass_fields__.keys() & options.keys()
    values = {name: options[name] for name in names if options[name] is not None}
    values |= {"filters": parse_filters(options["filters"]), "compose": not options["plain"]}
    fields = _choose_fields(options["fields"] or "", searcher.fields)
    form = "json" if options["as_json"] else options["form"]
    show = _printer(form, fields, k, explain=options["explain"])

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
    """Return the queries that are typed at a prompt, or the lines of stdin."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in sys.stdin if line.strip())
        return
    import readline  # noqa: F401 - arrows edit a line and bring back the last ones

    # Where results go to a file, the prompt does not.
    prompt = "search> " if sys.stdout.isatty() else ""
    try:
        while (text := input(prompt).strip()).lower() not in ("quit", "exit"):
            if text:
                yield text
    except (EOFError, KeyboardInterrupt):
        note("")


def open_index(
    address: str, model: str | None = None, *, device: str | None = None, verify: bool = False
) -> Searcher:
    """Open an index; without a model's name, with the model that the index names."""
    from boolattn.search import Searcher, load_model
    from boolattn.stores.address import open_store

    if device and not model:
        model = open_store(address).settings.model
    encoder = load_model(model, device=device) if model and device else model
    return Searcher.open(address, encoder or None, verify=verify)


def _choose_fields(text: str, metadata: Sequence[str]) -> list[str]:
    """Read the names of fields to show; refuse unknown ones."""
    known = dict.fromkeys((*BASE_FIELDS, *metadata))
    asked = (name.strip() for name in text.split(","))
    names = list(dict.fromkeys(known_name(name, known) for name in asked if name))
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"there is no field {unknown[0]!r}; there are {', '.join(known)}")
    return names


def _printer(form: str, fields: list[str], k: int, *, explain: bool) -> Printer:
    if form == "json":
        return lambda result, _number, _start: print_json(result.to_dict())
    if form == "table":
        return lambda result, _number, start: _print(result, fields, k, start, explain=explain)
    names = fields or _DEFAULT
    writer = csv.writer(sys.stdout)
    if form == "csv":
        writer.writerow(names)

    def show(result: SearchResult, number: int, _start: float) -> None:
        from boolattn.evaluation.ranking import run_line

        for rank, hit in enumerate(result.hits, start=1 + result.offset):
            values = [_value(result, hit, rank, name) for name in names]
            if form == "trec":
                click.echo(run_line(str(number), hit.id, rank, hit.score))
            elif form == "csv":
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


def _print(result: SearchResult, fields: list[str], k: int, start: float, *, explain: bool) -> None:
    """Print the parsed query to stderr and the results to stdout."""
    note(_printable(result.query))
    search_modes = ["by words and meaning"] * result.hybrid
    search_modes += ["what is excluded is left out"] * result.strict_not
    if not result.is_composed:
        search_modes.insert(0, f"searched as one text: {result.why_one_vector}")
    if result.is_composed or result.parsed != result.tree:
        search_modes.insert(0, f"confidence {result.confidence:.0%}")
        note(f"parsed as {result.parsed_text}   " + style(f"({'; '.join(search_modes)})", dim=True))
    else:
        note("; ".join(search_modes), dim=True)
    for warning in (*result.warnings, *result.notes):
        note(f"note: {warning}", fg="yellow")
    if result.hits:
        _print_table(result, fields, explain=explain)
    if result.left_out:
        shown = [f"{d.title or d.id} ({d.why})" for d in result.left_out[:_LEFT_OUT]]
        shown += ["…"] * (len(result.left_out) > _LEFT_OUT)
        note(f"left out: {', '.join(shown)}", dim=True)
    seconds, last = time.perf_counter() - start, result.offset + len(result.hits)
    took = f"{seconds:.2f} s (search: {result.took['total']:.0f} ms)"
    line = f"{plural(len(result), 'result')} in {took}"
    more = f"; next page: --offset {last}" if len(result.hits) == k and last < result.total else ""
    note(f"{line}, of {plural(result.total, 'document')}{more}", dim=True)


def _print_table(result: SearchResult, fields: list[str], *, explain: bool) -> None:
    from boolattn.evaluation.tables import aligned
    from boolattn.scoring.exact import SHORTLIST

    operands = []
    if explain and result.is_composed:
        pairs = zip(result.is_negated, result.operands, strict=True)
        operands = ["NOT " * is_negated + name[:14] for is_negated, name in pairs]
    columns = ["", "score", *operands, *(fields or ["document"])]
    rows: list[list[str]] = []

    def add_note(text: str, **styles: Any) -> None:
        rows.append([""] * (len(columns) - 1) + [style(text, **styles)])

    is_less = explain  # which says it of each result
    for rank, hit in enumerate(result.hits, start=1 + result.offset):
        if not hit.fits and not is_less:
            is_less = True
            add_note("(less than half as close as the best from here on)", dim=True)
        row = [str(rank), f"{hit.score:.3f}"]
        row += [str(n) if n <= SHORTLIST else f">{SHORTLIST}" for n in hit.ranks[: len(operands)]]
        values = (_value(result, hit, rank, name) for name in fields)
        row += ["" if v is None else _printable(str(v)[: 2 * SNIPPET]) for v in values]
        if not fields:
            title = style(_printable(hit.title or hit.id), bold=True)
            row.append(f"{title}  {_snippet(result, hit)}")
        rows.append(row)
        if explain and hit.why and not fields:
            add_note(f"{hit.verdict} because it {_printable(hit.why)}", fg="red")
    lines = aligned(columns, rows).splitlines()
    indent = " " * lines[0].rindex(columns[-1])
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for line in lines:
        click.echo(click.wrap_text(line, max(width, len(indent) + 20), "", indent))


def _snippet(result: SearchResult, hit: Hit) -> str:
    """Return the part of the best passage around the first words that match, which are marked."""
    begin, end = hit.passage or (0, len(hit.text))
    marked = result.highlights(hit)
    if marked and marked[0][1] > begin + SNIPPET:
        begin = hit.text.find(" ", marked[0][0] - _BEFORE, marked[0][0]) + 1 or marked[0][0]
    snippet, end = "… " * bool(begin), min(end, begin + SNIPPET)
    for first, last in marked:
        if begin <= first < end:
            word = style(_printable(hit.text[first : min(last, end)]), bold=True, underline=True)
            snippet += _printable(hit.text[begin:first]) + word
            begin = last
    return snippet + _printable(hit.text[begin:end])


def _printable(text: str) -> str:
    """Replace line ends, and what would move a terminal's cursor."""
    return "".join(c if c.isprintable() else " " for c in text)
