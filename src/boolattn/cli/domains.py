"""``evaluate --on domains``: every domain alone, in several ways, in one table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.cli.measured import measure_split, stem
from boolattn.cli.output import console, note, print_json
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.table import Table

    from boolattn.data.records import Dataset
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.results import GroupMeans, Results
    from boolattn.search.ranker import OpenSystem


@dataclass(frozen=True)
class Domains:
    """The evaluation of one model, domain by domain and in several ways."""

    model: str
    name: str
    device: str | None
    ways: Sequence[str]  # of ``boolattn.search.ranker.WAYS``
    out: Path
    limit_queries: int

    def run(self, data: Dataset, splits: Sequence[str], *, as_json: bool) -> None:
        """Rank and measure all domains that have the splits; write results, runs and figures."""
        from boolattn.evaluation import domains, figures, tables
        from boolattn.evaluation.benchmark import prepare
        from boolattn.evaluation.results import joined

        measured: dict[str, dict[str, list[Results]]] = {}
        for domain, dataset in domains.by_domain(data, splits):
            benchmark = prepare(dataset, list(dataset.splits), n_queries=self.limit_queries)
            note(f"{domain}: {len(benchmark.documents):,} documents")
            target = self.out / "runs" / domain
            for way, system in self._systems(benchmark):
                for split in benchmark.splits:
                    metrics = domains.metrics_of(split)
                    results = measure_split(system, benchmark, split, metrics, self.name, target)
                    results = replace(results, details={**results.details, "way": way})
                    measured.setdefault(split, {}).setdefault(way, []).append(results)
        if not measured:
            raise ConfigError(f"no domain has the splits {', '.join(splits)}")
        values: dict[str, object] = {}
        for split, ways in measured.items():
            systems = {domains.label(r): r for r in map(joined, ways.values())}
            for label, results in systems.items():
                file = self.out / f"{stem(label, results.dataset, split)}.json"
                results.save(file)
                note(f"results: {file}")
            if domains.others_of(split):
                groups = {label: domains.groups_of(results) for label, results in systems.items()}
                values[split] = {
                    label: {row: group.means for row, group in rows.items()}
                    for label, rows in groups.items()
                }
                table = _grouped_table(split, groups)
            else:
                path = self.out / f"{stem(results.system, results.dataset, split)}.png"
                figures.save(figures.by_domain([*systems.values()]), path)
                note(f"figure: {path}")
                values[split] = {label: domains.rows_of(r) for label, r in systems.items()}
                table = tables.domains_table([*systems.values()])
            if not as_json:
                console(width=tables.WIDTH).print(table)
        if as_json:
            print_json({"columns": domains.COLUMNS, "splits": values}, indent=2)

    def _systems(self, benchmark: Benchmark) -> Iterator[tuple[str, OpenSystem]]:
        from boolattn.encoders.models import load_model
        from boolattn.search.ranker import RUNS, SearchRanker, open_system

        if self.model == "bm25" or self.model.endswith(RUNS):
            yield "", open_system(self.model, benchmark)
            return
        encoder = load_model(self.model, device=self.device)
        ranker = SearchRanker(encoder, benchmark.documents)
        for way in self.ways:
            yield way, ranker.system(self.name or Path(self.model).name, way)


def _grouped_table(split: str, groups: Mapping[str, Mapping[str, GroupMeans]]) -> Table:
    """Return one row a domain and group of queries, for each way of ranking."""
    from boolattn.evaluation import domains, tables

    sections = [
        {f"{label}: {row}": group for row, group in rows.items()} for label, rows in groups.items()
    ]
    metrics = ("r_precision", "leak", domains.WRONG_DROPS, "mrr@10")
    return tables.groups_table(f"{split}: means by domain", metrics, sections)
