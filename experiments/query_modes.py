"""Query modes of systems that compose operands, each ranking the whole corpus."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import rank_plans
from boolattn.evaluation.parsing import has_same_operands, structure
from boolattn.evaluation.ranking import Ranking
from boolattn.logic.elision import elided_tree
from boolattn.logic.parsed_query import label_template
from boolattn.logic.syntax import parse, unparse
from boolattn.logic.templates import template_tree
from boolattn.logic.tree import Atom
from boolattn.reproduction.execution import VectorRanker
from experiments.parsing.accuracy import split_names, unseen_accuracy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.composition.plan import Plan
    from boolattn.data.records import Query
    from boolattn.evaluation.judgements import Judgements
    from boolattn.logic.parsed_query import LabelledQuery
    from boolattn.logic.tree import QueryTree
    from boolattn.reproduction.execution import Values

_BATCH = 256


class ComposedRanker(VectorRanker):
    """Ranks a corpus in every query mode."""

    def rank(self, mode: str, queries: Sequence[Query], depth: int) -> tuple[Ranking, Values]:
        """Rank the corpus; parsed modes also return how well each query was parsed."""
        if mode in ("plain_text", "oracle_operators"):
            return super().rank(mode, queries, depth)
        plans = self.plans(mode, queries)
        found = rank_plans(plans, self.documents, depth)
        ranking = Ranking(found.rows.astype(np.int32), found.scores)
        values = _parse_values(plans, queries) if mode in ("parsed", "parsed_always") else {}
        return ranking, values

    def plans(self, mode: str, queries: Sequence[Query]) -> list[Plan]:
        """Plan queries in a query mode."""
        plans: list[Plan] = []
        for start in range(0, len(queries), _BATCH):
            plans += self._plan_batch(mode, queries[start : start + _BATCH])
        return plans

    def _plan_batch(self, mode: str, queries: Sequence[Query]) -> list[Plan]:
        retriever, texts = self.retriever, [query.text for query in queries]
        match mode:
            case "parsed":
                return retriever.plan(texts)
            case "parsed_always":
                always = copy(retriever)
                always.threshold = 0.0
                return always.plan(texts)
            case "one_vector":
                return [_as_one_vector(plan) for plan in retriever.plan(texts)]
            case "explicit_syntax":
                return retriever.plan_trees([explicit_tree(query) for query in queries])
            case "explicit_syntax_elided":
                return retriever.plan_trees([elided_explicit_tree(query) for query in queries])
            case "oracle_operands":
                return retriever.plan_trees([oracle_tree(query) for query in queries], texts)
        raise ValueError(f"no query mode {mode!r}")

    def details(self, judged: Mapping[str, Judgements]) -> dict[str, Any]:
        """Measure parsing on names and unseen domains."""
        if not self.retriever.has_parser:
            return {}
        plan = self.retriever.plan
        return {"names": split_names(plan), "fresh": unseen_accuracy(plan)}


def _as_one_vector(plan: Plan) -> Plan:
    """Replace a composed plan's vectors by one."""
    if not plan.is_composed:
        return plan
    return replace(plan, vectors=plan.single_vector[None], is_composed=False)


def oracle_tree(query: Query) -> QueryTree:
    """Return the tree of the operands in the query's own words; of their names where unknown."""
    labelled = _labelled(query)
    return _named_tree(query) if labelled is None else labelled.parsed.tree(query.text)


def explicit_tree(query: Query) -> QueryTree:
    """Return the parsed query of somebody who types the operands' names in explicit syntax."""
    return _typed(_named_tree(query))


def elided_explicit_tree(query: Query) -> QueryTree:
    """Return the same with elided operands: shared words of the first are not repeated."""
    names = [operand.text for operand in query.operands]
    return _typed(elided_tree(query.template, names) or _named_tree(query))


def _typed(tree: QueryTree) -> QueryTree:
    return tree if isinstance(tree, Atom) else parse(unparse(tree))


def _named_tree(query: Query) -> QueryTree:
    names = [operand.text for operand in query.operands]
    if not query.template or not names or not all(names):
        return Atom(query.text)
    return template_tree(query.template, names)


def _labelled(query: Query) -> LabelledQuery | None:
    spans = [operand.spans for operand in query.operands]
    return label_template(query.text, query.template, spans)


def _parse_values(plans: Sequence[Plan], queries: Sequence[Query]) -> Values:
    """Whether each query was composed, has the right structure, and the right operand words."""
    names = ("composed", "structure", "words")
    values: Values = {name: np.full(len(queries), np.nan) for name in names}
    for row, (plan, query) in enumerate(zip(plans, queries, strict=True)):
        values["composed"][row] = float(plan.is_composed)
        if not query.template:
            continue
        right = template_tree(query.template, ["_"] * query.template.count("_"))
        values["structure"][row] = float(structure(plan.parsed) == structure(right))
        labelled = _labelled(query)
        if labelled is not None and not labelled.parsed.is_plain:
            right = labelled.parsed.tree(query.text)
            values["words"][row] = float(has_same_operands(right, plan.parsed))
    return values
