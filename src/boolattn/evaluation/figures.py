"""Figures of results; matplotlib is imported when one is drawn."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.evaluation import domains
from boolattn.evaluation.tables import short
from boolattn.files import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.results import Results

    #: For each system the heights of its bars.
    Bars = Sequence[Sequence[float]]

# Okabe and Ito's palette for all kinds of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")


def by_template(results: Sequence[Results], metric: str = "recall@100") -> Any:  # noqa: ANN401 - a Figure
    """Draw one metric by template with a bar for each system, as the paper's Figure 3."""
    if missing := [system.system for system in results if metric not in system.values]:
        raise ConfigError(f"the results of {missing[0]} have no {metric}")
    groups = [system.by("template") for system in results]
    names = list(dict.fromkeys(name for group in groups for name in group))
    bars = [
        [group[name].means[metric] if name in group else np.nan for name in names]
        for group in groups
    ]
    first = results[0]
    size = f"{len(first.queries):,} queries, {first.n_documents:,} documents"
    heading = metric.replace("_", " ").capitalize().replace("Mrr", "MRR").replace("Ndcg", "nDCG")
    title = f"{heading} by template: {first.dataset}, {first.split}, {size}"
    # Names of templates have several lines; a blank stays with its word.
    joined = (name.replace(" _", "\N{NO-BREAK SPACE}_") for name in names)
    lines = [textwrap.fill(n, 15, break_long_words=False, break_on_hyphens=False) for n in joined]
    return _draw(title, lines, {heading: bars}, results)


def by_domain(results: Sequence[Results]) -> Any:  # noqa: ANN401 - a Figure
    """Draw a panel for each column of the table of domains, with a bar for each system."""
    all_rows = [domains.rows_of(system) for system in results]
    names = list(all_rows[0])
    columns = domains.columns_of(results[0].split)
    panels = {
        f"{heading}\nR-precision" if heading == kind else heading: [
            [rows[name][column] for name in names] for rows in all_rows
        ]
        for column, (heading, kind, _) in enumerate(columns)
    }
    return _draw(f"{results[0].dataset}, {results[0].split}", names, panels, results)


def save(figure: Any, path: Path) -> None:  # noqa: ANN401 - a Figure
    """Write a figure; the suffix selects the format."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the figure {path}: {error}") from error


def _draw(
    title: str, names: Sequence[str], panels: Mapping[str, Bars], results: Sequence[Results]
) -> Any:  # noqa: ANN401 - matplotlib may be missing
    """Draw panels, two in a row, with a group of bars for each name."""
    require("a figure", ("matplotlib",), "evaluate")
    from matplotlib.figure import Figure

    n_columns = min(2, len(panels))
    n_rows, width = -(-len(panels) // n_columns), 0.8 / len(results)
    figure = Figure(
        figsize=(1.35 * len(names) * n_columns + 3, 2 * n_rows + 2), layout="constrained"
    )
    grid = figure.subplots(n_rows, n_columns, sharex=True, squeeze=False).flat
    for axes, (heading, bars) in zip(grid, panels.items(), strict=False):
        for index, (system, heights) in enumerate(zip(results, bars, strict=True)):
            left = np.arange(len(names)) + (index - (len(results) - 1) / 2) * width
            colour = _COLOURS[index % len(_COLOURS)]
            drawn = axes.bar(left, heights, width * 0.94, color=colour, label=_label(system))
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


def _label(results: Results) -> str:
    notes = [f"gate: {results.gate}"] if results.gate else []
    notes += [] if results.seed is None else [f"seed {results.seed}"]
    return results.label + (f" ({', '.join(notes)})" if notes else "")
