"""Two lists of results side by side, each hit marked by what the benchmark knows of it.

May import: boolattn.cli.demo, boolattn.search, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

from itertools import zip_longest
from string import ascii_uppercase
from typing import TYPE_CHECKING

from boolattn.cli.demo.searches import ANSWERS, EXCLUDED, OTHER, PARTLY
from boolattn.logic.syntax import unparse
from boolattn.logic.tree import And, Atom, Not, Or

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from boolattn.cli.demo.searches import Asked
    from boolattn.logic.tree import QueryTree
    from boolattn.search import Hit, SearchResult

_STYLES = {ANSWERS: "green", EXCLUDED: "bold red", PARTLY: "yellow", OTHER: "dim"}
_SIGNS = {ANSWERS: "✓", EXCLUDED: "✗", PARTLY: "~", OTHER: "·"}
_PLAIN_SIGNS = {ANSWERS: "+", EXCLUDED: "x", PARTLY: "~", OTHER: "."}
_INDENT = "  "


def show_search(
    console: Console, asked: Asked, plain: SearchResult, boolean: SearchResult, names: list[str]
) -> None:
    """Print a query, how it was read, and both lists.

    Args:
        console: Where to.
        asked: The query and its answers.
        plain: The plain encoder's result.
        boolean: The Boolean model's result.
        names: What the two are called.
    """
    console.print()
    console.rule(f"[bold]{asked.kind}[/bold]", align="left", style="dim")
    console.print(_coloured(boolean))
    console.print(_known(asked), style="dim")
    for line in reading(boolean):
        console.print(line, overflow="ellipsis", no_wrap=True)
    console.print(_both(console, asked, plain, boolean, names))


def legend(console: Console) -> Text:
    """Say what the marks mean."""
    from rich.text import Text

    said = {
        ANSWERS: "answers the query",
        EXCLUDED: "excluded by it",
        PARTLY: "matches a part of an AND",
        OTHER: "none of these",
    }
    signs = _signs(console)
    return Text("   ").join(
        Text(f"{signs[name]} {what}", _STYLES[name]) for name, what in said.items()
    )


def reading(result: SearchResult) -> list[str]:
    """Say how a query was read, with a letter for each operand.

    >>> from boolattn.search import SearchResult
    >>> tree = And((Atom("wall lizards"), Not(Atom("Turkey"))))
    >>> for line in reading(SearchResult(query="", tree=tree, parsed=tree, operands=(
    ...         "wall lizards", "Turkey"), is_negated=(False, True), spans=(), confidence=1.0,
    ...         is_composed=True, hits=())):
    ...     print(line)
      read as  A NOT B
               A  wall lizards
               B  Turkey
    """
    if not result.is_composed:
        if result.parsed == result.tree:
            return [f"{_INDENT}read as  one operand: its one vector is searched"]
        doubt = f"not sure enough ({result.confidence:.0%}): its one vector is searched"
        return [f"{_INDENT}read as  {result.parsed_text}", f"{_INDENT}         {doubt}"]
    sure = "" if result.confidence == 1 else f"   ({result.confidence:.0%} sure)"
    lines = [f"{_INDENT}read as  {_lettered(result.tree)}{sure}"]
    pairs = zip(ascii_uppercase, result.operands, strict=False)
    return [*lines, *(f"{_INDENT}         {letter}  {name}" for letter, name in pairs)]


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


def _coloured(result: SearchResult) -> Text:
    from boolattn.cli.search import coloured_query

    text = coloured_query(result)
    text.stylize("bold")
    return text


def _known(asked: Asked) -> str:
    query = asked.query
    whose = f"the benchmark's {query.id}" if asked.is_own else "ours, judged by the same sets"
    n = len(query.gold)
    told = f"{_INDENT}{whose}; {n} documents answer" if n != 1 else f"{_INDENT}{whose}; 1 answers"
    return told + (f", {len(query.excluded)} excluded" if query.excluded else "")


def _both(
    console: Console, asked: Asked, plain: SearchResult, boolean: SearchResult, names: list[str]
) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True, padding=(0, 1, 0, 0))
    table.add_column("", justify="right", width=3)
    table.add_column(names[0], ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(names[1], ratio=1, no_wrap=True, overflow="ellipsis")
    letters = ascii_uppercase[: len(boolean.operands)] if boolean.is_composed else ""
    for letter, is_out in zip(letters, boolean.is_negated, strict=False):
        head = f"[red]not {letter}[/red]" if is_out else letter
        table.add_column(head, justify="right", width=5 if is_out else 4)
    signs = _signs(console)
    for rank, (left, right) in enumerate(zip_longest(plain.hits, boolean.hits), start=1):
        cells = [_cell(hit, asked, signs) for hit in (left, right)]
        table.add_row(str(rank), *cells, *_chances(right, boolean))
    table.add_row("", *(_sum(one, asked) for one in (plain, boolean)))
    return table


def _cell(hit: Hit | None, asked: Asked, signs: dict[str, str]) -> Text | str:
    from rich.text import Text

    if hit is None:
        return ""
    judged = asked.judge(hit.id)
    return Text(f"{signs[judged]} {hit.title or hit.id}", _STYLES[judged])


def _chances(hit: Hit | None, result: SearchResult) -> Iterator[str]:
    if hit is None or not result.is_composed:
        return
    for p in hit.probabilities:
        yield f"{p:.2f}".removeprefix("0")


def _sum(result: SearchResult, asked: Asked) -> str:
    judged = [asked.judge(hit.id) for hit in result.hits]
    told = f"{judged.count(ANSWERS)} of {len(judged)} answer"
    if asked.query.excluded:
        told += f", {judged.count(EXCLUDED)} excluded"
    return f"[dim]{told}[/dim]"


def _signs(console: Console) -> dict[str, str]:
    is_plain = not console.encoding.lower().startswith("utf")
    return _PLAIN_SIGNS if is_plain else _SIGNS
