"""Requests and replies of the JSON API; the OpenAPI description is made from these.

No postponed annotations here: pydantic reads them when a class is made.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["auto", "plain", "explicit"]
Value = str | int | float | bool
Filters = dict[str, Value | list[Value] | dict[str, Value | list[Value]]]
Judgement = Literal["answers", "excluded", "partial", "other"]

QUERY = "moths of Borneo but not Sumatra"


class SearchRequest(BaseModel):
    """One search. Unknown fields and values of another type are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"query": QUERY, "k": 5},
                {"query": "moths AND Borneo NOT Sumatra", "mode": "explicit", "compare": True},
                {"query": "hawk moths", "filters": {"family": "Sphingidae"}},
            ]
        },
    )

    query: Annotated[str, Field(description="Plain language or explicit syntax.")]
    k: Annotated[int, Field(description="Number of results.", ge=1)] = 10
    mode: Annotated[
        Mode,
        Field(description="How to parse the query; auto: explicit if it has explicit operators."),
    ] = "auto"
    filters: Annotated[
        Filters | None,
        Field(
            description="Conditions on metadata: a value, a list of values, or an object with in, "
            "not, gt, gte, lt or lte. All of them must hold.",
            examples=[{"family": ["Sphingidae", "Noctuidae"], "year": {"gte": 1990}}],
        ),
    ] = None
    hybrid: Annotated[bool, Field(description="Add lexical search.")] = False
    compose: Annotated[
        bool,
        Field(description="Compose the scores of operands; false: one vector for the query."),
    ] = True
    strict_not: Annotated[
        bool, Field(description="Remove documents with all words of a negated operand.")
    ] = False
    explain: Annotated[
        bool,
        Field(
            description="Also return documents that one vector would rank among the first, and "
            "composition ranks lower; when comparing, the plain list has them."
        ),
    ] = False
    compare: Annotated[
        bool, Field(description="Search with the plain encoder too, and compare the ranks.")
    ] = False


class TreeNode(BaseModel):
    """One node of the query tree."""

    op: Annotated[Literal["and", "or", "not", "operand"], Field(examples=["and"])]
    parts: Annotated[list["TreeNode"], Field(description="Children; none for an operand.")] = []
    operand: Annotated[int | None, Field(description="Number of the operand, from 0.")] = None


class OperandReply(BaseModel):
    """One operand of the query."""

    text: Annotated[str, Field(examples=["moths of Borneo"])]
    spans: Annotated[
        list[tuple[int, int]],
        Field(description="Half-open character spans in the query.", examples=[[(0, 15)]]),
    ]
    is_excluded: Annotated[bool, Field(description="Whether the operand is negated.")]


class ParseReply(BaseModel):
    """The parsed query."""

    query: Annotated[str, Field(examples=[QUERY])]
    tree: Annotated[
        str,
        Field(description="In explicit syntax.", examples=["moths of Borneo NOT moths of Sumatra"]),
    ]
    nodes: Annotated[TreeNode, Field(description="The same tree as nodes.")]
    operands: list[OperandReply]
    operators: Annotated[list[str], Field(examples=[["not"]])]
    confidence: Annotated[float | None, Field(description="Confidence of the parser, 0 to 1.")]
    is_composed: Annotated[
        bool,
        Field(
            description="False: one vector was used, because the query has one operand or the "
            "parser's confidence is low."
        ),
    ]
    reading: Annotated[
        str, Field(description="The parsed tree, even if it was not used for lack of confidence.")
    ]
    warnings: list[str] = []


class OtherRank(BaseModel):
    """Rank of a document in the other list, and the Boolean model's verdict on it."""

    rank: Annotated[int | None, Field(description="From 1; null: not found.")]
    looked: Annotated[int, Field(description="Number of results searched for it.")]
    probabilities: list[float] = []
    verdict: Annotated[str, Field(description="As of a result; empty if not composed.")] = ""
    why: str = ""


class HitReply(BaseModel):
    """One result."""

    rank: int
    id: str
    title: str
    text: Annotated[str, Field(description="The beginning; /documents/{id} has all of it.")]
    is_cut: bool
    metadata: dict[str, Any]
    score: Annotated[
        float | None, Field(description="Log-probability if composed, else a similarity.")
    ]
    probabilities: Annotated[
        list[float],
        Field(
            description="Of each operand, in their order; empty if not composed. Compare them "
            "between documents for the same operand."
        ),
    ]
    verdict: Annotated[
        str,
        Field(
            description="kept; doubtful: matches a negated operand much better than the results "
            "above it; put down: ranked lower, not among the first k.",
            examples=["kept"],
        ),
    ]
    why: Annotated[
        str,
        Field(
            description="What ranks it lower, compared with the results above it.",
            examples=[
                "matches the negated operand 'Sumatra' more (.80) than the results above it (.15)"
            ],
        ),
    ]
    branches: Annotated[
        dict[str, Any], Field(description="Rank by branch of a hybrid search.")
    ] = {}
    judgement: Annotated[
        Judgement | None, Field(description="Of the document, if the query is a judged one.")
    ] = None
    other: Annotated[
        OtherRank | None, Field(description="Rank in the other list; only when comparing.")
    ] = None


class Judged(BaseModel):
    """Counts for a judged query."""

    answers: Annotated[int, Field(description="Documents that answer it.")]
    excluded: Annotated[int, Field(description="Documents that it excludes.")]
    answers_found: Annotated[int, Field(description="Answers among the results.")]
    excluded_found: Annotated[int, Field(description="Excluded among the results: violations.")]


class ListReply(BaseModel):
    """The results of one system."""

    system: Annotated[str, Field(examples=["boolean"])]
    label: Annotated[str, Field(description="Name of the system for people.")]
    hits: list[HitReply]
    judged: Judged | None = None


class SearchReply(ParseReply):
    """The results of a search."""

    k: int
    label: str
    hits: list[HitReply]
    put_down: Annotated[
        list[HitReply],
        Field(description="Documents ranked lower by composition; with explain, not compare."),
    ] = []
    judged: Judged | None = None
    plain: Annotated[ListReply | None, Field(description="Only when comparing.")] = None
    took: Annotated[dict[str, float], Field(description="Milliseconds by step.")]


class WordReply(BaseModel):
    """One word of a query, and BoolAttn's values at it; by operator, averaged over layers."""

    text: Annotated[str, Field(examples=["not"])]
    start: int
    end: int
    cue: Annotated[dict[str, float], Field(examples=[{"not": 0.98}])]
    scope: dict[str, float]
    bias: dict[str, float]
    attention_change: float


class ExplainReply(ParseReply):
    """The parsed query, and what the encoder's attention does at its words."""

    gate: Annotated[
        dict[str, bool], Field(description="Open gates; empty: the model has no BoolAttn.")
    ]
    words: list[WordReply]


class DocumentReply(BaseModel):
    """One document."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class HealthReply(BaseModel):
    """State of the service."""

    status: Annotated[str, Field(examples=["ok"])]
    version: str
    documents: int
    uptime_s: float


class ExampleReply(BaseModel):
    """An example query."""

    query: Annotated[str, Field(examples=[QUERY])]
    operators: list[str]
    is_judged: Annotated[bool, Field(description="Whether its answers are known.")]


class AboutReply(BaseModel):
    """What the page shows about the service."""

    version: str
    documents: int
    boolean: Annotated[str, Field(description="Name of the model.")]
    plain: Annotated[str | None, Field(description="Name of the system compared with, if any.")]
    has_lexical: bool
    max_k: int
    max_length: int
    examples: list[ExampleReply]


class ErrorBody(BaseModel):
    """An error."""

    code: Annotated[str, Field(examples=["query_syntax"])]
    message: Annotated[str, Field(examples=["column 7: this parenthesis is never closed"])]
    column: Annotated[int | None, Field(description="Of the query, from 1.")] = None
    id: Annotated[str | None, Field(description="Of its entry in the log.")] = None


class ErrorReply(BaseModel):
    """The form of every error."""

    error: ErrorBody
