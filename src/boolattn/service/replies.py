"""From search results, and what BoolAttn does at each word, to replies of the API."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from boolattn.errors import ConfigError
from boolattn.query.tree import And, Atom, Like, Not, Or, Where, operators_of, signed_atoms
from boolattn.search.result import RANKED_LOWER
from boolattn.search.verdicts import explain_lower_rank
from boolattn.service.schemas import HitReply, OperandReply, OtherRank, TreeNode, WordReply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from boolattn.encoders.base import Encoder
    from boolattn.plugin.explain import Explanation
    from boolattn.query.tree import QueryTree
    from boolattn.search import Hit, SearchResult


_KINDS: dict[type[Atom], Literal["document", "condition"]] = {
    Like: "document",
    Where: "condition",
}


#: Attributes of a result that a ParseReply has too.
_SAME = ("query", "confidence", "is_composed", "why_one_vector", "warnings", "notes")


def parse_fields(result: SearchResult) -> dict[str, Any]:
    """Return the fields of a ParseReply."""
    spans = [*result.spans, *[()] * (len(result.operands) - len(result.spans))]
    return {
        "tree": result.tree_text,
        "nodes": _node(result.tree, count()),
        "operands": [
            OperandReply(
                text=atom.name,
                kind=_KINDS.get(type(atom), "words"),
                weight=atom.weight,
                spans=list(operand_spans),
                is_negated=sign < 0,
            )
            for (atom, sign), operand_spans in zip(signed_atoms(result.tree), spans, strict=True)
        ],
        "operators": [operator.value for operator in operators_of(result.tree)],
        "parsed": result.parsed_text,
        **{name: getattr(result, name) for name in _SAME},
    }


def _node(tree: QueryTree, numbers: Iterator[int]) -> TreeNode:
    """Convert a tree; operands are numbered left to right."""
    match tree:
        case Atom():
            return TreeNode(op="operand", operand=next(numbers))
        case Not(part):
            return TreeNode(op="not", parts=[_node(part, numbers)])
        case And(parts) | Or(parts):
            nodes = [_node(part, numbers) for part in parts]
            return TreeNode(op="and" if isinstance(tree, And) else "or", parts=nodes)


def hit_replies(
    result: SearchResult,
    hits: Sequence[Hit],
    ranks: range,
    snippet: int,
    other: SearchResult | None = None,
) -> list[HitReply]:
    """Convert results that have these ranks; ``other`` is the other system's result."""
    others, absent = {}, None
    # One vector has no negated operands, whose words are not marked.
    parsed = other if other and other.is_composed else None
    if other:
        others = _other_ranks(other, ranks.stop - 1)
        verdict = RANKED_LOWER if other.is_composed else ""
        absent = OtherRank(rank=None, looked=len(other.hits), verdict=verdict)
    replies = []
    for rank, hit in zip(ranks, hits, strict=False):
        start = hit.passage[0] if hit.passage else 0
        end = min(hit.passage[1] if hit.passage else len(hit.text), start + snippet)
        spans = (parsed or result).highlights(hit)
        marked = [(a - start, b - start) for a, b in spans if b <= end]
        replies.append(
            HitReply(
                **vars(hit) | {"text": hit.text[start:end]},
                rank=rank,
                is_cut=end - start < len(hit.text),
                highlights=marked,
                other=others.get(hit.id, absent),
            )
        )
    return replies


def _other_ranks(other: SearchResult, k: int) -> dict[str, OtherRank]:
    """Return the rank of every document that a system returned, and why it is not higher."""
    shown = other.hits[:k]
    ranks = {}
    for rank, hit in enumerate((*other.hits, *other.ranked_lower), start=1):
        verdict, why = hit.verdict if other.is_composed else "", hit.why
        if other.is_composed and rank > k:
            verdict, why = RANKED_LOWER, explain_lower_rank(other.operands, hit, shown)
        ranks[hit.id] = OtherRank(
            rank=rank if rank <= len(other.hits) else None,
            looked=len(other.hits),
            ranks=list(hit.ranks),
            verdict=verdict,
            why=why,
        )
    return ranks


def explain_words(encoder: Encoder, text: str) -> tuple[dict[str, bool], list[WordReply]]:
    """Return the open gates and the words of a text.

    Both are empty for a model without BoolAttn, and for one that runs in onnxruntime.
    """
    if (towers := getattr(encoder, "towers", None)) is None:
        return {}, []
    from boolattn.encoder.bool_bert import BoolBertModel
    from boolattn.encoder.towers import query_encoder
    from boolattn.plugin.explain import explain

    try:
        tower = query_encoder(towers)
    except ConfigError:
        return {}, []  # a model with one tower
    if not isinstance(tower, BoolBertModel):
        return {}, []
    tokenizer: Any = towers.tokenizer
    explanation = explain(tower, tokenizer, text)
    n_tokens = len(explanation.tokens)
    encoding = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=n_tokens)
    groups: dict[int, list[int]] = {}
    for token, word in enumerate(encoding.word_ids()):
        if word is not None:
            groups.setdefault(word, []).append(token)
    offsets = encoding["offset_mapping"]
    words = [_word(explanation, tokens, offsets) for tokens in groups.values()]
    return explanation.gate, words


def _word(explanation: Explanation, tokens: list[int], offsets: list[tuple[int, int]]) -> WordReply:
    """Join the tokens of a word: the largest of each value, and the sum of attention change."""
    start, end = offsets[tokens[0]][0], offsets[tokens[-1]][1]

    def largest(values: NDArray[np.float32]) -> dict[str, float]:
        best = (max(map(float, row), key=abs) for row in values[:, tokens])
        return {
            name: round(value, 4) for name, value in zip(explanation.operators, best, strict=True)
        }

    return WordReply(
        text=explanation.text[start:end],
        start=start,
        end=end,
        cue=largest(explanation.cue),
        scope=largest(explanation.scope.mean(0)),
        bias=largest(explanation.bias.mean(0)),
        attention_change=round(float(explanation.attention_change[:, tokens].mean(0).sum()), 5),
    )
