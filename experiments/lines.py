"""Results of runs as lines of a table: one system in one query mode, over its seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.evaluation.results import average
from boolattn.reproduction.systems import row_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.evaluation.judgements import QueryInfo
    from boolattn.evaluation.results import Results
    from boolattn.reproduction.runs import Row, Run
    from boolattn.reproduction.systems import (
        DatasetSpec,
        EncoderSpec,
        QueryMode,
        Registry,
        SystemSpec,
    )


@dataclass(frozen=True)
class Line:
    """One system in one query mode, over its seeds.

    Attributes:
        system: The system.
        query_mode: How it was queried.
        gate: Source of the operator labels.
        rows: For each split the seeds and their rows.
    """

    system: SystemSpec
    query_mode: QueryMode
    gate: str
    rows: dict[str, list[tuple[int, Row]]]

    @property
    def label(self) -> str:
        """Name in tables."""
        return row_label(self.system, self.query_mode)

    def seeds(self, split: str) -> set[int]:
        """Seeds that were measured on a split."""
        return {seed for seed, _ in self.rows.get(split, ())}


@dataclass(frozen=True)
class Table:
    """All lines of one data set and encoder.

    Attributes:
        dataset: The data set.
        encoder: The encoder, unless every system does without.
        lines: Systems in their query modes.
        queries: Queries of each split.
    """

    dataset: DatasetSpec
    encoder: EncoderSpec | None
    lines: Sequence[Line]
    queries: Mapping[str, tuple[QueryInfo, ...]]

    @property
    def splits(self) -> list[str]:
        """Measured splits, in the order of the data set's."""
        found = {split for line in self.lines for split in line.rows}
        order = [split for split in self.dataset.splits if split in found]
        return order + sorted(found - set(order))

    def split_label(self, split: str) -> str:
        """Name of a split in tables."""
        return self.dataset.splits.get(split, split)

    def averaged(self, line: Line, split: str, seeds: Iterable[int] | None = None) -> Results:
        """Average every query's values over seeds; default: all."""
        chosen = line.seeds(split) if seeds is None else set(seeds)
        rows = [(seed, row) for seed, row in line.rows.get(split, ()) if seed in chosen]
        dataset, queries = self.dataset.name, self.queries[split]
        return average([row.results(line.label, dataset, seed, queries) for seed, row in rows])


def collect_lines(runs: Iterable[Run], registry: Registry) -> dict[tuple[str, str], list[Line]]:
    """Group the rows of runs by data set and encoder, then by system, query mode and gate."""
    tables: dict[tuple[str, str], dict[tuple[str, str, str], Line]] = {}
    for run in runs:
        table = tables.setdefault((run.key.dataset, run.key.encoder), {})
        system = registry.known(run.key.system)
        for row in run.rows:
            mode = registry.query_mode(row.query_mode)
            line = Line(system, mode, row.gate, {})
            line = table.setdefault((system.name, mode.name, row.gate), line)
            line.rows.setdefault(row.split, []).append((run.key.seed, row))
    return {key: list(table.values()) for key, table in tables.items()}


def short(value: float, digits: int = 3) -> str:
    """Write a number without the zero before its point.

    >>> short(0.1234), short(-0.5), short(1.0), short(float("nan"))
    ('.123', '-.500', '1.000', '–')
    """
    if np.isnan(value):
        return "–"
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"
