"""Ranking and measuring one split: its results, and its run as a file."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import boolattn
from boolattn.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.ranking import Ranking
    from boolattn.evaluation.results import Results
    from boolattn.search.ranker import OpenSystem


def file_stem(results: Results) -> str:
    """Return the name of a result's files, without an ending."""
    composed = "composed" if results.details["is_composed"] else ""
    return stem(results.system, composed, results.gate, results.dataset, results.split)


def measure_split(
    system: OpenSystem,
    benchmark: Benchmark,
    split: str,
    metrics: Sequence[str],
    name: str,
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
    seconds = time.perf_counter() - start
    _note_missing(ranking, split, depth)
    results = results_of(
        judgements,
        measure(ranking, judgements, metrics),
        system=name or system.name,
        dataset=benchmark.name,
        split=split,
        gate=system.gate,
        details={
            "version": boolattn.__version__,
            "is_composed": system.is_composed,
            "depth": depth,
            "seconds_to_rank": round(seconds, 2),
        },
    )
    run = out / f"{file_stem(results)}.run.gz"
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


def stem(*words: str) -> str:
    """Join words into the name of a file."""
    return re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-")
