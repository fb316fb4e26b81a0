"""Figures of results; matplotlib is imported when one is drawn."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.evaluation import domains
from boolattn.files import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.results import Results

# Okabe and Ito's palette for all kinds of colour vision.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")


def by_template(results: Sequence[Results], metric: str = "recall@100") -> Any:  # noqa: ANN401 - a Figure
    """Draw one metric by template with a bar for each system, as the paper's Figure 3."""
    if missing := [one.system for one in results if metric not in one.values]:
        raise ConfigError(f"the results of {missing[0]} have no {metric}")
    groups = [one.by("template") for one in results]
    names = list(dict.fromkeys(name for group in groups for name in group))
    figure = _figure((max(6.4, 1.35 * len(names) + 1), 4.2))
    axes = figure.subplots()
    width = 0.8 / len(results)
    for index, (one, group) in enumerate(zip(results, groups, strict=True)):
        heights = [group[name].means[metric] if name in group else np.nan for name in names]
        left = np.arange(len(names)) + (index - (len(results) - 1) / 2) * width
        colour = _COLOURS[index % len(_COLOURS)]
        bars = axes.bar(left, heights, width * 0.94, color=colour, label=_label(one))
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
    all_rows = [domains.rows_of(one) for one in results]
    names = list(all_rows[0])
    figure = _figure((2.2 * len(names) + 3, 6.4))
    panels = figure.subplots(len(domains.COLUMNS) // 2, 2, sharex=True).flat
    width = 0.8 / len(results)
    for column, (panel, (heading, _, metric)) in enumerate(
        zip(panels, domains.COLUMNS, strict=True)
    ):
        for index, (one, rows) in enumerate(zip(results, all_rows, strict=True)):
            left = np.arange(len(names)) + (index - (len(results) - 1) / 2) * width
            heights = [rows[name][column] for name in names]
            colour = _COLOURS[index % len(_COLOURS)]
            panel.bar(left, heights, width * 0.94, color=colour, label=domains.label(one))
        panel.set_ylabel(heading if metric == "leak" else f"{heading}\nR-precision", fontsize=8)
        panel.set_ylim(0, 1)
        _clear(panel)
        panel.set_xticks(range(len(names)), names, fontsize=7)
    panels[0].set_title(f"{results[0].dataset}, {results[0].split}", fontsize=9, loc="left")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def reported_rows(
    title: str,
    metrics: Sequence[str],
    rows: Sequence[tuple[str, Mapping[str, float], bool]],
) -> Any:  # noqa: ANN401 - a Figure
    """Draw rows as bars, one panel a metric; each row has a label, values, and whether it is ours.

    Rows that are not ours are grey and hatched.
    """
    figure = _figure((3.0 + 2.0 * len(metrics), max(2.6, 0.34 * len(rows) + 1.2)))
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    names, all_values, ours = zip(*rows, strict=True)
    colours = [_COLOURS[sum(ours[:i]) % 6] if own else "0.82" for i, own in enumerate(ours)]
    hatches = ["" if own else "//" for own in ours]
    for panel, metric in zip(panels, metrics, strict=True):
        values = [own.get(metric, np.nan) for own in all_values]
        bars = panel.barh(range(len(rows)), values, color=colours, hatch=hatches)
        panel.bar_label(bars, fmt=lambda v: "" if np.isnan(v) else f"{v:.3f}", fontsize=7)
        panel.set_title(metric, fontsize=9)
        panel.set_xlim(0, 1.2 * max([v for v in values if not np.isnan(v)], default=1) or 1)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(rows)), names, fontsize=7)
    panels[0].invert_yaxis()
    figure.suptitle(f"{title} (hatched: not ours)", fontsize=10)
    return figure


def by_layer(found: Mapping[str, Mapping[str, Sequence[float]]], titles: Mapping[str, str]) -> Any:  # noqa: ANN401 - a Figure
    """Draw values by layer, with a panel for each title and a line for each name."""
    figure = _figure((4.2 * len(titles), 3.6))
    for panel, (key, title) in zip(figure.subplots(1, len(titles)), titles.items(), strict=True):
        panel.axhline(0, color="0.7", linestyle=":")
        for index, (name, values) in enumerate(found.items()):
            places, colour = range(1, len(values[key]) + 1), _COLOURS[index % len(_COLOURS)]
            panel.plot(places, values[key], "o-", color=colour, markersize=3.5, label=name)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("layer")
        panel.spines[["top", "right"]].set_visible(False)
    names, lines = len(found), figure.axes[0].get_lines()[1:]
    figure.legend(
        lines, list(found), loc="outside lower center", ncols=min(names, 4), frameon=False
    )
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
    parts = [f"gate: {results.gate}"] if results.gate else []
    parts += [] if results.seed is None else [f"seed {results.seed}"]
    return results.system + (f" ({', '.join(parts)})" if parts else "")


def _short(value: float) -> str:
    """Write .414, or nothing for nan."""
    return "" if np.isnan(value) else f"{value:.3f}".removeprefix("0") if value < 1 else "1"


def _title(metric: str) -> str:
    return metric.replace("_", " ").capitalize().replace("Mrr", "MRR").replace("Ndcg", "nDCG")


def _wrapped(name: str) -> str:
    """Break the name of a template into lines; a blank stays with its word."""
    name = name.replace(" _", "\N{NO-BREAK SPACE}_")
    return textwrap.fill(name, 15, break_long_words=False, break_on_hyphens=False)
