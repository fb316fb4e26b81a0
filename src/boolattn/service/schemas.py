"""Requests and replies of the JSON API, of which the OpenAPI description is made; their making.

No postponed annotations here: pydantic reads them when a class is made.
"""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from boolattn.query.tree import Atom, Like, Not, QueryTree, Where, operators_of, signed_atoms
from boolattn.search.overview import Facet
from boolattn.search.result import Hit, LeftOut, SearchResult

Mode = Literal["auto", "plain", "explicit"]
Value = str | int | float | bool
Filters = dict[str, Value | list[Value] | dict[str, Value | list[Value]]]

QUERY = "moths of Borneo but not Sumatra"
_KINDS: dict[type[Atom], Literal["document", "condition"]] = {Like: "document", Where: "condition"}


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


def _check_finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    json.dumps(value, allow_nan=False)
    return value


#: Infinity, which JSON does not have, becomes null.
Number = Annotated[float | None, BeforeValidator(_rounded)]


class _SearchOptions(BaseModel):
    """What a search takes in a body and in an address."""

    k: int = Field(default=10, description="Number of results.", ge=1)
    offset: int = Field(default=0, description="Results to pass over.", ge=0, le=10_000)
    mode: Mode = Field(default="auto", description="auto: explicit if it has such operators.")
    hybrid: bool | None = Field(default=None, description="Add words; null: where that is best.")
    positive: list[str] = Field(default=[], description="Operands to add: words^2 or like:ID.")
    negative: list[str] = Field(default=[], description="Operands to exclude, likewise.")
    compose: bool = Field(default=True, description="Score operands apart; false: one vector.")
    strict_not: bool | None = Field(default=None, description="Leave out negated words; null: yes.")
    kinds: bool = Field(default=True, description="Leave out things of a negated kind, too.")
    allow: list[str] = Field(default=[], description="Words that are of no negated kind.")
    explain: bool = Field(default=False, description="Return what is ranked lower, too.")
    facets: bool = Field(default=False, description="Count values among the best documents.")
    min_score: float | None = Field(default=None, description="Least score of a result.")


class SearchParameters(_SearchOptions):
    """A search in an address."""

    model_config = ConfigDict(extra="forbid")

    q: str = Field(default="", description="The query.", examples=[QUERY])
    filter: list[str] = Field(
        default=[], description="For example year>=1990, on<2024-03, tags~veg; may be repeated."
    )


class SearchRequest(_SearchOptions):
    """One search. Unknown fields and values of another type are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        ser_json_inf_nan="constants",
        json_schema_extra={
            "examples": [
                {"query": QUERY, "k": 5},
                {"query": "moths AND Borneo NOT Sumatra", "mode": "explicit"},
                {"query": "hawk moths", "filters": {"family": "Sphingidae"}},
                {"query": "moths", "positive": ["like:17"], "negative": ["Sumatra"]},
                {"query": "everything NOT insects", "allow": ["moth", "moths"]},
            ]
        },
    )

    query: str = Field(default="", description="May be left out with positive operands.")
    filters: Filters | None = Field(
        default=None,
        description="Conditions on metadata: a value, a list of values, or an object with in, "
        "not, contains, exists, gt, gte, lt or lte. All of them must hold.",
        examples=[{"family": ["Sphingidae", "Noctuidae"], "year": {"gte": 1990}}],
    )


class OperandReply(BaseModel):
    """One operand of the query."""

    text: str = Field(examples=["moths of Borneo"])
    kind: Literal["words", "document", "condition"] = "words"
    weight: float = 1.0
    spans: list[tuple[int, int]] = Field(description="Half-open character spans in the query.")
    is_negated: bool = Field(description="Whether the operand is negated.")


class ParseReply(BaseModel):
    """The parsed query."""

    query: str = Field(examples=[QUERY])
    tree: str = Field(description="In explicit syntax.")
    nodes: dict[str, Any] = Field(
        description="The same tree: op (and, or, not, operand) with parts, or an operand's number."
    )
    operands: list[OperandReply]
    operators: list[str] = Field(examples=[["not"]])
    confidence: Number = Field(description="Confidence of the parser, 0 to 1.")
    is_composed: bool = Field(description="Whether operands were scored apart.")
    why_one_vector: str = Field(description="Empty if composed.")
    parsed: str = Field(description="The parsed tree, even if its confidence is too low.")
    warnings: list[str] = Field(default=[], description="What people may not expect.")
    notes: list[str] = Field(default=[], description="Corrected words, numbers as conditions.")


class DocumentReply(BaseModel):
    """One document."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class DocumentRequest(BaseModel):
    """A document to add."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(min_length=1, examples=["17"])
    text: str = Field(examples=["A moth found in Java."])
    title: str = ""
    metadata: Annotated[dict[str, Any], AfterValidator(_check_finite)] = Field(
        default={}, description="Text, numbers, true or false, dates, lists and objects of these."
    )


class DocumentsRequest(BaseModel):
    """Documents to add, all or none."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"documents": [{"id": "18", "text": "A hawk moth found in Java."}]}]
        },
    )

    documents: list[DocumentRequest] = Field(min_length=1)
    update: bool = Field(default=False, description="Replace documents that have the same ids.")


class HitReply(DocumentReply):
    """One result."""

    rank: int
    text: str = Field(description="The beginning, or the best passage of a long text.")
    passage: tuple[int, int] | None = Field(default=None, description="Its span; null: all.")
    highlights: list[tuple[int, int]] = Field(default=[], description="Words of the query in it.")
    is_cut: bool
    score: Number = Field(description="Higher is better; a similarity if not composed.")
    ranks: list[int] = Field(description="For each operand alone; 101: lower than 100.")
    exceeds: list[Number] = Field(description="Share of the best that match a negated one less.")
    fits: bool = Field(description="Whether it fits the positive part of the query.")
    verdict: str = Field(description="kept, doubtful or ranked lower.", examples=["kept"])
    why: str = Field(description="What counts against it.")


class SearchReply(ParseReply):
    """The results of a search."""

    k: int
    offset: int
    next_offset: int | None = Field(description="Offset of the next page; null: there is none.")
    total: int = Field(description="Documents that pass the filters.")
    label: str
    hits: list[HitReply]
    n_compared: int = Field(default=0, description="Documents that ranks are among.")
    hybrid: bool = Field(description="Whether lexical search was added.")
    strict_not: bool = Field(description="Whether a negated operand's words removed documents.")
    facets: tuple[Facet, ...] = Field(default=(), description="With facets; of the result.")
    left_out: tuple[LeftOut, ...] = Field(default=(), description="The best that were removed.")
    ranked_lower: list[HitReply] = Field(default=[], description="Ranked lower; with explain.")
    took: dict[str, float] = Field(description="Milliseconds by step.")


class ExplainReply(ParseReply):
    """The parsed query, and what the encoder's attention does at its words."""

    gate: dict[str, bool] = Field(description="Open gates; empty without BoolAttn and PyTorch.")
    words: list[dict[str, Any]] = Field(
        description="Text, start and end of each word or part of one; its cue, scope and bias by "
        "operator, and the change of its attention, as means over layers."
    )


class ErrorBody(BaseModel):
    """An error."""

    code: str = Field(examples=["query_syntax"])
    message: str = Field(examples=["column 7: this parenthesis is never closed"])
    column: int | None = Field(default=None, description="Of the query, from 1.")
    id: str | None = Field(default=None, description="Of its entry in the log.")


class ErrorReply(BaseModel):
    """The form of every error."""

    error: ErrorBody


def parse_fields(result: SearchResult, reply: type[ParseReply]) -> dict[str, Any]:
    """Return what a reply has of a result as it is, and the parsed query."""
    spans = [*result.spans, *[()] * (len(result.operands) - len(result.spans))]
    same = {name: getattr(result, name) for name in reply.model_fields if hasattr(result, name)}
    return same | {
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
    }


def _node(tree: QueryTree, numbers: Iterator[int]) -> dict[str, Any]:
    if isinstance(tree, Atom):
        return {"op": "operand", "parts": [], "operand": next(numbers)}
    children = (tree.part,) if isinstance(tree, Not) else tree.parts
    nodes = [_node(child, numbers) for child in children]
    return {"op": type(tree).__name__.lower(), "parts": nodes, "operand": None}


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


def explain_words(encoder: Any, text: str) -> tuple[dict[str, bool], list[dict[str, Any]]]:  # noqa: ANN401
    """Return open gates and parts of words; none without BoolAttn, and none in onnxruntime."""
    if not hasattr(encoder, "explain") or (explanation := encoder.explain(text)) is None:
        return {}, []
    rows = explanation.rows()
    encoding = encoder.towers.tokenizer(
        text, return_offsets_mapping=True, truncation=True, max_length=len(rows)
    )
    return explanation.gate, [
        {"text": text[start:end], "start": start, "end": end, **row}
        for (start, end), row in zip(encoding["offset_mapping"], rows, strict=True)
        if start < end
    ]
