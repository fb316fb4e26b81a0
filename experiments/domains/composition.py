r"""The composition on the domains benchmark, with given operands: no parser has a part in it.

Prints R-precision by kind of query and the leak of NOT: as one vector, composed, and composed from
candidates alone. ``--set`` tries another constant of :mod:`boolattn.scoring.fitted`::

    python -m experiments.domains.composition --data FOLDER --vectors FOLDER --model shipped \
        --domain malware
    python -m experiments.domains.composition --data FOLDER --vectors FOLDER --model shipped \
        --domain recipes --split train --queries 300 --set STRENGTH=0.5
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmark_data.domains import DOMAINS
from boolattn.data.built import domains as data
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.domains import COLUMNS, METRICS, by_domain, rows_of
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.evaluation.results import results_of
from boolattn.evaluation.tables import markdown, short
from boolattn.query.parsed_query import label_template
from boolattn.query.plan import plan_queries
from boolattn.query.reading import read_trees
from boolattn.query.structure import template_tree
from boolattn.query.tree import Atom
from boolattn.scoring import fitted
from boolattn.scoring.exact import exact_search, rank_plans, score, top_k
from experiments.domains.__main__ import DocumentVectors, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.data.records import Query
    from boolattn.query.plan import Plan
    from boolattn.query.tree import QueryTree

    Vectors = NDArray[np.float32]

_BATCH = 64


def from_candidates(plans: Sequence[Plan], documents: Vectors, depth: int, n: int) -> Ranking:
    """Rank by what the ``n`` nearest documents of each probe tell."""
    scores = np.full((len(plans), len(documents)), -np.inf, np.float32)
    for row, plan in zip(scores, plans, strict=True):
        near = np.unique(exact_search(_probes(plan), documents, n).rows)
        row[near] = score(plan, plan.vectors @ documents[near].T)
    return Ranking(*top_k(scores, depth))


def _probes(plan: Plan) -> Vectors:
    """Return the vectors whose neighbours are candidates, as the searcher does without words."""
    probes = []
    for clause, vector in zip(plan.clauses, plan.clause_vectors, strict=True):
        away = [vector - plan.vectors[list(clause.negated)].mean(0) / 2] if clause.negated else []
        probes += [vector, *away] if clause.positive else away
    return np.stack(probes)


def oracle_tree(query: Query) -> QueryTree:
    """Return the tree of the operands in the query's own words; of their names where unknown."""
    spans = [operand.spans for operand in query.operands]
    if labelled := label_template(query.text, query.template, spans):
        return labelled.parsed.tree(query.text)
    names = [operand.text for operand in query.operands]
    is_named = query.template and names and all(names)
    return template_tree(query.template, names) if is_named else Atom(query.text)


def main() -> None:
    """Measure one model on some domains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="built folder of the benchmark")
    parser.add_argument("--model", required=True, help="as in python -m experiments.domains")
    parser.add_argument("--domain", action="append", default=[], choices=[*DOMAINS])
    parser.add_argument("--split", action="append", default=[])
    parser.add_argument("--documents", type=int, default=0, help="size of a sample; 0: all")
    parser.add_argument("--queries", type=int, default=0, help="size of a sample; 0: all")
    parser.add_argument("--vectors", type=Path, required=True, help="folder that keeps vectors")
    parser.add_argument("--set", action="append", default=[], help="NAME=NUMBER")
    options = parser.parse_args()
    for change in options.set:
        name, _, value = change.partition("=")
        setattr(fitted, name, type(getattr(fitted, name))(value))
    splits = options.split or ["validation", "validation_unseen"]
    name, encoder = load(options.model, "cpu" if "=" in options.model else None)
    rows = []
    for domain, dataset in by_domain(data.load(options.data).dataset(options.domain), splits):
        sizes = {"n_documents": options.documents, "n_queries": options.queries}
        benchmark = prepare(dataset, list(dataset.splits), **sizes)
        path = options.vectors / f"{name}-{domain}-{len(benchmark.documents)}.npy"
        documents = next(DocumentVectors(path, encoder, benchmark.documents)([benchmark.texts]))
        for split, judged in benchmark.splits.items():
            depth, plans = needed_depth(judged, METRICS), []
            for start in range(0, len(judged), _BATCH):
                queries = judged.queries[start : start + _BATCH]
                trees = [oracle_tree(query) for query in queries]
                plans += plan_queries(read_trees(trees, [q.text for q in queries]), encoder)
            plain = np.stack([plan.plain for plan in plans])
            ways = {
                "one vector": Ranking(*exact_search(plain, documents, depth)),
                "composed": Ranking(*rank_plans(plans, documents, depth)),
                "from 500 candidates": from_candidates(plans, documents, depth, 500),
                "from 100 candidates": from_candidates(plans, documents, depth, 100),
            }
            for way, ranking in ways.items():
                values = measure(ranking, judged, METRICS)
                about = {"system": way, "dataset": domain, "split": split}
                found = results_of(judged, values, details={}, **about)
                rows.append([domain, split, way, *map(short, rows_of(found)[domain])])
    print(markdown(["domain", "split", "way", *(heading for heading, _, _ in COLUMNS)], rows))


if __name__ == "__main__":
    main()
