"""What goes in and out of the JSON API; the OpenAPI description is made from these.

No postponed annotations here: pydantic reads them when a class is made. May import: nothing.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["auto", "plain", "explicit"]
Value = str | int | float | bool
Filters = dict[str, Value | list[Value] | dict[str, Value | list[Value]]]
Judgement = Literal["answers", "excluded", "partial", "other"]

QUERY = "moths of Borneo but not Sumatra"


class Request(BaseModel):
    """A value in the wrong type or under an unknown name is refused, not guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SearchRequest(Request):
    """One search."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": QUERY, "k": 5},
                {"query": "moths AND Borneo NOT Sumatra", "mode": "explicit", "compare": True},
                {"query": "hawk moths", "filters": {"family": "Sphingidae"}},
            ]
        }
    )

    query: Annotated[str, Field(description="Plain language or explicit syntax.")]
    k: Annotated[int, Field(description="Number of results.", ge=1)] = 10
    mode: Annotated[
        Mode,
        Field(description="How to read the query; auto tells explicit syntax by its operators."),
    ] = "auto"
    filters: Annotated[
        Filters | None,
        Field(
            description="Values of a document's metadata: one, a list of which any will do, or an "
            "object with in, not, gt, gte, lt or lte. All of them must hold.",
            examples=[{"family": ["Sphingidae", "Noctuidae"], "year": {"gte": 1990}}],
        ),
    ] = None
    hybrid: Annotated[bool, Field(description="Add the lexical branch.")] = False
    compose: Annotated[
        bool, Field(description="Score operands apart; false scores one vector of the query.")
    ] = True
    strict_not: Annotated[
        bool,
        Field(description="Leave out documents that hold the words of an excluded operand."),
    ] = False
    explain: Annotated[
        bool,
        Field(
            description="Add what one vector would have found first, and composing put down; when "
            "comparing, the plain list shows it."
        ),
    ] = False
    compare: Annotated[
        bool, Field(description="Search the plain encoder too, and say where each result went.")
    ] = False


class TreeNode(BaseModel):
    """One node of the tree that was read."""

    op: Annotated[Literal["and", "or", "not", "operand"], Field(examples=["and"])]
    parts: Annotated[
        list["TreeNode"], Field(description="What stands below; none for an operand.")
    ] = []
    operand: Annotated[int | None, Field(description="Which operand this is.")] = None


class OperandReply(BaseModel):
    """One operand of the query."""

    text: Annotated[str, Field(examples=["moths of Borneo"])]
    spans: Annotated[
        list[tuple[int, int]],
        Field(description="Half-open spans of characters in the query.", examples=[[(0, 15)]]),
    ]
    is_excluded: Annotated[bool, Field(description="Whether it stands under a NOT.")]


class ReadingReply(BaseModel):
    """How a query was read."""

    query: Annotated[str, Field(examples=[QUERY])]
    tree: Annotated[
        str,
        Field(description="In explicit syntax.", examples=["moths of Borneo NOT moths of Sumatra"]),
    ]
    nodes: Annotated[TreeNode, Field(description="The same tree for programs.")]
    operands: list[OperandReply]
    operators: Annotated[list[str], Field(examples=[["not"]])]
    confidence: Annotated[float | None, Field(description="How sure the reading is.")]
    is_composed: Annotated[
        bool,
        Field(
            description="False: scored by one vector, because it is plain or the reading unsure."
        ),
    ]

    reading: Annotated[
        str, Field(description="The tree that was read, also where it was not trusted.")
    ]
    warnings: list[str] = []


class Elsewhere(BaseModel):
    """Where the other system put a document, and what the Boolean model says of it.

    A verdict is empty where nothing was composed, and "put down" where the Boolean model does not
    have the document among its first k.
    """

    rank: Annotated[int | None, Field(description="From 1; null: not among the results looked at.")]
    looked: Annotated[int, Field(description="How many results were looked at.")]
    probabilities: list[float] = []
    verdict: str = ""
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
        float | None, Field(description="Log-probability where composed, else a similarity.")
    ]
    probabilities: Annotated[
        list[float],
        Field(
            description="That the document belongs to each operand, in their order; empty if not "
            "composed. They order documents, so compare them among those of one operand."
        ),
    ]
    verdict: Annotated[
        str,
        Field(
            description="kept; doubtful: much more like what is excluded than the results before "
            "it; put down: not among the results.",
            examples=["kept"],
        ),
    ]
    why: Annotated[
        str,
        Field(
            description="What speaks against it, beside the results before it.",
            examples=[
                "matches the negated operand 'Sumatra' more (.80) than the results above it (.15)"
            ],
        ),
    ]
    branches: Annotated[
        dict[str, Any], Field(description="Rank or score by branch of a hybrid search.")
    ] = {}
    judgement: Annotated[
        Judgement | None,
        Field(description="What is known of it for this query; null where nothing is known."),
    ] = None
    other: Annotated[
        Elsewhere | None, Field(description="Where the other list has it; only when comparing.")
    ] = None


class Judged(BaseModel):
    """What is known of a query from a file of judgements."""

    answers: Annotated[int, Field(description="Documents that answer it.")]
    excluded: Annotated[int, Field(description="Documents that it excludes.")]
    answers_found: Annotated[int, Field(description="Of the results shown.")]
    excluded_found: Annotated[int, Field(description="Of the results shown: violations.")]


class ListReply(BaseModel):
    """The results of one system."""

    system: Annotated[str, Field(examples=["boolean"])]
    label: Annotated[str, Field(description="For people.")]
    hits: list[HitReply]
    judged: Judged | None = None


class SearchReply(ReadingReply):
    """The results of a search."""

    k: int
    label: str
    hits: list[HitReply]
    put_down: Annotated[
        list[HitReply], Field(description="Only when explaining, and not comparing.")
    ] = []
    judged: Judged | None = None
    plain: Annotated[ListReply | None, Field(description="Only when comparing.")] = None
    took: Annotated[dict[str, float], Field(description="Milliseconds by step.")]


class WordReply(BaseModel):
    """One word of a query, and what BoolAttn does at it; by operator, layers averaged."""

    text: Annotated[str, Field(examples=["not"])]
    start: int
    end: int
    cue: Annotated[dict[str, float], Field(examples=[{"not": 0.98}])]
    scope: dict[str, float]
    bias: dict[str, float]
    attention_change: float


class ExplainReply(ReadingReply):
    """How a query was read, and what the encoder's attention does with its words."""

    gate: Annotated[
        dict[str, bool], Field(description="Open experts; empty: the model has no BoolAttn.")
    ]
    words: list[WordReply]


class DocumentReply(BaseModel):
    """One document, whole."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class HealthReply(BaseModel):
    """Whether the service can answer."""

    status: Annotated[str, Field(examples=["ok"])]
    version: str
    documents: int
    uptime_s: float


class ExampleReply(BaseModel):
    """A query to try."""

    query: Annotated[str, Field(examples=[QUERY])]
    operators: list[str]
    is_judged: Annotated[bool, Field(description="Whether its answers are known.")]


class AboutReply(BaseModel):
    """What the page needs to know of the service."""

    version: str
    documents: int
    boolean: Annotated[str, Field(description="The model's name.")]
    plain: Annotated[str | None, Field(description="What it is compared with, if anything.")]
    has_lexical: bool
    max_k: int
    max_length: int
    examples: list[ExampleReply]


class ErrorBody(BaseModel):
    """What went wrong."""

    code: Annotated[str, Field(examples=["query_syntax"])]
    message: Annotated[str, Field(examples=["column 7: this parenthesis is never closed"])]
    column: Annotated[int | None, Field(description="Of the query, from 1.")] = None
    id: Annotated[str | None, Field(description="Under which the log has it.")] = None


class ErrorReply(BaseModel):
    """The form of every error."""

    error: ErrorBody
