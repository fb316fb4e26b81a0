"""Ranking and measuring the queries of benchmarks: their results and runs, as files."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import boolattn
from boolattn.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.ranking import Ranking
    from boolattn.evaluation.results import Results
    from boolattn.search.systems import OpenSystem

    #: Opens the systems that rank a benchmark, each with its way of ranking.
    Opener = Callable[[Benchmark], Iterable[tuple[str, OpenSystem]]]


def measure_all(
    benchmarks: Mapping[str, Benchmark],
    open_systems: Opener,
    metrics: Callable[[str], Sequence[str]],
    out: Path,
) -> dict[str, list[Results]]:
    """Rank and measure all queries; return by split the results of each system, and write them.

    ``benchmarks`` are by domain; their results are joined. ``metrics`` returns those of a split.
    """
    from boolattn.evaluation.results import joined

    measured: dict[str, dict[str, list[Results]]] = {}
    for domain, benchmark in benchmarks.items():
        if domain:
            note(f"{domain}: {len(benchmark.documents):,} documents")
        folder = out / "runs" / domain if domain else out
        for way, system in open_systems(benchmark):
            for split in benchmark.splits:
                results = _measure(system, benchmark, split, metrics(split), way, folder)
                measured.setdefault(split, {}).setdefault(results.label, []).append(results)
    joined_results = {split: [*map(joined, s.values())] for split, s in measured.items()}
    for results in (r for systems in joined_results.values() for r in systems):
        path = out / f"{_file_stem(results)}.json"
        results.save(path)
        note(f"results: {path}")
    return joined_results


def _measure(
    system: OpenSystem,
    benchmark: Benchmark,
    split: str,
    metrics: Sequence[str],
    way: str,
    out: Path,
) -> Results:
    """Rank and measure the queries of one split, and write the run."""
    from boolattn.evaluation.metrics import measure, needed_depth
    from boolattn.evaluation.ranking import write_run
    from boolattn.evaluation.results import results_of

    judgements = benchmark.splits[split]
    depth = needed_depth(judgements, metrics)
    start = time.perf_counter()
    ranking = system.rank(judgements, depth)
    seconds = round(time.perf_counter() - start, 2)
    _note_missing(ranking, split, depth)
    details = {"version": boolattn.__version__, "depth": depth, "seconds_to_rank": seconds}
    results = results_of(
        judgements,
        measure(ranking, judgements, metrics),
        system=system.name,
        dataset=benchmark.name,
        split=split,
        gate=system.gate,
        details={**details, "way": way},
    )
    run = out / f"{_file_stem(results)}.run.gz"
    write_run(run, ranking, judgements.ids, benchmark.ids, system=results.system)
    return results


def _note_missing(ranking: Ranking, split: str, depth: int) -> None:
    """Print what a ranking lacks, because a mean does not show it."""
    lengths = (ranking.rows >= 0).sum(axis=1)
    if n_empty := int((lengths == 0).sum()):
        note(f"note: {n_empty:,} of {len(lengths):,} queries of {split} have no results")
    if (longest := int(lengths.max())) < depth:
        limit = f"no query of {split} has more than {longest:,} results"
        note(f"note: {limit}, and metrics use up to {depth:,}; the rest counts as not found")


def _file_stem(results: Results) -> str:
    """Return the name of a result's files, without an ending."""
    words = (results.label, results.gate, results.dataset, results.split)
    return re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-")
