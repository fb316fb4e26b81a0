"""The demo's evaluation: three systems on the same queries and documents, by exact search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from rich.table import Table

    from boolattn.evaluation.judgements import Judgements
    from boolattn.evaluation.ranking import Ranking
    from boolattn.query.plan import Plan
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
    judgements: Judgements, plain: Searcher, boolean: Searcher, names: Sequence[str]
) -> Evaluation:
    """Measure the plain encoder, the model with one vector, and the model with composition.

    Args:
        judgements: The queries; rows are those of the indexes.
        plain: The plain encoder's index.
        boolean: The Boolean model's index; without a query parser it composes nothing.
        names: Names of the plain encoder and of the model.
    """
    from boolattn.evaluation.metrics import measure, needed_depth

    depth = needed_depth(judgements, METRICS)
    plain_plans, plans = (one.retriever.plan(judgements.texts) for one in (plain, boolean))
    rankings = {
        names[0]: _by_vector(plain, plain_plans, depth),
        f"{names[1]}, one vector": _by_vector(boolean, plans, depth),
        f"{names[1]}, composed": _composed(boolean, plans, depth),
    }
    systems = {name: measure(one, judgements, METRICS) for name, one in rankings.items()}
    return Evaluation(judgements, systems, sum(plan.is_composed for plan in plans))


def results_table(found: Evaluation) -> Table:
    """Return a table of means: R-precision by kind of query, then leak and order."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from boolattn.evaluation.tables import short

    kinds = [_KINDS.get(names, "") for names in found.judgements.operators]
    shown = [kind for kind in _KINDS.values() if kind in kinds]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("mean over queries with", no_wrap=True)
    for head in ("R-prec.\nall", *(f"\n{kind}" for kind in shown), "leak\nNOT", "excluded\nfirst"):
        table.add_column(head, justify="right", no_wrap=True)
    counts = [len(kinds), *(kinds.count(kind) for kind in shown)]
    one = next(iter(found.systems.values()))
    counts += [int(np.isfinite(one[name]).sum()) for name in METRICS[1:]]
    table.add_row("[dim]queries[/dim]", *(f"[dim]{n}[/dim]" for n in counts))
    for name, values in found.systems.items():
        precision = values[METRICS[0]]
        cells = [_mean(precision)]
        cells += [_mean(precision[[own == kind for own in kinds]]) for kind in shown]
        cells += [_mean(values[metric]) for metric in METRICS[1:]]
        table.add_row(name, *map(short, cells))
    return table


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _by_vector(searcher: Searcher, plans: Sequence[Plan], depth: int) -> Ranking:
    from boolattn.evaluation.ranking import Ranking
    from boolattn.scoring.exact import exact_search

    queries = np.stack([plan.plain for plan in plans])
    return Ranking(*exact_search(queries, _vectors(searcher), depth))


def _composed(searcher: Searcher, plans: Sequence[Plan], depth: int) -> Ranking:
    from boolattn.evaluation.ranking import Ranking
    from boolattn.scoring import exact as ranking

    found = ranking.rank_plans(plans, _vectors(searcher), depth)
    return Ranking(found.rows.astype(np.int32), found.scores)


def _vectors(searcher: Searcher) -> NDArray[np.float32]:
    return searcher.engine.vectors(np.arange(len(searcher)))
