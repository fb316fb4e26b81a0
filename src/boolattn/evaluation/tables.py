"""Results as tables for a terminal, with rich, and in Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from boolattn.evaluation import domains
from boolattn.evaluation.metrics import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

    from boolattn.evaluation.results import Comparison, Results

#: Width where there is no terminal.
WIDTH = 130
# Short headings, and metrics that a narrow terminal leaves out, in this order.
_HEADINGS = {
    "mrecall": "MRec.",
    "violations": "viol.",
    "r_precision": "R-\nprec.",
    "partial_before_full": "part.\nbefore\nfull",
    "excluded_before_full": "excl.\nbefore\nfull",
}
_OPTIONAL = ("recall@50", "recall@1000", "mrecall@100", "violations@10", "mrr@10", "ndcg@10")
# Significance level at which a difference is marked.
_LEVEL = 0.05


def split_table(results: Results, width: int = WIDTH) -> Table:
    """Return the means of one split: all queries, then each grouping.

    Empty columns are left out, and those that do not fit the width.
    """
    from rich.console import Console

    gate = f", gate: {results.gate}" if results.gate else ""
    title = (
        f"{results.label}{gate} on {results.dataset}, {results.split}: "
        f"{len(results.queries):,} queries, {results.n_documents:,} documents"
    )
    sections = [{"all": results.overall}]
    for grouping in ("template", "operator", "domain", "wording"):
        groups = results.by(grouping)
        # A single group repeats the row of all.
        if len(groups) > 1:
            prefix = "" if grouping == "template" else f"{grouping}: "
            sections.append({prefix + name: group for name, group in groups.items()})
    shown = [name for name, value in results.overall.means.items() if not math.isnan(value)]
    optional = [name for name in _OPTIONAL if name in shown]
    while True:
        table = _table(title, ["", "n", *map(_heading, shown)])
        for section in sections:
            for name, group in section.items():
                values = (short(group.means[metric]) for metric in shown)
                table.add_row(name, f"{group.n:,}", *values)
            table.add_section()
        if not optional or Console(width=10 * WIDTH).measure(table).maximum <= width:
            return table
        shown.remove(optional.pop(0))


def domains_table(systems: Sequence[Results]) -> Table:
    """Return R-precision and leak by domain and kind of query, for each system."""
    first = systems[0]
    title = f"{first.system} on {first.dataset}, {first.split}: R-precision by domain, and leak"
    table = _table(title, ["", *(heading for heading, _, _ in domains.columns_of(first.split))])
    for results in systems:
        way = str(results.details.get("way", ""))
        for name, values in domains.rows_of(results).items():
            table.add_row(f"{way} {name}".strip(), *map(short, values))
        table.add_section()
    return table


def comparison_table(
    systems: Sequence[Results], compared: Mapping[str, Mapping[str, Comparison]]
) -> Table:
    """Return the metrics of two systems, by group where groups are named."""
    first, second = systems
    is_grouped = "" not in compared
    title = (
        f"{first.dataset}, {first.split}: {first.system} (first), {second.system} (second); "
        f"* better, ! worse, at p < {_LEVEL}"
    )
    columns = ["metric", "queries", "first", "second", "difference", "95% interval", "p", ""]
    table = _table(title, [*(["group"] if is_grouped else []), *columns])
    for group, rows in compared.items():
        for name, test in rows.items():
            is_better = (test.difference < 0) == parse(name).lower_is_better
            mark = "" if test.p_value >= _LEVEL else "*" if is_better else "!"
            means = (short(test.first), short(test.second), f"{test.difference:+.4f}")
            cells = (f"{test.low:+.4f} to {test.high:+.4f}", f"{test.p_value:.4f}", mark)
            head = [group] if is_grouped else []
            table.add_row(*head, name, f"{test.n:,}", *means, *cells)
        table.add_section()
    return table


def short(value: float, digits: int = 3) -> str:
    """Write a number without the zero before its point, and a dash for nan.

    >>> short(0.1234), short(-0.5), short(1.0), short(float("nan"))
    ('.123', '-.500', '1.000', '–')
    """
    if math.isnan(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table in Markdown."""
    table = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def _heading(metric: str) -> str:
    name, mark, rank = metric.partition("@")
    return _HEADINGS.get(name, name.replace("_", "\n")) + (f"\n{mark}{rank}" if mark else "")


def _table(title: str, columns: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        is_text = column in ("", "group", "metric")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    return table
