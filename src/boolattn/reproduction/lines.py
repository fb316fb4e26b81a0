"""Lines of tables: one system in one query mode over its seeds, from the files of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import MissingDataError
from boolattn.evaluation.metrics import mean
from boolattn.evaluation.results import average, compare_results
from boolattn.evaluation.tables import short
from boolattn.reproduction.runs import ENDING, NO_ENCODER, Run, RunKey, load_queries
from boolattn.reproduction.systems import QUERY_MODES, registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.judgements import QueryInfo
    from boolattn.evaluation.results import Results
    from boolattn.evaluation.significance import Comparison
    from boolattn.reproduction.runs import Row
    from boolattn.reproduction.systems import DatasetSpec


@dataclass(frozen=True)
class Line:
    """One system in one query mode with one source of operator labels, over its seeds."""

    system: str
    query_mode: str
    gate: str  # Source of the operator labels
    rows: dict[str, dict[int, Row]]  # By split and seed

    @property
    def label(self) -> str:
        """Name in tables; of a system that is not defined any more, its name."""
        spec = registry().systems.get(self.system)
        mode = "" if self.query_mode in QUERY_MODES else f", {self.query_mode}"
        return (spec.label if spec else self.system) + mode

    def means(self, split: str, metric: str) -> list[float]:
        """Return the mean of each seed; those without a value are left out."""
        rows = self.rows.get(split, {}).values()
        means = (mean(row.values[metric]) for row in rows if metric in row.values)
        return [value for value in means if not np.isnan(value)]


@dataclass(frozen=True)
class LineTable:
    """All lines of one data set and encoder."""

    dataset: DatasetSpec
    encoder: str  # Name of the encoder
    lines: Sequence[Line]
    queries: Mapping[str, tuple[QueryInfo, ...]]

    @property
    def encoder_label(self) -> str:
        """Name of the encoder in tables; empty where every system does without."""
        spec = registry().encoders.get(self.encoder)
        return spec.label if spec else ""

    @property
    def splits(self) -> list[str]:
        """Measured splits, in the order of the data set's."""
        measured = {split for line in self.lines for split in line.rows}
        order = [split for split in self.dataset.splits if split in measured]
        return order + sorted(measured - set(order))

    def split_label(self, split: str) -> str:
        """Name of a split in tables."""
        return self.dataset.splits.get(split, split)

    def find(self, system: str, query_mode: str = "") -> Line | None:
        """Find a line; without a query mode, the first of the system."""
        for line in self.lines:
            if line.system == system and query_mode in ("", line.query_mode):
                return line
        return None

    def averaged(self, line: Line, split: str, seeds: Iterable[int] | None = None) -> Results:
        """Average every query's values over seeds; default: all."""
        rows, queries = line.rows[split], self.queries[split]
        chosen = rows if seeds is None else sorted(seeds)
        return average(
            [rows[seed].results(line.label, self.dataset.name, seed, queries) for seed in chosen]
        )

    def compare(
        self, line: Line, other: Line | None, split: str, metrics: Sequence[str]
    ) -> dict[str, Comparison]:
        """Compare a line with another on a split, by metric, over the seeds both have."""
        seeds = set(line.rows.get(split, ())) & set(other.rows.get(split, ()) if other else ())
        if other is None or other is line or not seeds or not metrics:
            return {}
        first, second = (self.averaged(compared, split, seeds) for compared in (other, line))
        return compare_results(first, second, metrics=metrics)


def load_tables(files: Iterable[Path], folder: Path) -> list[LineTable]:
    """Read files of finished runs, in the order of the lines; ``folder`` has their queries.

    Systems without an encoder come first in the table of every encoder of the data set.
    """
    lines: dict[tuple[str, str], dict[tuple[str, str, str], Line]] = {}
    for run in map(Run.load, files):
        table = lines.setdefault((run.key.dataset, run.key.encoder), {})
        for row in run.rows:
            names = (run.key.system, row.query_mode, row.gate)
            line = table.setdefault(names, Line(*names, {}))
            line.rows.setdefault(row.split, {})[run.key.seed] = row
    tables = []
    for (dataset, encoder), encoder_lines in lines.items():
        others = lines.get((dataset, NO_ENCODER), {}) if encoder != NO_ENCODER else {}
        is_alone = all(d != dataset or e == NO_ENCODER for d, e in lines)
        if encoder != NO_ENCODER or is_alone:
            every = [*others.values(), *encoder_lines.values()]
            queries = load_queries(folder, dataset)
            tables.append(LineTable(registry().dataset(dataset), encoder, every, queries))
    return tables


def all_runs(folder: Path) -> list[Path]:
    """List the files of the runs below a folder, in the order of ``systems.toml``."""
    known = registry()

    def order(path: Path) -> tuple[int | str, ...]:
        key, tables = RunKey.of(path), (known.datasets, known.encoders, known.systems)
        names = zip((key.dataset, key.encoder, key.system), map(list, tables), strict=True)
        places = (order.index(name) if name in order else len(order) for name, order in names)
        return (*places, key.system, key.seed)

    files = sorted(folder.glob(f"*/*/*{ENDING}"), key=order)
    if not files:
        raise MissingDataError(f"no finished run below {folder}; run some first")
    return files


def mean_and_deviation(means: Sequence[float], digits: int = 3) -> str:
    """Write a mean over seeds, with its standard deviation where there are several.

    >>> mean_and_deviation([0.5, 0.52]), mean_and_deviation([0.5]), mean_and_deviation([])
    ('.510 ±.014', '.500', '–')
    """
    if not means:
        return "–"
    text = short(float(np.mean(means)), digits)
    return f"{text} ±{short(float(np.std(means, ddof=1)), digits)}" if len(means) > 1 else text
