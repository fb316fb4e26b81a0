"""Results as tables for a terminal and in Markdown, and as figures."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.evaluation.metrics import LOWER_IS_BETTER, parse
from boolattn.evaluation.results import Comparison, Results, domain_columns, domain_rows
from boolattn.files import require

_LEVEL = 0.05  # significance level at which a difference is marked
# Okabe and Ito's palette for all kinds of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")


def split_table(results: Results) -> str:
    """Return the means of one split: all queries, then each grouping; no empty columns."""
    gate = f", gate: {results.gate}" if results.gate else ""
    title = (
        f"{results.label}{gate} on {results.dataset}, {results.split}: "
        f"{len(results.queries):,} queries, {results.n_documents:,} documents"
    )
    groups = {"all": results}
    for grouping in ("template", "operator", "domain", "wording"):
        prefix = "" if grouping == "template" else f"{grouping}: "
        # A single group repeats the row of all.
        if len(named := results.by(grouping)) > 1:
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
    first = systems[0]
    rows = [
        [f"{results.details.get('way', '')} {name}".strip(), *map(short, values)]
        for results in systems
        for name, values in domain_rows(results).items()
    ]
    text = aligned(["", *(heading for heading, _, _ in domain_columns(first.split))], rows)
    title = f"{first.system} on {first.dataset}, {first.split}: R-precision by domain, and leak"
    return f"{title}\n\n{text}"


def comparison_table(
    systems: Sequence[Results], compared: Mapping[str, Mapping[str, Comparison]]
) -> str:
    """Return the metrics of two systems, by group where groups are named."""
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
        texts = [re.sub(r"\x1b\[[\d;]*m", "", cell) for cell in cells]
        width, is_text = max(map(len, texts)), any(map(str.isalpha, "".join(texts[1:])))
        pairs = zip(cells, (" " * (width - len(text)) for text in texts), strict=True)
        padded.append([cell + space if is_text else space + cell for cell, space in pairs])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*padded, strict=True))


def template_figure(results: Sequence[Results], metric: str = "recall@100") -> Any:  # noqa: ANN401 - a Figure
    """Draw one metric by template with a bar for each system, as the paper's Figure 3."""
    if missing := [system.system for system in results if metric not in system.values]:
        raise ConfigError(f"the results of {missing[0]} have no {metric}")
    groups = [system.by("template") for system in results]
    names = list(dict.fromkeys(name for group in groups for name in group))
    bars = [[g[name].means[metric] if name in g else np.nan for name in names] for g in groups]
    first = results[0]
    size = f"{len(first.queries):,} queries, {first.n_documents:,} documents"
    heading = metric.replace("_", " ").capitalize().replace("Mrr", "MRR").replace("Ndcg", "nDCG")
    title = f"{heading} by template: {first.dataset}, {first.split}, {size}"
    # Names of templates have several lines; a blank stays with its word.
    joined = (name.replace(" _", "\N{NO-BREAK SPACE}_") for name in names)
    lines = [textwrap.fill(n, 15, break_long_words=False, break_on_hyphens=False) for n in joined]
    return _draw(title, lines, {heading: bars}, results)


def domain_figure(results: Sequence[Results]) -> Any:  # noqa: ANN401 - a Figure
    """Draw a panel for each column of the table of domains, with a bar for each system."""
    all_rows = [domain_rows(system) for system in results]
    names = list(all_rows[0])
    columns = domain_columns(results[0].split)
    headings = [f"{name}\nR-precision" if name == kind else name for name, kind, _ in columns]
    bars = np.array([[rows[name] for name in names] for rows in all_rows])
    panels = dict(zip(headings, bars.transpose(2, 0, 1), strict=True))
    return _draw(f"{results[0].dataset}, {results[0].split}", names, panels, results)


def save_figure(figure: Any, path: Path) -> None:  # noqa: ANN401 - a Figure
    """Write a figure; the suffix selects the format."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the figure {path}: {error}") from error


def _draw(
    title: str, names: Sequence[str], panels: Mapping[str, Any], results: Sequence[Results]
) -> Any:  # noqa: ANN401 - matplotlib may be missing
    """Draw panels, two in a row: the heights of each system's bars, one for each name."""
    require("a figure", ("matplotlib",), "evaluate")
    from matplotlib.figure import Figure

    n_columns = min(2, len(panels))
    n_rows, width = -(-len(panels) // n_columns), 0.8 / len(results)
    size = (1.35 * len(names) * n_columns + 3, 2 * n_rows + 2)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(n_rows, n_columns, sharex=True, squeeze=False).flat
    for axes, (heading, bars) in zip(grid, panels.items(), strict=False):
        for index, (system, heights) in enumerate(zip(results, bars, strict=True)):
            left = np.arange(len(names)) + (index - (len(results) - 1) / 2) * width
            colour = _COLOURS[index % len(_COLOURS)]
            notes = [f"gate: {system.gate}"] if system.gate else []
            notes += [] if system.seed is None else [f"seed {system.seed}"]
            label = system.label + (f" ({', '.join(notes)})" if notes else "")
            drawn = axes.bar(left, heights, width * 0.94, color=colour, label=label)
            axes.bar_label(drawn, fmt=short, fontsize=7, padding=1)
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.set_ylabel(heading, fontsize=8)
        axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], 1e-3))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    grid[0].set_title(title, fontsize=9, loc="left")
    handles = grid[0].get_legend_handles_labels()
    n_labels = min(len(results), 4)
    figure.legend(*handles, loc="outside lower center", ncols=n_labels, frameon=False, fontsize=8)
    return figure
