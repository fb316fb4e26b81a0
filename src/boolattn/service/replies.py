"""From search results to replies of the API."""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

from boolattn.logic.tree import And, Atom, Not, Or, operators_of
from boolattn.search.verdicts import RANKED_LOWER, explain_lower_rank
from boolattn.service.schemas import HitReply, Judged, OperandReply, OtherRank, TreeNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.logic.tree import QueryTree
    from boolattn.search import Hit, SearchResult
    from boolattn.service.judgements import JudgedQuery


def parse_fields(result: SearchResult) -> dict[str, Any]:
    """Return the fields of a ParseReply."""
    spans = [*result.spans, *[()] * (len(result.operands) - len(result.spans))]
    return {
        "query": result.query,
        "tree": result.tree_text,
        "nodes": _node(result.tree, count()),
        "operands": [
            OperandReply(text=text, spans=list(own), is_excluded=is_negated)
            for text, own, is_negated in zip(result.operands, spans, result.is_negated, strict=True)
        ],
        "operators": [operator.value for operator in operators_of(result.tree)],
        "confidence": _number(result.confidence),
        "is_composed": result.is_composed,
        "reading": result.parsed_text,
        "warnings": list(result.warnings),
    }


def _node(tree: QueryTree, numbers: Iterator[int]) -> TreeNode:
    """Convert a tree; operands are numbered left to right."""
    match tree:
        case Atom():
            return TreeNode(op="operand", operand=next(numbers))
        case Not(part):
            return TreeNode(op="not", parts=[_node(part, numbers)])
        case And(parts):
            return TreeNode(op="and", parts=[_node(part, numbers) for part in parts])
        case Or(parts):
            return TreeNode(op="or", parts=[_node(part, numbers) for part in parts])


def hit_replies(
    found: Sequence[Hit],
    k: int,
    snippet: int,
    judged: JudgedQuery | None,
    other: SearchResult | None = None,
) -> list[HitReply]:
    """Convert the first ``k`` results; ``other`` is the other system's result."""
    ranks = _other_ranks(other, k) if other else {}
    absent = None
    if other:
        verdict = RANKED_LOWER if other.is_composed else ""
        absent = OtherRank(rank=None, looked=len(other.hits), verdict=verdict)
    return [
        HitReply(
            rank=rank,
            id=hit.id,
            title=hit.title,
            text=hit.text[:snippet],
            is_cut=len(hit.text) > snippet,
            metadata=dict(hit.metadata),
            score=_number(hit.score),
            probabilities=_rounded(hit.probabilities),
            verdict=hit.verdict,
            why=hit.why,
            branches=dict(hit.branches),
            judgement=judged.judge(hit.id) if judged else None,
            other=ranks.get(hit.id, absent),
        )
        for rank, hit in enumerate(found[:k], start=1)
    ]


def _other_ranks(other: SearchResult, k: int) -> dict[str, OtherRank]:
    """Return the rank of every document that a system returned, and why it is not higher."""
    tree = other.tree if other.is_composed else None
    shown = [hit.all_probabilities for hit in other.hits[:k]]
    ranks = {}
    for rank, hit in enumerate((*other.hits, *other.ranked_lower), start=1):
        verdict, why = hit.verdict if tree else "", hit.why
        if tree is not None and rank > k:
            verdict, why = RANKED_LOWER, explain_lower_rank(tree, hit.all_probabilities, shown)
        ranks[hit.id] = OtherRank(
            rank=rank if rank <= len(other.hits) else None,
            looked=len(other.hits),
            probabilities=_rounded(hit.probabilities),
            verdict=verdict,
            why=why,
        )
    return ranks


def count_judged(hits: Sequence[HitReply], judged: JudgedQuery | None) -> Judged | None:
    """Count the judgements of some results."""
    if judged is None:
        return None
    found = [hit.judgement for hit in hits]
    return Judged(
        answers=len(judged.gold),
        excluded=len(judged.excluded),
        answers_found=found.count("answers"),
        excluded_found=found.count("excluded"),
    )


def _rounded(probabilities: Sequence[float]) -> list[float]:
    return [round(float(value), 4) for value in probabilities]


def _number(value: float) -> float | None:
    """Round a number; JSON has no infinity."""
    return round(float(value), 6) if math.isfinite(value) else None
