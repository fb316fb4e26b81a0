"""Results of a search: for people as a table, for programs as CSV, JSON lines or a TREC run."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
from click import style

from boolattn.cli.output import note, plural, print_json
from boolattn.errors import ConfigError
from boolattn.stores.filters import known_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from boolattn.search import Hit, SearchResult

    #: Shows the result of a query, with its number and when it was asked.
    Printer = Callable[[SearchResult, int, float], None]
    #: Start and end of a part of a text, and its style.
    StyledSpan = tuple[int, int, dict[str, Any]]

FORMATS = ("table", "csv", "jsonl", "trec")
BASE_FIELDS = ("query", "rank", "score", "id", "title", "text", "passage", "verdict", "why")
_DEFAULT = BASE_FIELDS[:6]
#: Characters of a text in the table, and of those before the first word that matches.
SNIPPET, _BEFORE = 160, 40
_LEFT_OUT = 5  # documents left out that are named
_OPERATORS = {"AND": "green", "OR": "cyan", "NOT": "red"}
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
    if form not in FORMATS:
        raise ConfigError(f"no format {form!r}; there are {', '.join(FORMATS)}")
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
    note(_coloured_query(result))
    search_modes = ["by words and meaning"] * result.hybrid
    search_modes += ["what is excluded is left out"] * result.strict_not
    if not result.is_composed:
        search_modes.insert(0, f"searched as one text: {result.why_one_vector}")
    if result.is_composed or result.parsed != result.tree:
        search_modes.insert(0, f"confidence {result.confidence:.0%}")
        tree = re.sub(
            rf"(?<![^ (])({'|'.join(_OPERATORS)})(?= )",
            lambda match: style(match[0], fg=_OPERATORS[match[0]], bold=True),
            result.parsed_text,
        )
        note(f"parsed as {tree}   " + style(f"({'; '.join(search_modes)})", dim=True))
    else:
        note("; ".join(search_modes), dim=True)
    for warning in (*result.warnings, *result.notes):
        note(f"note: {warning}", fg="yellow")
    if result.hits:
        _print_table(result, result.hits, fields, explain=explain)
    if result.left_out:
        shown = [f"{d.title or d.id} ({d.why})" for d in result.left_out[:_LEFT_OUT]]
        shown += ["…"] * (len(result.left_out) > _LEFT_OUT)
        note(f"left out: {', '.join(shown)}", dim=True)
    if result.ranked_lower:
        click.secho("\nranked lower than without and, or, not:", dim=True)
        _print_table(result, result.ranked_lower, fields, explain=explain)
    seconds, last = time.perf_counter() - start, result.offset + len(result.hits)
    took = f"{seconds:.2f} s (search: {result.took['total']:.0f} ms)"
    line = f"{plural(len(result), 'result')} in {took}"
    more = f"; next page: --offset {last}" if len(result.hits) == k and last < result.total else ""
    note(f"{line}, of {plural(result.total, 'document')}{more}", dim=True)


def _print_table(
    result: SearchResult, hits: tuple[Hit, ...], fields: list[str], *, explain: bool
) -> None:
    from boolattn.evaluation.tables import aligned
    from boolattn.scoring.shortlist import SHORTLIST

    operands = []
    if explain and result.is_composed:
        pairs = zip(result.is_negated, result.operands, strict=True)
        operands = ["NOT " * is_negated + name[:14] for is_negated, name in pairs]
    columns = ["", "score", *operands, *(fields or ["document"])]
    rows: list[list[str]] = []

    def add_note(text: str, **styles: Any) -> None:
        rows.append([""] * (len(columns) - 1) + [style(text, **styles)])

    is_less = explain  # which says it of each result
    for rank, hit in enumerate(hits, start=1 + result.offset):
        if not hit.fits and not is_less:
            is_less = True
            add_note("(less than half as close as the best from here on)", dim=True)
        row = [str(rank), f"{hit.score:.3f}"]
        row += [str(n) if n <= SHORTLIST else f">{SHORTLIST}" for n in hit.ranks[: len(operands)]]
        values = (_value(result, hit, rank, name) for name in fields)
        row += ["" if v is None else _printable(str(v)[: 2 * SNIPPET]) for v in values]
        if not fields:
            row.append(
                f"{style(_printable(hit.title or hit.id), bold=True)}  {_snippet(result, hit)}"
            )
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
    mark = {"bold": True, "underline": True}
    spans = [(a - begin, b - begin, mark) for a, b in marked if a >= begin]
    text = _printable(hit.text[begin : min(end, begin + SNIPPET)])
    return "… " * bool(begin) + _styled(text, spans)


def _coloured_query(result: SearchResult) -> str:
    """Colour the words of each operand in the query; negated operands are struck out."""
    styled: list[StyledSpan] = []
    for number, (spans, is_negated) in enumerate(zip(result.spans, result.is_negated)):  # noqa: B905
        colour = {"fg": _OPERANDS[number % len(_OPERANDS)]}
        styled += [
            (*span, {"fg": "red", "strikethrough": True} if is_negated else colour)
            for span in spans
        ]
    return _styled(_printable(result.query), styled)


def _styled(text: str, spans: Iterable[StyledSpan]) -> str:
    """Give parts of a text their style; the last one counts."""
    styles: list[dict[str, Any]] = [{}] * len(text)
    for start, end, wanted in spans:
        styles[start:end] = [wanted] * (min(end, len(text)) - start)
    pairs = groupby(zip(styles, text, strict=True), key=lambda pair: pair[0])
    return "".join(style("".join(c for _, c in group), **wanted) for wanted, group in pairs)


def _printable(text: str) -> str:
    """Replace line ends, and what would move a terminal's cursor."""
    return "".join(c if c.isprintable() else " " for c in text)
