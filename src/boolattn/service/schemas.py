"""Requests and replies of the JSON API; the OpenAPI description is made from these.

No postponed annotations here: pydantic reads them when a class is made.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Mode = Literal["auto", "plain", "explicit"]
Value = str | int | float | bool
Filters = dict[str, Value | list[Value] | dict[str, Value | list[Value]]]

QUERY = "moths of Borneo but not Sumatra"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


def _check_finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is NaN or infinite, which JSON does not have; leave it out")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_finite(inner)
    return value


#: Infinity, which JSON does not have, becomes null.
Number = Annotated[float | None, BeforeValidator(_rounded)]


class _SearchOptions(BaseModel):
    """What a search takes in a body and in an address."""

    k: int = Field(default=10, description="Number of results.", ge=1)
    offset: int = Field(default=0, description="Results to pass over.", ge=0, le=10_000)
    mode: Mode = Field(
        default="auto",
        description="How to parse the query; auto: explicit if it has explicit operators.",
    )
    hybrid: bool | None = Field(
        default=None,
        description="Add lexical search; null: if the index has it and scores are composed.",
    )
    positive: list[str] = Field(
        default=[],
        description="Operands to add to the query; like:ID is a document, moths^2 has a weight.",
    )
    negative: list[str] = Field(default=[], description="Operands to exclude, likewise.")
    compose: bool = Field(
        default=True, description="Compose the scores of operands; false: one vector for the query."
    )
    strict_not: bool | None = Field(
        default=None, description="Remove documents with a negated operand's words; null: yes."
    )
    kinds: bool = Field(
        default=True, description="Also remove documents with things of a negated operand's kind."
    )
    allow: list[str] = Field(
        default=[], description="Words that are of no negated kind, as cream without dairy."
    )
    explain: bool = Field(
        default=False,
        description="Also return documents that one vector would rank among the first, and "
        "composition ranks lower; when comparing, the plain list has them.",
    )
    facets: bool = Field(
        default=False, description="Count values of the metadata among the best documents."
    )
    min_score: float | None = Field(default=None, description="Least score of a result.")
    compare: bool = Field(
        default=False, description="Search with one vector too, by the same model or --plain-index."
    )


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
        json_schema_extra={
            "examples": [
                {"query": QUERY, "k": 5},
                {"query": "moths AND Borneo NOT Sumatra", "mode": "explicit", "compare": True},
                {"query": "hawk moths", "filters": {"family": "Sphingidae"}},
                {"query": "moths", "positive": ["like:17"], "negative": ["Sumatra"]},
                {"query": "everything NOT insects", "allow": ["moth", "moths"]},
            ]
        },
    )

    query: str = Field(
        default="",
        description="Plain language or explicit syntax; may be left out with positive operands.",
    )
    filters: Filters | None = Field(
        default=None,
        description="Conditions on metadata: a value, a list of values, or an object with in, "
        "not, contains, exists, gt, gte, lt or lte. All of them must hold.",
        examples=[{"family": ["Sphingidae", "Noctuidae"], "year": {"gte": 1990}}],
    )


class TreeNode(BaseModel):
    """One node of the query tree."""

    op: Literal["and", "or", "not", "operand"] = Field(examples=["and"])
    parts: list["TreeNode"] = Field(default=[], description="Children; none for an operand.")
    operand: int | None = Field(default=None, description="Number of the operand, from 0.")


class OperandReply(BaseModel):
    """One operand of the query."""

    text: str = Field(examples=["moths of Borneo"])
    kind: Literal["words", "document", "condition"] = Field(
        default="words", description="Words; a document, like:ID; a condition, year>=1990."
    )
    weight: float = 1.0
    spans: list[tuple[int, int]] = Field(description="Half-open character spans in the query.")
    is_negated: bool = Field(description="Whether the operand is negated.")


class ParseReply(BaseModel):
    """The parsed query."""

    query: str = Field(examples=[QUERY])
    tree: str = Field(description="In explicit syntax.")
    nodes: TreeNode = Field(description="The same tree as nodes.")
    operands: list[OperandReply]
    operators: list[str] = Field(examples=[["not"]])
    confidence: Number = Field(description="Confidence of the parser, 0 to 1.")
    is_composed: bool = Field(
        description="Whether operands were scored one by one; false: one vector for the query."
    )
    why_one_vector: str = Field(description="Empty if composed.")
    parsed: str = Field(description="The parsed tree, even if its confidence is too low.")
    warnings: list[str] = Field(
        default=[],
        description="For people: cue words that became no operator and why, negated operands that "
        "were ignored, results that are missing.",
    )
    notes: list[str] = Field(
        default=[], description="Words that were corrected, numbers that became conditions."
    )


class OtherRank(BaseModel):
    """Rank of a document in the other list, and the Boolean model's verdict on it."""

    rank: int | None = Field(description="From 1; null: not found.")
    looked: int = Field(description="Number of results searched for it.")
    ranks: list[int] = []
    verdict: str = Field(default="", description="As of a result; empty if not composed.")
    why: str = ""


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


class ChangeReply(BaseModel):
    """What was changed."""

    changed: int = Field(description="Documents added or deleted.")
    documents: int = Field(description="Documents in the index now.")


class HitReply(DocumentReply):
    """One result."""

    rank: int
    text: str = Field(
        description="The beginning, of the best passage of a long text; /documents/{id} has all."
    )
    passage: tuple[int, int] | None = Field(
        default=None, description="Its span in the document; null: the text is one passage."
    )
    highlights: list[tuple[int, int]] = Field(
        default=[], description="Spans in this text that are words of positive operands."
    )
    is_cut: bool
    score: Number = Field(description="Higher is better; a similarity if not composed.")
    ranks: list[int] = Field(
        description="For each operand alone, in their order, among n_compared documents; 101: "
        "lower than 100. Empty if not composed."
    )
    exceeds: list[Number] = Field(
        description="For each negated operand, the share of the best fitting documents that "
        "match it less."
    )
    fits: bool = Field(description="Whether it fits the positive part of the query.")
    verdict: str = Field(
        description="kept; doubtful: matches a negated operand, or does not fit; ranked lower: "
        "not among the first k.",
        examples=["kept"],
    )
    why: str = Field(description="What counts against it.")
    other: OtherRank | None = Field(default=None, description="Only when comparing.")


class ListReply(BaseModel):
    """The results of one system."""

    system: str = Field(examples=["boolean"])
    label: str = Field(description="Name of the system for people.")
    hits: list[HitReply]


class FacetValue(BaseModel):
    """A value of a field."""

    value: Value
    documents: int
    filter: str = Field(description="For GET /search.", examples=["family=Sphingidae"])


class FacetReply(BaseModel):
    """A field of the metadata with few different values, or with many numbers."""

    field: str = Field(examples=["family"])
    documents: int = Field(description="That have a value.")
    different: int = Field(description="Number of different values; the most frequent are given.")
    values: list[FacetValue] = Field(description="A list has each of its values; none: a range.")
    is_exact: bool = Field(description="Whether all documents were counted, or a sample.")
    low: float | None = Field(description="The least number in the index, or year of a date.")
    high: float | None = Field(description="The largest one.")
    is_date: bool = Field(default=False, description="Whether low and high are years of dates.")


class LeftOutReply(BaseModel):
    """A document that strict NOT removed."""

    id: str
    title: str
    why: str = Field(examples=["cream is dairy"])
    word: str = Field(description="Of a negated kind; allow takes it back.", examples=["cream"])


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
    facets: list[FacetReply] = Field(default=[], description="With facets; of the result.")
    left_out: list[LeftOutReply] = Field(default=[], description="The best that were removed.")
    ranked_lower: list[HitReply] = Field(
        default=[], description="Documents ranked lower by composition; with explain, not compare."
    )
    plain: ListReply | None = Field(default=None, description="Only when comparing.")
    took: dict[str, float] = Field(description="Milliseconds by step.")


class WordReply(BaseModel):
    """One word of a query, and BoolAttn's values at it; by operator, averaged over layers."""

    text: str = Field(examples=["not"])
    start: int
    end: int
    cue: dict[str, float] = Field(examples=[{"not": 0.98}])
    scope: dict[str, float]
    bias: dict[str, float]
    attention_change: float


class ExplainReply(ParseReply):
    """The parsed query, and what the encoder's attention does at its words."""

    gate: dict[str, bool] = Field(description="Open gates; empty without BoolAttn and PyTorch.")
    words: list[WordReply]


class HealthReply(BaseModel):
    """State of the service."""

    status: str = Field(description="ok, or disk_full.", examples=["ok"])
    version: str
    documents: int
    uptime_s: float


class ErrorBody(BaseModel):
    """An error."""

    code: str = Field(examples=["query_syntax"])
    message: str = Field(examples=["column 7: this parenthesis is never closed"])
    column: int | None = Field(default=None, description="Of the query, from 1.")
    id: str | None = Field(default=None, description="Of its entry in the log.")


class ErrorReply(BaseModel):
    """The form of every error."""

    error: ErrorBody
