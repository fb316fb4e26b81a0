"""A table of the paper as a figure. Matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import MissingDataError
from boolattn.reproduction.paper import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.reproduction.paper import Reported

#: The paper's rows are grey, ours are coloured.
_GREY, _COLOURS = "0.82", ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")


def rows_figure(title: str, metrics: Sequence[str], rows: Sequence[Reported]) -> Any:  # noqa: ANN401 - a Figure
    """Draw rows as bars, one panel a metric; rows that are not ours are hatched."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDataError("figures need matplotlib: pip install 'boolattn[plot]'") from error
    height = max(2.6, 0.34 * len(rows) + 1.2)
    figure = Figure(figsize=(3.0 + 2.0 * len(metrics), height), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    ours = [row.who == OURS for row in rows]
    colours = [_COLOURS[sum(ours[:i]) % len(_COLOURS)] if o else _GREY for i, o in enumerate(ours)]
    for panel, metric in zip(panels, metrics, strict=True):
        values = [row.values.get(metric, np.nan) for row in rows]
        hatches = ["" if own else "//" for own in ours]
        bars = panel.barh(range(len(rows)), values, color=colours, hatch=hatches)
        panel.bar_label(bars, fmt=lambda v: "" if np.isnan(v) else f"{v:.3f}", fontsize=7)
        panel.set_title(metric, fontsize=9)
        panel.set_xlim(0, 1.2 * max([v for v in values if not np.isnan(v)], default=1) or 1)
        panel.spines[["top", "right"]].set_visible(False)
    names = [f"{row.label} ({row.note or row.who})" for row in rows]
    panels[0].set_yticks(range(len(rows)), names, fontsize=7)
    panels[0].invert_yaxis()
    figure.suptitle(f"{title} (hatched: not ours)", fontsize=10)
    return figure
