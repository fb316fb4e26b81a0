"""Tables in Markdown, from finished runs.

May import: boolattn.reproduction, boolattn.evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.reproduction.systems import ASKS, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.reproduction.runs import Row, Run
    from boolattn.reproduction.systems import Suite

    Floats = NDArray[np.float64]

#: Metrics of the overview, and how tables head them.
SHOWN: Mapping[str, str] = {
    "r_precision": "R-precision",
    "leak": "leak",
    "recall@100": "Recall@100",
    "structure": "structure",
}


@dataclass(frozen=True)
class Line:
    """One system, asked in one way, over its seeds.

    Attributes:
        system: Its name.
        ask: How it was asked.
        gate: Who opened the gates.
        rows: For each split the rows, one a seed.
    """

    system: str
    ask: str
    gate: str
    rows: Mapping[str, Sequence[tuple[int, Row]]]

    @property
    def label(self) -> str:
        """What tables call it."""
        system = known().systems.get(self.system)
        name = system.label if system else self.system
        words = "" if self.ask in ("own", "label") and not self._composes else f", {ASKS[self.ask]}"
        return name + words

    @property
    def _composes(self) -> bool:
        system = known().systems.get(self.system)
        return bool(system and "read" in system.asks)

    @property
    def has_seeds(self) -> bool:
        """Whether it was trained, so that seeds mean something."""
        system = known().systems.get(self.system)
        return system is None or system.has_seeds

    def seeds(self, split: str) -> set[int]:
        """Those it was measured with on a split."""
        return {seed for seed, _ in self.rows.get(split, ())}

    @property
    def n_seeds(self) -> int:
        """Of the split that has the most."""
        return max(len(rows) for rows in self.rows.values())

    def means(self, split: str, metric: str) -> list[float]:
        """Return the mean of each seed."""
        found = []
        for _, row in self.rows.get(split, ()):
            values = row.values.get(metric)
            if values is not None and not np.isnan(values).all():
                found.append(float(np.nanmean(values)))
        return found


def lines(runs: Iterable[Run]) -> dict[tuple[str, str], list[Line]]:
    """Sort the rows of runs by data set and encoder, then by system and way of asking."""
    found: dict[tuple[str, str], dict[tuple[str, str, str], dict[str, list[tuple[int, Row]]]]] = {}
    for run in runs:
        table = found.setdefault((run.key.dataset, run.key.encoder), {})
        for row in run.rows:
            own = table.setdefault((run.key.system, row.ask, row.gate), {})
            own.setdefault(row.split, []).append((run.key.seed, row))
    return {
        key: [Line(*names, rows) for names, rows in table.items()] for key, table in found.items()
    }


def overview(runs: Sequence[Run]) -> str:
    """Lay out every run's main numbers."""
    parts = []
    for (dataset, encoder), table in lines(runs).items():
        splits = list(dict.fromkeys(split for line in table for split in line.rows))
        text = overview_table(table, splits, known().suites.get(dataset))
        parts.append(f"**{dataset}, {encoder}**\n\n{text}")
    return "\n\n".join(parts)


def overview_table(table: Sequence[Line], splits: Sequence[str], suite: Suite | None) -> str:
    """Lay out the main numbers of some lines, splits beside each other."""
    heads = " / ".join(suite.splits.get(split, split) if suite else split for split in splits)
    metrics = [m for m in SHOWN if any(line.means(s, m) for line in table for s in splits)]
    columns = ["system", "gate", "seeds", *(f"{SHOWN[m]}, {heads}" for m in metrics)]
    rows = [
        [
            line.label,
            line.gate,
            str(line.n_seeds),
            *(" / ".join(spread(line.means(s, m)) for s in splits) for m in metrics),
        ]
        for line in table
    ]
    return markdown(columns, rows)


def spread(means: Sequence[float], digits: int = 3) -> str:
    """Write a mean over seeds, with its standard deviation where there are several.

    >>> spread([0.5, 0.52]), spread([0.5]), spread([])
    ('.510 ±.014', '.500', '–')
    """
    if not means:
        return "–"
    text = short(float(np.mean(means)), digits)
    return f"{text} ±{short(float(np.std(means, ddof=1)), digits)}" if len(means) > 1 else text


def short(value: float, digits: int = 3) -> str:
    """Write a number without the zero before its point.

    >>> short(0.1234), short(-0.5), short(1.0), short(float("nan"))
    ('.123', '-.500', '1.000', '–')
    """
    if np.isnan(value):
        return "–"
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table."""
    table = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)
