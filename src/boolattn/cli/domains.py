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

    from boolattn.data.records import Dataset
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.judgements import Judgements
    from boolattn.evaluation.ranking import Ranking
    from boolattn.evaluation.results import Results
    from boolattn.search.systems import OpenSystem


@dataclass(frozen=True)
class Domains:
    """The evaluation of one model, domain by domain and in several ways."""

    model: str
    name: str
    device: str | None
    ways: Sequence[str]  # of ``boolattn.search.index_ranker.WAYS``
    out: Path
    limit_queries: int

    def run(self, data: Dataset, splits: Sequence[str], *, as_json: bool) -> None:
        """Rank and measure all domains that have the splits; write results, runs and figures."""
        from boolattn.evaluation import domains, figures, tables
        from boolattn.evaluation.benchmark import prepare
        from boolattn.evaluation.results import joined

        parts: dict[tuple[str, str], list[Results]] = {}
        for domain, own in domains.by_domain(data, splits):
            benchmark = prepare(own, list(own.splits), n_queries=self.limit_queries)
            note(f"{domain}: {len(benchmark.documents):,} documents")
            for way, system in self._systems(benchmark):
                for part in benchmark.splits:
                    target = self.out / "runs" / domain
                    one = measure_split(system, benchmark, part, domains.METRICS, self.name, target)
                    one = replace(one, details={**one.details, "way": way})
                    parts.setdefault((part, way), []).append(one)
        if not parts:
            raise ConfigError(f"no domain has the splits {', '.join(splits)}")
        values = {}
        for part in dict.fromkeys(part for part, _ in parts):
            found = [joined(own) for (split, _), own in parts.items() if split == part]
            for one in found:
                file = self.out / f"{stem(domains.label(one), one.dataset, one.split)}.json"
                one.save(file)
                note(f"results: {file}")
            path = self.out / f"{stem(found[0].system, found[0].dataset, part)}.png"
            figures.save(figures.by_domain(found), path)
            note(f"figure: {path}")
            values[part] = {domains.label(one): domains.rows_of(one) for one in found}
            if not as_json:
                console(width=tables.WIDTH).print(tables.domains_table(found))
        if as_json:
            print_json({"columns": domains.COLUMNS, "splits": values}, indent=2)

    def _systems(self, benchmark: Benchmark) -> Iterator[tuple[str, OpenSystem]]:
        from boolattn.encoders.models import load_model
        from boolattn.search.index_ranker import WAYS, IndexRanker
        from boolattn.search.systems import RUNS, OpenSystem, open_system

        if self.model == "bm25" or self.model.endswith(RUNS):
            yield "", open_system(self.model, benchmark)
            return
        retriever = load_model(self.model, device=self.device)
        ranker = IndexRanker(retriever, benchmark.documents)
        label = self.name or Path(self.model).name
        for way in self.ways if retriever.has_parser else self.ways[:1]:
            how = WAYS[way]

            def rank(judged: Judgements, depth: int, how: Mapping[str, bool] = how) -> Ranking:
                return ranker.rank(judged.texts, depth, **how)

            yield way, OpenSystem(label, "", how.get("compose", True), rank)
