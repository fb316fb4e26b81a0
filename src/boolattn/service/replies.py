"""From what a searcher returns to what a caller gets.

May import: boolattn.service.schemas, boolattn.service.judgements, boolattn.search,
boolattn.logic.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

from boolattn.logic.tree import And, Atom, Not, Or, operators_of
from boolattn.search.verdicts import RANKED_LOWER, explain_lower_rank
from boolattn.service.schemas import Elsewhere, HitReply, Judged, OperandReply, TreeNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.logic.tree import QueryTree
    from boolattn.search import Hit, SearchResult
    from boolattn.service.judgements import Known


def reading(result: SearchResult) -> dict[str, Any]:
    """Say how a query was read: the fields of a ReadingReply."""
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


def _node(tree: QueryTree, places: Iterator[int]) -> TreeNode:
    """Write a tree for programs; operands are numbered left to right."""
    match tree:
        case Atom():
            return TreeNode(op="operand", operand=next(places))
        case Not(part):
            return TreeNode(op="not", parts=[_node(part, places)])
        case And(parts):
            return TreeNode(op="and", parts=[_node(part, places) for part in parts])
        case Or(parts):
            return TreeNode(op="or", parts=[_node(part, places) for part in parts])


def hits(
    found: Sequence[Hit],
    k: int,
    snippet: int,
    *,
    known: Known | None,
    other: SearchResult | None = None,
) -> list[HitReply]:
    """Write the first results.

    Args:
        found: By one system, best first.
        k: How many.
        snippet: Characters of a text that are shown.
        known: What is known of the query.
        other: The other system's result, looked through for the same documents.
    """
    elsewhere = _places(other, k) if other else {}
    unknown = (
        Elsewhere(rank=None, looked=len(other.hits), verdict=_absent(other)) if other else None
    )
    return [
        _hit(
            hit,
            rank,
            snippet,
            judgement=known.of(hit.id) if known else None,
            other=elsewhere.get(hit.id, unknown),
        )
        for rank, hit in enumerate(found[:k], start=1)
    ]


def _hit(hit: Hit, rank: int, snippet: int, **further: Any) -> HitReply:
    return HitReply(
        rank=rank,
        id=hit.id,
        title=hit.title,
        text=hit.text[:snippet],
        is_cut=len(hit.text) > snippet,
        metadata=dict(hit.metadata),
        score=_number(hit.score),
        probabilities=[round(float(value), 4) for value in hit.probabilities],
        verdict=hit.verdict,
        why=hit.why,
        branches=dict(hit.branches),
        **further,
    )


def _places(other: SearchResult, k: int) -> dict[str, Elsewhere]:
    """Say of every document that a system looked at where it has it, and why not higher."""
    tree = other.tree if other.is_composed else None
    shown = [hit.all_probabilities for hit in other.hits[:k]]
    found = {}
    for place, hit in enumerate((*other.hits, *other.ranked_lower), start=1):
        verdict, why = hit.verdict if tree else "", hit.why
        if tree is not None and place > k:
            verdict, why = RANKED_LOWER, explain_lower_rank(tree, hit.all_probabilities, shown)
        found[hit.id] = Elsewhere(
            rank=place if place <= len(other.hits) else None,
            looked=len(other.hits),
            probabilities=[round(float(value), 4) for value in hit.probabilities],
            verdict=verdict,
            why=why,
        )
    return found


def _absent(other: SearchResult) -> str:
    return RANKED_LOWER if other.is_composed else ""


def judged(shown: Sequence[HitReply], known: Known | None) -> Judged | None:
    """Count what is known of the results shown."""
    if known is None:
        return None
    found = [hit.judgement for hit in shown]
    return Judged(
        answers=len(known.gold),
        excluded=len(known.excluded),
        answers_found=found.count("answers"),
        excluded_found=found.count("excluded"),
    )


def _number(value: float) -> float | None:
    """JSON has no infinity; what cannot be at all has no score."""
    return round(float(value), 6) if math.isfinite(value) else None
