"""From search results, and what BoolAttn does at each word, to replies of the API."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from boolattn.query.tree import And, Atom, Like, Not, Or, Where, operators_of, signed_atoms
from boolattn.service.schemas import HitReply, OperandReply, TreeNode, WordReply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def hit_replies(result: SearchResult, hits: Sequence[Hit], snippet: int) -> list[HitReply]:
    """Convert results, whose texts are cut to so many characters."""
    replies = []
    for rank, hit in enumerate(hits, start=1 + result.offset):
        start, end = hit.passage or (0, len(hit.text))
        end = min(end, start + snippet)
        marked = [(a - start, b - start) for a, b in result.highlights(hit) if b <= end]
        replies.append(
            HitReply(
                **vars(hit) | {"text": hit.text[start:end]},
                rank=rank,
                is_cut=end - start < len(hit.text),
                highlights=marked,
            )
        )
    return replies


def explain_words(
    encoder: Any,  # noqa: ANN401 - any encoder
    text: str,
) -> tuple[dict[str, bool], list[WordReply]]:
    """Return the open gates, and the words of a text or their parts.

    Both are empty for a model without BoolAttn, and for one that runs in onnxruntime.
    """
    if not hasattr(encoder, "explain") or (explanation := encoder.explain(text)) is None:
        return {}, []
    rows = explanation.rows()
    encoding = encoder.towers.tokenizer(
        text, return_offsets_mapping=True, truncation=True, max_length=len(rows)
    )
    return explanation.gate, [
        WordReply(text=text[start:end], start=start, end=end, **row)
        for (start, end), row in zip(encoding["offset_mapping"], rows, strict=True)
        if start < end
    ]
