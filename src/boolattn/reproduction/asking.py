"""Asking one model in several ways, each ranking the whole corpus.

May import: boolattn.composition, boolattn.evaluation, boolattn.training, boolattn.data,
boolattn.logic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from boolattn.composition.exact import exact_search, rank_plans
from boolattn.evaluation.parse_accuracy import has_same_operands, structure
from boolattn.evaluation.ranking import Ranking
from boolattn.logic.elision import elided_tree
from boolattn.logic.operators import OPERATORS
from boolattn.logic.parsed_query import label_template
from boolattn.logic.syntax import parse, unparse
from boolattn.logic.templates import template_tree
from boolattn.logic.tree import Atom
from boolattn.training.batches import Tokens, label_columns
from boolattn.training.validation import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from boolattn.composition.plan import Plan
    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.tree import QueryTree
    from boolattn.training.corpus import Corpus
    from boolattn.training.settings import Preset

    Values = dict[str, np.ndarray[Any, np.dtype[np.float64]]]

#: Documents of like length encoded at once: enough to fill a GPU, by kind of machine.
_DOCUMENTS = {"cuda": 1024, "cpu": 64}
_QUERIES = 256


@dataclass(frozen=True)
class Answer:
    """A ranking, and what is known of each query beside it (how it was read)."""

    ranking: Ranking
    values: Values


class Asker:
    """One model over one corpus, whose documents it encodes once.

    Args:
        retriever: The model.
        corpus: Tokenised.
        preset: What it was trained with.
        prefix: Put before every query.
    """

    def __init__(
        self, retriever: Retriever, corpus: Corpus, preset: Preset, prefix: str = ""
    ) -> None:
        self.retriever = retriever
        self.corpus = corpus
        self.preset = preset
        self.prefix = prefix
        towers = retriever.towers.eval()
        with torch.inference_mode():
            size = _DOCUMENTS.get(towers.device.type, _DOCUMENTS["cpu"])
            everything = range(len(corpus.documents))
            self.documents = encode(towers, corpus.documents, everything, "document", size)

    def ask(self, how: str, queries: Sequence[Query], depth: int) -> Answer:
        """Rank the corpus for queries.

        Args:
            how: One of :data:`boolattn.reproduction.systems.ASKS`.
            queries: What is asked.
            depth: How many documents are returned.
        """
        if how in ("own", "label"):
            vectors = self._vectors(queries, is_told=how == "label")
            return Answer(Ranking(*exact_search(vectors, self.documents, depth)), {})
        plans = self._plans(how, queries)
        calibration = self.retriever.calibration_arrays
        found = rank_plans(plans, self.documents, depth, calibration)
        ranking = Ranking(found.rows.astype(np.int32), found.scores)
        values = _reading_values(plans, queries) if how in ("read", "always") else {}
        return Answer(ranking, values)

    def _vectors(self, queries: Sequence[Query], *, is_told: bool) -> Tensor:
        labels = None
        if is_told:
            told = [[int(op in query.operators) for op in OPERATORS] for query in queries]
            labels = torch.tensor(told)[:, label_columns(self.preset.plugin.operators)]
        texts = [self.prefix + query.text for query in queries]
        tokens = Tokens(self.corpus.tokenizer, texts, self.preset.model.query_length)
        with torch.inference_mode():
            rows = range(len(texts))
            return encode(self.retriever.towers, tokens, rows, "query", _QUERIES, labels)

    def _plans(self, how: str, queries: Sequence[Query]) -> list[Plan]:
        plans: list[Plan] = []
        for start in range(0, len(queries), _QUERIES):
            plans += self._few_plans(how, queries[start : start + _QUERIES])
        return plans

    def _few_plans(self, how: str, queries: Sequence[Query]) -> list[Plan]:
        texts = [query.text for query in queries]
        if how == "read":
            return self.retriever.plan(texts)
        if how == "typed":
            return [_as_typed(plan) for plan in self.retriever.plan(texts)]
        if how == "single":
            return [_as_one(plan) for plan in self.retriever.plan(texts)]
        if how == "always":
            return replace(self.retriever, threshold=0.0).plan(texts)
        if how == "explicit":
            return self.retriever.plan_trees([explicit_tree(query) for query in queries])
        if how == "bare":
            return self.retriever.plan_trees([bare_explicit_tree(query) for query in queries])
        return self.retriever.plan_trees([given_tree(query) for query in queries], texts)


def _as_typed(plan: Plan) -> Plan:
    """Compare a composed plan by the vector of its text, exclusions and all."""
    if not plan.is_composed:
        return plan
    return replace(plan, vectors=np.concatenate([plan.operand_vectors, plan.plain[None]]))


def _as_one(plan: Plan) -> Plan:
    """Make one vector of a composed plan's, as an engine takes it that takes no more."""
    if not plan.is_composed:
        return plan
    return replace(plan, vectors=plan.single_vector[None], is_composed=False)


def given_tree(query: Query) -> QueryTree:
    """Return the tree of a query's own words; of its operands' names where no words are known."""
    marked = label_template(
        query.text, query.template, [operand.spans for operand in query.operands]
    )
    return _named_tree(query) if marked is None else marked.parsed.tree(query.text)


def explicit_tree(query: Query) -> QueryTree:
    """Return what the explicit syntax reads where somebody types the operands' names."""
    return _typed(_named_tree(query))


def bare_explicit_tree(query: Query) -> QueryTree:
    """Return the same where what the first operand says is not typed again."""
    return _typed(elided_tree(query) or _named_tree(query))


def _typed(tree: QueryTree) -> QueryTree:
    return tree if isinstance(tree, Atom) else parse(unparse(tree))


def _named_tree(query: Query) -> QueryTree:
    names = [operand.text for operand in query.operands]
    if not query.template or not names or not all(names):
        return Atom(query.text)
    return template_tree(query.template, names)


def _reading_values(plans: Sequence[Plan], queries: Sequence[Query]) -> Values:
    """Say of each query whether it was composed, and read right: its structure, and every word."""
    values: Values = {
        name: np.full(len(queries), np.nan) for name in ("composed", "structure", "words")
    }
    for place, (plan, query) in enumerate(zip(plans, queries, strict=True)):
        values["composed"][place] = float(plan.is_composed)
        if not query.template:
            continue
        wanted = template_tree(query.template, ["_"] * query.template.count("_"))
        values["structure"][place] = float(structure(plan.parsed) == structure(wanted))
        marked = label_template(
            query.text, query.template, [operand.spans for operand in query.operands]
        )
        if marked is not None and not marked.parsed.is_plain:
            right = marked.parsed.tree(query.text)
            values["words"][place] = float(has_same_operands(right, plan.parsed))
    return values
