"""Two lists of results side by side; each result is marked by its judgement."""

from __future__ import annotations

from itertools import zip_longest
from string import ascii_uppercase
from typing import TYPE_CHECKING

from boolattn.query.syntax import unparse
from boolattn.query.tree import And, Atom, Not, Or
from boolattn.scoring.exact import SHORTLIST
from examples.demo.queries import ANSWERS, EXCLUDED, OTHER, PARTLY

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from boolattn.query.tree import QueryTree
    from boolattn.search import Hit, SearchResult
    from examples.demo.queries import DemoQuery

_STYLES = {ANSWERS: "green", EXCLUDED: "bold red", PARTLY: "yellow", OTHER: "dim"}
_OPERANDS = ("yellow", "blue", "magenta", "cyan", "green")
_SIGNS = {ANSWERS: "✓", EXCLUDED: "✗", PARTLY: "~", OTHER: "·"}
_ASCII_SIGNS = {ANSWERS: "+", EXCLUDED: "x", PARTLY: "~", OTHER: "."}
_MEANINGS = {
    ANSWERS: "answers the query",
    EXCLUDED: "excluded by the query",
    PARTLY: "matches a part of an AND",
    OTHER: "none of these",
}


def print_search(
    console: Console,
    query: DemoQuery,
    plain: SearchResult,
    boolean: SearchResult,
    names: list[str],
) -> None:
    """Print a query, how it was parsed, and both lists.

    Args:
        console: Prints.
        query: The query and its judged documents.
        plain: The plain encoder's result.
        boolean: The Boolean model's result.
        names: Names of the two.
    """
    console.print()
    console.rule(f"[bold]{query.kind}[/bold]", align="left", style="dim")
    console.print(_coloured_query(boolean))
    console.print(_judged_line(query), style="dim")
    for line in parse_lines(boolean):
        console.print(line, overflow="ellipsis", no_wrap=True, markup=False)
    console.print(_lists(console, query, plain, boolean, names))


def _coloured_query(result: SearchResult) -> Text:
    """Colour the words of each operand in the query; negated operands are struck out."""
    from rich.text import Text

    text = Text(result.query, style="bold")
    pairs = zip(result.spans, result.is_negated, strict=False)
    for number, (spans, is_negated) in enumerate(pairs):
        style = "red strike" if is_negated else _OPERANDS[number % len(_OPERANDS)]
        for start, end in spans:
            text.stylize(style, start, end)
    return text


def legend(console: Console) -> Text:
    """Explain the marks."""
    from rich.text import Text

    signs = _signs(console)
    return Text("   ").join(
        Text(f"{signs[name]} {meaning}", _STYLES[name]) for name, meaning in _MEANINGS.items()
    )


def parse_lines(result: SearchResult) -> list[str]:
    """Write how a query was parsed, with a letter for each operand.

    >>> from boolattn.search import SearchResult
    >>> tree = And((Atom("wall lizards"), Not(Atom("Turkey"))))
    >>> for line in parse_lines(SearchResult(query="", tree=tree, parsed=tree, operands=(
    ...         "wall lizards", "Turkey"), is_negated=(False, True), spans=(), confidence=1.0,
    ...         is_composed=True, hits=())):
    ...     print(line)
      parsed as  A NOT B
                 A  wall lizards
                 B  Turkey
    """
    first, indent = "  parsed as  ", " " * 13
    confidence = f"confidence {result.confidence:.0%}"
    if not result.is_composed:
        if result.parsed == result.tree:
            return [f"{first}one operand: searched with one vector"]
        low = f"{confidence} is too low: searched with one vector"
        return [f"{first}{result.parsed_text}", f"{indent}{low}"]
    shown = "" if result.confidence == 1 else f"   ({confidence})"
    pairs = zip(ascii_uppercase, result.operands, strict=False)
    operands = [f"{indent}{letter}  {name}" for letter, name in pairs]
    return [f"{first}{_lettered(result.tree)}{shown}", *operands]


def _lettered(tree: QueryTree) -> str:
    """Write a tree with letters for its operands."""
    letters = iter(ascii_uppercase)

    def walk(node: QueryTree) -> QueryTree:
        match node:
            case Atom():
                return Atom(next(letters, "…"))
            case Not(part):
                return Not(walk(part))
            case And(parts):
                return And(tuple(map(walk, parts)))
            case Or(parts):
                return Or(tuple(map(walk, parts)))

    return unparse(walk(tree))


def _judged_line(query: DemoQuery) -> str:
    source = "not in the benchmark, judged by its sets"
    if query.is_from_benchmark:
        source = f"benchmark query {query.query.id}"
    n, n_excluded = len(query.query.gold), len(query.query.excluded)
    answers = "1 document answers" if n == 1 else f"{n} documents answer"
    return f"  {source}; {answers}" + (f", {n_excluded} excluded" if n_excluded else "")


def _lists(
    console: Console,
    query: DemoQuery,
    plain: SearchResult,
    boolean: SearchResult,
    names: list[str],
) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", width=3)
    for name in names:
        table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    letters = ascii_uppercase[: len(boolean.operands)] if boolean.is_composed else ""
    for letter, is_negated in zip(letters, boolean.is_negated, strict=False):
        head = f"[red]not {letter}[/red]" if is_negated else letter
        table.add_column(head, justify="right", width=5 if is_negated else 4)
    signs = _signs(console)
    for rank, (left, right) in enumerate(zip_longest(plain.hits, boolean.hits), start=1):
        cells = [_cell(hit, query, signs) for hit in (left, right)]
        ranks = right.ranks if right is not None and boolean.is_composed else ()
        own = [str(one) if one <= SHORTLIST else f">{SHORTLIST}" for one in ranks]
        table.add_row(str(rank), *cells, *own)
    table.add_row("", *(_summary(one, query) for one in (plain, boolean)))
    return table


def _cell(hit: Hit | None, query: DemoQuery, signs: dict[str, str]) -> Text | str:
    from rich.text import Text

    if hit is None:
        return ""
    judgement = query.judge(hit.id)
    return Text(f"{signs[judgement]} {hit.title or hit.id}", _STYLES[judgement])


def _summary(result: SearchResult, query: DemoQuery) -> str:
    judgements = [query.judge(hit.id) for hit in result.hits]
    line = f"{judgements.count(ANSWERS)} of {len(judgements)} answer"
    if query.query.excluded:
        line += f", {judgements.count(EXCLUDED)} excluded"
    return f"[dim]{line}[/dim]"


def _signs(console: Console) -> dict[str, str]:
    return _SIGNS if console.encoding.lower().startswith("utf") else _ASCII_SIGNS
