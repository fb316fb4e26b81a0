"""``evaluate --on domains``: every domain alone, in several ways, in one table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.cli.measured import measure_split, stem
from boolattn.cli.output import console, note, print_json
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.data.records import Dataset
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.results import Results
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
                    results = measure_split(
                        system, benchmark, split, domains.METRICS, self.name, target
                    )
                    results = replace(results, details={**results.details, "way": way})
                    measured.setdefault(split, {}).setdefault(way, []).append(results)
        if not measured:
            raise ConfigError(f"no domain has the splits {', '.join(splits)}")
        values = {}
        for split, ways in measured.items():
            systems = {domains.label(r): r for r in map(joined, ways.values())}
            for label, results in systems.items():
                file = self.out / f"{stem(label, results.dataset, split)}.json"
                results.save(file)
                note(f"results: {file}")
            path = self.out / f"{stem(results.system, results.dataset, split)}.png"
            figures.save(figures.by_domain([*systems.values()]), path)
            note(f"figure: {path}")
            values[split] = {label: domains.rows_of(results) for label, results in systems.items()}
            if not as_json:
                console(width=tables.WIDTH).print(tables.domains_table([*systems.values()]))
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
