"""Results as tables for a terminal, and in Markdown."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.evaluation.results import Comparison, Results

#: Significance level at which a difference is marked.
_LEVEL = 0.05
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def split_table(results: Results) -> str:
    """Return the means of one split: all queries, then each grouping; no empty columns."""
    gate = f", gate: {results.gate}" if results.gate else ""
    title = (
        f"{results.label}{gate} on {results.dataset}, {results.split}: "
        f"{len(results.queries):,} queries, {results.n_documents:,} documents"
    )
    groups = {"all": results}
    for grouping in ("template", "operator", "domain", "wording"):
        named = results.by(grouping)
        # A single group repeats the row of all.
        if len(named) > 1:
            prefix = "" if grouping == "template" else f"{grouping}: "
            groups |= {prefix + name: group for name, group in named.items()}
    shown = [name for name, value in results.means.items() if not math.isnan(value)]
    heads = [re.sub("^recall", "R", name.replace("_before_", "<")) for name in shown]
    rows = [
        [name, f"{len(group):,}", *(short(group.means[metric]) for metric in shown)]
        for name, group in groups.items()
    ]
    return f"{title}\n\n{aligned(['', 'n', *heads], rows)}"


def domains_table(systems: Sequence[Results]) -> str:
    """Return R-precision and leak by domain and kind of query, for each system."""
    from boolattn.evaluation import domains

    first = systems[0]
    rows = [
        [f"{results.details.get('way', '')} {name}".strip(), *map(short, values)]
        for results in systems
        for name, values in domains.rows_of(results).items()
    ]
    text = aligned(["", *(heading for heading, _, _ in domains.columns_of(first.split))], rows)
    title = f"{first.system} on {first.dataset}, {first.split}: R-precision by domain, and leak"
    return f"{title}\n\n{text}"


def comparison_table(
    systems: Sequence[Results], compared: Mapping[str, Mapping[str, Comparison]]
) -> str:
    """Return the metrics of two systems, by group where groups are named."""
    from boolattn.evaluation.metrics import LOWER_IS_BETTER, parse

    first, second = systems
    title = (
        f"{first.dataset}, {first.split}: {first.system} (first), {second.system} (second); "
        f"* better, ! worse, at p < {_LEVEL}"
    )
    heads = ["", "metric", "queries", "first", "second", "difference", "95% interval", "p", ""]
    rows = []
    for group, tests in compared.items():
        for name, test in tests.items():
            is_better = (test.difference < 0) == (parse(name).kind in LOWER_IS_BETTER)
            mark = "" if test.p_value >= _LEVEL else "*" if is_better else "!"
            means = (short(test.first), short(test.second), f"{test.difference:+.4f}")
            cells = (f"{test.low:+.4f} to {test.high:+.4f}", f"{test.p_value:.4f}", mark)
            rows.append([group, name, f"{test.n:,}", *means, *cells])
    return f"{title}\n\n{aligned(heads, rows)}"


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


def aligned(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table for a terminal, numbers to the right; cells may have colours.

    >>> print(aligned(["", "leak"], [["all", ".5"], ["animals", "–"]]))
             leak
    all        .5
    animals     –
    """
    padded = []
    for cells in zip(columns, *rows, strict=True):
        texts = [_STYLE.sub("", cell) for cell in cells]
        width, is_text = max(map(len, texts)), any(map(str.isalpha, "".join(texts[1:])))
        spaces = (" " * (width - len(text)) for text in texts)
        pairs = zip(cells, spaces, strict=True)
        padded.append([cell + space if is_text else space + cell for cell, space in pairs])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*padded, strict=True))
