"""Tables of all runs: a line is one system in one query mode, compared with plain towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.errors import MissingDataError
from boolattn.evaluation.results import average, compare_results
from boolattn.reproduction.runs import ENDING, NO_ENCODER, Run, load_queries
from boolattn.reproduction.systems import row_label
from experiments.registry import grids, registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.judgements import QueryInfo
    from boolattn.evaluation.results import Results
    from boolattn.evaluation.significance import Comparison
    from boolattn.reproduction.runs import Row
    from boolattn.reproduction.systems import DatasetSpec, EncoderSpec, QueryMode, SystemSpec

BASELINE = ("plain", "plain_text")
#: Metrics that are compared.
TESTED = ("r_precision", "leak", "recall@100")


@dataclass(frozen=True)
class Line:
    """One system in one query mode, over its seeds."""

    system: SystemSpec
    query_mode: QueryMode
    gate: str  # Source of the operator labels
    rows: dict[str, list[tuple[int, Row]]]  # By split, with their seeds

    @property
    def label(self) -> str:
        """Name in tables."""
        return row_label(self.system, self.query_mode)

    def seeds(self, split: str) -> set[int]:
        """Seeds that were measured on a split."""
        return {seed for seed, _ in self.rows.get(split, ())}


@dataclass(frozen=True)
class Table:
    """All lines of one data set and encoder."""

    dataset: DatasetSpec
    encoder: EncoderSpec | None  # None where every system does without
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


def collect_lines(runs: Iterable[Run]) -> dict[tuple[str, str], list[Line]]:
    """Group the rows of runs by data set and encoder, then by system, query mode and gate."""
    tables: dict[tuple[str, str], dict[tuple[str, str, str], Line]] = {}
    for run in runs:
        table = tables.setdefault((run.key.dataset, run.key.encoder), {})
        system = registry().known(run.key.system)
        for row in run.rows:
            mode = registry().query_mode(row.query_mode)
            line = Line(system, mode, row.gate, {})
            line = table.setdefault((system.name, mode.name, row.gate), line)
            line.rows.setdefault(row.split, []).append((run.key.seed, row))
    return {key: list(table.values()) for key, table in tables.items()}


def load_tables(folder: Path) -> tuple[list[Table], list[Run]]:
    """Read all finished runs below a folder."""
    runs = [Run.load(path) for path in sorted(folder.glob(f"*/*/*{ENDING}"))]
    if not runs:
        raise MissingDataError(f"no finished run below {folder}; run some first")
    known = registry()
    order = grids()[0].systems
    runs.sort(key=lambda run: _index(order, known.present_name(run.key.system)))
    found = collect_lines(runs)
    tables = []
    for dataset, encoder in sorted(
        found, key=lambda key: (_index(known.datasets, key[0]), _index(known.encoders, key[1]))
    ):
        # Systems without an encoder come first in the table of every encoder.
        others = found.get((dataset, NO_ENCODER), [])
        if encoder == NO_ENCODER and any(d == dataset and e != encoder for d, e in found):
            continue
        own = [] if encoder == NO_ENCODER else found[dataset, encoder]
        queries = load_queries(folder, dataset)
        spec = known.encoders.get(encoder)
        tables.append(Table(known.dataset(dataset), spec, [*others, *own], queries))
    return tables, runs


def find_line(table: Table, system: str, query_mode: str) -> Line | None:
    """Find a line of a table."""
    names = (system, query_mode)
    return next((o for o in table.lines if (o.system.name, o.query_mode.name) == names), None)


def compare_with_baseline(
    table: Table, line: Line, baseline: Sequence[str] = BASELINE
) -> dict[str, dict[str, Comparison]]:
    """Compare a line with another, by split and metric, over the seeds both have."""
    base = find_line(table, *baseline)
    if base is None or line is base or not line.system.has_seeds:
        return {}
    compared = {}
    for split in table.splits:
        if seeds := base.seeds(split) & line.seeds(split):
            first, second = (table.averaged(one, split, seeds) for one in (base, line))
            compared[split] = compare_results(first, second, metrics=TESTED)
    return compared


def _index(names: Iterable[str], name: str) -> int:
    listed = list(names)
    return listed.index(name) if name in listed else len(listed)
