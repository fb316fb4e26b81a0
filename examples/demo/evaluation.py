"""The demo's evaluation: three systems on the same queries and documents, by exact search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from rich.table import Table

    from boolattn.evaluation.benchmark import Benchmark, Judgements
    from boolattn.search import Searcher

METRICS = ("r_precision", "leak", "excluded_before_full")
#: Kinds of queries by their operators, in the order of the table.
_KINDS = {(): "none", ("or",): "OR", ("and",): "AND", ("not",): "NOT", ("and", "not"): "AND NOT"}


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the systems.

    Attributes:
        judgements: The queries and their judged documents.
        systems: Values by system and metric, one for each query; nan where undefined.
        n_composed: Queries whose scores were composed.
    """

    judgements: Judgements
    systems: Mapping[str, Mapping[str, NDArray[np.float64]]]
    n_composed: int


def evaluate(
    benchmark: Benchmark, split: str, plain: Searcher, boolean: Searcher, names: Sequence[str]
) -> Evaluation:
    """Measure the plain encoder, the model with one vector, and the model with composition.

    Args:
        benchmark: The documents of both indexes.
        split: Its queries.
        plain: The plain encoder's index.
        boolean: The Boolean model's index.
        names: Names of the plain encoder and of the model.
    """
    from boolattn.evaluation.metrics import measure, needed_depth
    from boolattn.query.reading import QueryReader
    from boolattn.query.tree import Atom
    from boolattn.search.systems import WAYS, SearchRanker

    judgements = benchmark.splits[split]
    depth = needed_depth(judgements, METRICS)
    ways = {
        names[0]: (plain, "one vector"),
        f"{names[1]}, one vector": (boolean, "one vector"),
        f"{names[1]}, composed": (boolean, "composed"),
    }
    systems = {}
    for name, (searcher, way) in ways.items():
        ranker = SearchRanker(searcher, benchmark.rows)
        ranking = ranker.rank(judgements.texts, depth, **WAYS[way])
        systems[name] = measure(ranking, judgements, METRICS)
    reader = QueryReader(boolean.parser, mode="plain")
    readings = [*map(reader.read, judgements.texts)]
    n_composed = sum(not isinstance(reading.tree, Atom) for reading in readings)
    return Evaluation(judgements, systems, n_composed)


def results_table(evaluation: Evaluation) -> Table:
    """Return a table of means: R-precision by kind of query, then leak and order."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from boolattn.evaluation.tables import short

    kinds = [_KINDS.get(names, "") for names in evaluation.judgements.operators]
    shown = [kind for kind in _KINDS.values() if kind in kinds]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("mean over queries with", no_wrap=True)
    for head in ("R-prec.\nall", *(f"\n{kind}" for kind in shown), "leak\nNOT", "excluded\nfirst"):
        table.add_column(head, justify="right", no_wrap=True)
    counts = [len(kinds), *(kinds.count(kind) for kind in shown)]
    first = next(iter(evaluation.systems.values()))
    counts += [int(np.isfinite(first[name]).sum()) for name in METRICS[1:]]
    table.add_row("[dim]queries[/dim]", *(f"[dim]{n}[/dim]" for n in counts))
    for name, values in evaluation.systems.items():
        precision = values[METRICS[0]]
        cells = [_mean(precision)]
        cells += [_mean(precision[[name == kind for name in kinds]]) for kind in shown]
        cells += [_mean(values[metric]) for metric in METRICS[1:]]
        table.add_row(name, *map(short, cells))
    return table


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
