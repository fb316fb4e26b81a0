"""Figures of results; matplotlib is imported when one is drawn."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.evaluation import domains
from boolattn.files import require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from boolattn.evaluation.results import Results

# Okabe and Ito's palette for all kinds of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")


def by_template(results: Sequence[Results], metric: str = "recall@100") -> Any:  # noqa: ANN401 - a Figure
    """Draw one metric by template with a bar for each system, as the paper's Figure 3."""
    if missing := [system.system for system in results if metric not in system.values]:
        raise ConfigError(f"the results of {missing[0]} have no {metric}")
    groups = [system.by("template") for system in results]
    names = list(dict.fromkeys(name for group in groups for name in group))
    figure = _figure((max(6.4, 1.35 * len(names) + 1), 4.2))
    axes = figure.subplots()
    width = 0.8 / len(results)
    for index, (system, group) in enumerate(zip(results, groups, strict=True)):
        heights = [group[name].means[metric] if name in group else np.nan for name in names]
        left = np.arange(len(names)) + (index - (len(results) - 1) / 2) * width
        colour = _COLOURS[index % len(_COLOURS)]
        bars = axes.bar(left, heights, width * 0.94, color=colour, label=_label(system))
        axes.bar_label(bars, fmt=_short, fontsize=7, padding=1)
    axes.set_xticks(range(len(names)), [_wrapped(name) for name in names], fontsize=8)
    axes.set_ylabel(_title(metric))
    axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], 1e-3))
    _clear(axes)
    first = results[0]
    size = f"{len(first.queries):,} queries, {first.n_documents:,} documents"
    title = f"{_title(metric)} by template: {first.dataset}, {first.split}, {size}"
    axes.set_title(title, fontsize=9, loc="left")
    figure.legend(loc="outside lower center", ncols=min(len(results), 4), frameon=False, fontsize=8)
    return figure


def by_domain(results: Sequence[Results]) -> Any:  # noqa: ANN401 - a Figure
    """Draw a panel for each column of the table of domains, with a bar for each system."""
    all_rows = [domains.rows_of(system) for system in results]
    names = list(all_rows[0])
    figure = _figure((2.2 * len(names) + 3, 6.4))
    panels = figure.subplots(len(domains.COLUMNS) // 2, 2, sharex=True).flat
    width = 0.8 / len(results)
    for column, (panel, (heading, _, metric)) in enumerate(
        zip(panels, domains.COLUMNS, strict=True)
    ):
        for index, (system, rows) in enumerate(zip(results, all_rows, strict=True)):
            left = np.arange(len(names)) + (index - (len(results) - 1) / 2) * width
            heights = [rows[name][column] for name in names]
            colour = _COLOURS[index % len(_COLOURS)]
            panel.bar(left, heights, width * 0.94, color=colour, label=domains.label(system))
        panel.set_ylabel(heading if metric == "leak" else f"{heading}\nR-precision", fontsize=8)
        panel.set_ylim(0, 1)
        _clear(panel)
        panel.set_xticks(range(len(names)), names, fontsize=7)
    panels[0].set_title(f"{results[0].dataset}, {results[0].split}", fontsize=9, loc="left")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def save(figure: Any, path: Path) -> None:  # noqa: ANN401 - a Figure
    """Write a figure; the suffix selects the format."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the figure {path}: {error}") from error


def _figure(size: tuple[float, float]) -> Any:  # noqa: ANN401 - matplotlib may be missing
    require("a figure", ("matplotlib",), "evaluate")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _clear(axes: Any) -> None:  # noqa: ANN401 - matplotlib may be missing
    """Remove the frame, and draw a grid behind the bars."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)


def _label(results: Results) -> str:
    notes = [f"gate: {results.gate}"] if results.gate else []
    notes += [] if results.seed is None else [f"seed {results.seed}"]
    return results.system + (f" ({', '.join(notes)})" if notes else "")


def _short(value: float) -> str:
    """Write .414, or nothing for nan."""
    return "" if np.isnan(value) else f"{value:.3f}".removeprefix("0") if value < 1 else "1"


def _title(metric: str) -> str:
    return metric.replace("_", " ").capitalize().replace("Mrr", "MRR").replace("Ndcg", "nDCG")


def _wrapped(name: str) -> str:
    """Break the name of a template into lines; a blank stays with its word."""
    name = name.replace(" _", "\N{NO-BREAK SPACE}_")
    return textwrap.fill(name, 15, break_long_words=False, break_on_hyphens=False)
