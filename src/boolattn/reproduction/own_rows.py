"""Our rows of a table of the paper: mean and spread over seeds, and a paired test against a row."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolattn.evaluation.results import average, compare_results
from boolattn.evaluation.tables import short
from boolattn.reproduction.runs import Run, load_queries
from boolattn.reproduction.systems import paper_registry, row_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.results import Results
    from boolattn.reproduction.requests import RunRequest
    from boolattn.reproduction.systems import DatasetSpec

OURS = "ours"
#: Marks of p values below a level.
MARKS = {0.001: " ‡", 0.05: " †", 2.0: ""}


@dataclass(frozen=True)
class Reported:
    """One row of a table: values by metric, and who reports them ("ours", "paper").

    ``spread`` is the standard deviation over several seeds, ``p_values`` those of the paired
    randomisation test over queries, ``tested`` the two systems in words.
    """

    label: str
    who: str
    values: Mapping[str, float]
    note: str = ""
    spread: Mapping[str, float] = field(default_factory=dict)
    p_values: Mapping[str, float] = field(default_factory=dict)
    tested: str = ""

    def cell(self, metric: str) -> str:
        """Write a value with its spread and the mark of its test."""
        text = short(self.values.get(metric, float("nan")))
        if metric in self.spread:
            text += f" ±{short(self.spread[metric])}"
        p_value = self.p_values.get(metric, 1.0)
        return text + next(mark for level, mark in MARKS.items() if p_value < level)


class OwnRow(NamedTuple):
    """The runs of one system in one query mode on one split, one for each seed."""

    system: str
    runs: Sequence[Results]

    def over(self, seeds: Iterable[int | None]) -> Results:
        """Average every query's values over seeds."""
        return average([one for one in self.runs if one.seed in seeds])

    @property
    def seeds(self) -> list[int | None]:
        """The seeds, in the order of the runs."""
        return [one.seed for one in self.runs]

    @property
    def results(self) -> Results:
        """Values averaged over all seeds."""
        return self.over(self.seeds)

    def report(
        self, metrics: Sequence[str], base: OwnRow | None, dataset: DatasetSpec, encoder: str
    ) -> Reported:
        """Return the row of a table, tested against another over the seeds that both have."""
        results, seeds = self.results, ", ".join(map(str, self.seeds))
        queries = f"{dataset.label}, {dataset.splits.get(results.split, results.split)}"
        note = f"{encoder}, {queries}; seeds {seeds}; operator labels: {results.gate}"
        means = {metric: value_of(results, metric) for metric in metrics}
        values = [[value_of(one, metric) for metric in metrics] for one in self.runs]
        spread = np.std(values, axis=0, ddof=1).tolist() if len(values) > 1 else ()
        row = Reported(results.system, OURS, means, note, dict(zip(metrics, spread, strict=False)))
        both = set(self.seeds) & set(base.seeds if base else ())
        # A metric of some queries, like "mrr@10 not", is not tested.
        tested = [metric for metric in metrics if metric in results.values]
        if base is None or not both or not tested:
            return row
        compared = compare_results(base.over(both), self.over(both), metrics=tested)
        p_values = {metric: found.p_value for metric, found in compared.items()}
        names = [f"{one.system} ({one.gate})" for one in (results, base.runs[0])]
        return replace(row, p_values=p_values, tested=" against ".join(names))


def own_rows(files: Iterable[Path], folder: Path, dataset: str) -> list[OwnRow]:
    """Read finished runs; a row is a system in a query mode on a split."""
    registry, queries = paper_registry(), load_queries(folder, dataset)
    groups: dict[tuple[str, ...], list[Results]] = defaultdict(list)
    for run in map(Run.load, files):
        for row in run.rows:
            mode = registry.query_mode(row.query_mode)
            label = row_label(registry.known(run.key.system), mode)
            one = row.results(label, dataset, run.key.seed, queries[row.split])
            groups[run.key.system, label, row.gate, row.split].append(one)
    return [OwnRow(key[0], runs) for key, runs in groups.items()]


def reported_rows(
    rows: Sequence[OwnRow], metrics: Sequence[str], against: Mapping[str, str], *about: Any
) -> list[Reported]:
    """Lay out the rows of a table by split, each tested against a system; ``about`` as above."""
    found = []
    for split in dict.fromkeys(row.runs[0].split for row in rows):
        own = [row for row in rows if row.runs[0].split == split]
        # The first row of a system is that of its first query mode.
        first = {row.system: row for row in reversed(own)}
        bases = [first.get(against.get(row.system, "")) for row in own]
        both = zip(own, bases, strict=True)
        found += [row.report(metrics, base, *about) for row, base in both]
    return found


def stored_runs(request: RunRequest, folder: Path) -> tuple[list[Path], list[str]]:
    """Find the files of requested runs below a folder, whatever their settings; name the others."""
    found, missing = [], defaultdict[str, list[str]](list)
    for spec in request.specs(paper_registry()):
        if (path := folder / spec.key.path).is_file():
            found.append(path)
        else:
            missing[spec.system.name].append(str(spec.seed))
    return found, [f"{name} (seed {', '.join(seeds)})" for name, seeds in missing.items()]


def value_of(results: Results, metric: str) -> float:
    """Return a mean; ``mrr@10 not`` is over the queries with NOT."""
    name, _, operator = metric.partition(" ")
    groups = results.by("operator") if operator else {"": results.overall}
    return round(groups[operator].means[name], 5) if operator in groups else float("nan")
