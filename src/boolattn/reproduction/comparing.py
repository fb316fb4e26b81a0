"""All systems of one data set and encoder side by side, each compared with plain towers.

May import: boolattn.reproduction, boolattn.evaluation, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import MissingDataError
from boolattn.evaluation.results import average
from boolattn.evaluation.significance import compare
from boolattn.reproduction.plan import NO_ENCODER
from boolattn.reproduction.runs import Run, RunKey, all_runs, load_queries, results
from boolattn.reproduction.systems import known
from boolattn.reproduction.tables import Line, lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.judgements import QueryInfo
    from boolattn.evaluation.results import Results
    from boolattn.evaluation.significance import Comparison

BASELINE = ("plain", "own")
#: Tested against the baseline.
TESTED = ("r_precision", "leak", "recall@100")


@dataclass(frozen=True)
class Table:
    """All lines of one data set and encoder.

    Attributes:
        dataset: Its name.
        encoder: Its name.
        lines: With BM25, which stands on no encoder, first.
        queries: What was asked, by split.
    """

    dataset: str
    encoder: str
    lines: Sequence[Line]
    queries: Mapping[str, tuple[QueryInfo, ...]]

    @property
    def key(self) -> tuple[str, str]:
        """Data set and encoder, as runs name them."""
        return self.dataset, self.encoder

    @property
    def splits(self) -> list[str]:
        """Those that were measured, in the order of the data set's."""
        found = {split for line in self.lines for split in line.rows}
        suite = known().suites.get(self.dataset)
        order = [split for split in suite.splits if split in found] if suite else []
        return order + sorted(found - set(order))

    def named(self, split: str) -> str:
        """Say what tables call a split."""
        suite = known().suites.get(self.dataset)
        return suite.splits.get(split, split) if suite else split

    def line(self, system: str, ask: str) -> Line | None:
        """Find a line."""
        for line in self.lines:
            if (line.system, line.ask) == (system, ask):
                return line
        return None

    def averaged(self, line: Line, split: str, seeds: Sequence[int]) -> Results:
        """Average every query's values over some seeds."""
        chosen = [(seed, row) for seed, row in line.rows.get(split, ()) if seed in seeds]
        found = []
        for seed, row in chosen:
            run = Run(RunKey(self.dataset, self.encoder, line.system, seed), [row], {})
            found.append(results(run, row, self.queries[split], line.label))
        return average(found)

    @cached_property
    def compared(self) -> list[dict[str, dict[str, Comparison]]]:
        """Each line compared with the baseline, by split and metric, over the seeds both have."""
        return [self._compared(line) for line in self.lines]

    def _compared(self, line: Line) -> dict[str, dict[str, Comparison]]:
        base = self.line(*BASELINE)
        if base is None or line is base or not line.has_seeds:
            return {}
        compared: dict[str, dict[str, Comparison]] = {}
        for split in self.splits:
            seeds = base.seeds(split) & line.seeds(split)
            if not seeds:
                continue
            first = self.averaged(base, split, sorted(seeds))
            second = self.averaged(line, split, sorted(seeds))
            compared[split] = {
                metric: compare(first.values[metric], second.values[metric])
                for metric in TESTED
                if not np.isnan(second.values[metric] - first.values[metric]).all()
            }
        return compared


def load_tables(folder: Path) -> tuple[list[Table], list[Run]]:
    """Read all finished runs below a folder."""
    runs = [Run.load(path) for path in all_runs(folder)]
    if not runs:
        raise MissingDataError(f"no finished run below {folder}; run some first")
    order = list(known().systems)
    runs.sort(key=lambda run: order.index(run.key.system) if run.key.system in order else 99)
    found = lines(runs)
    names = {dataset for dataset, _ in found}
    queries = {dataset: load_queries(folder, dataset) for dataset in names}
    tables = []
    for dataset, encoder in sorted(found, key=_place):
        bare = found.get((dataset, NO_ENCODER), [])
        if encoder == NO_ENCODER and any(d == dataset and e != encoder for d, e in found):
            continue
        own = [] if encoder == NO_ENCODER else found[dataset, encoder]
        tables.append(Table(dataset, encoder, [*bare, *own], queries[dataset]))
    return tables, runs


def _place(key: tuple[str, str]) -> tuple[int, int]:
    datasets, encoders = list(known().suites), list(known().encoders)
    dataset, encoder = key
    return (
        datasets.index(dataset) if dataset in datasets else len(datasets),
        encoders.index(encoder) if encoder in encoders else len(encoders),
    )
