"""Requests of the JSON API, of which the OpenAPI description is made; its replies and errors.

No postponed annotations here: pydantic reads them when a class is made.
"""

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Literal
from uuid import uuid4

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import PydanticSerializationError, to_json
from starlette.exceptions import HTTPException

from boolattn import errors
from boolattn.query.tree import Atom, Like, Not, QueryTree, Where, operators_of, signed_atoms
from boolattn.search.result import SearchResult

logger = logging.getLogger(__name__)

Mode = Literal["auto", "plain", "explicit"]
Value = str | int | float | bool
Filters = dict[str, Value | list[Value] | dict[str, Value | list[Value]]]

QUERY = "moths of Borneo but not Sumatra"
_KINDS: dict[type[Atom], str] = {Like: "document", Where: "condition"}
#: What replies have of a result as it is.
_OF_RESULT = (
    *("query", "confidence", "is_composed", "why_one_vector", "warnings", "notes", "offset"),
    *("total", "n_compared", "hybrid", "strict_not", "facets", "left_out"),
)
_ADDED: dict[str, Any] = {"id": "18", "text": "A hawk moth found in Java."}
_DIGITS = 6
_MAX_LENGTH = 300
#: Codes of the framework's own errors.
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 415: "not_json"}
#: What happened, by the first digit of the status.
ERRORS: dict[int | str, str] = {
    "4XX": "The request is refused: a field, the query or the key is wrong, a document or path is "
    "unknown, or a limit is exceeded. Nothing was changed.",
    "5XX": "The service cannot answer now: it is busy, stopping or out of time, its disk is full, "
    "or its index cannot be read. Try again after the seconds in Retry-After, if there are any.",
}


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
    facets: bool = Field(default=False, description="Count values among the best documents.")
    min_score: float | None = Field(default=None, description="Least score of a result.")


class SearchParameters(_SearchOptions, extra="forbid"):
    """A search in an address."""

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


class DocumentRequest(BaseModel, extra="forbid", strict=True, allow_inf_nan=False):
    """A document to add."""

    id: str = Field(min_length=1, examples=["17"])
    text: str = Field(examples=["A moth found in Java."])
    title: str = ""
    metadata: dict[str, JsonValue] = Field(
        default={}, description="Text, numbers, true or false, dates, lists and objects of these."
    )


class DocumentsRequest(BaseModel, extra="forbid", strict=True):
    """Documents to add, all or none."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"documents": [_ADDED]}]})

    documents: list[DocumentRequest] = Field(min_length=1)
    update: bool = Field(default=False, description="Replace documents that have the same ids.")


class ErrorBody(BaseModel):
    """What was wrong with a request, or why the service cannot answer."""

    code: str = Field(description="Name of the error.", examples=["query_syntax"])
    message: str = Field(
        description="One line for people.", examples=["column 7: this parenthesis is never closed"]
    )
    column: int | None = Field(default=None, description="Where the query is wrong, from 1.")
    id: str | None = Field(default=None, description="What to look for in the service's log.")


class ErrorReply(BaseModel):
    """The form of every error."""

    error: ErrorBody


def reply(values: dict[str, Any]) -> Response:
    """Return a reply; infinity, which JSON does not have, becomes null."""
    return Response(to_json(values, inf_nan_mode="null"), media_type="application/json")


def search_values(result: SearchResult, snippet: int) -> dict[str, Any]:
    """Return the parsed query, and the results, whose texts are cut to so many characters."""
    spans = [*result.spans, *[()] * (len(result.operands) - len(result.spans))]
    hits = []
    for rank, hit in enumerate(result.hits, start=1 + result.offset):
        start, end = hit.passage or (0, len(hit.text))
        end = min(end, start + snippet)
        values = {
            "text": hit.text[start:end],
            "rank": rank,
            "is_cut": end - start < len(hit.text),
            "highlights": [(a - start, b - start) for a, b in result.highlights(hit) if b <= end],
            "score": round(hit.score, _DIGITS),
            "exceeds": [round(share, _DIGITS) for share in hit.exceeds],
        }
        hits.append(vars(hit) | values)
    return {name: getattr(result, name) for name in _OF_RESULT} | {
        "tree": result.tree_text,
        "nodes": _node(result.tree, count()),
        "operands": [
            {
                "text": atom.name,
                "kind": _KINDS.get(type(atom), "words"),
                "weight": atom.weight,
                "spans": operand_spans,
                "is_negated": sign < 0,
            }
            for (atom, sign), operand_spans in zip(signed_atoms(result.tree), spans, strict=True)
        ],
        "operators": operators_of(result.tree),
        "parsed": result.parsed_text,
        "hits": hits,
    }


def _node(tree: QueryTree, numbers: Iterator[int]) -> dict[str, Any]:
    if isinstance(tree, Atom):
        return {"op": "operand", "parts": [], "operand": next(numbers)}
    children = (tree.part,) if isinstance(tree, Not) else tree.parts
    nodes = [_node(child, numbers) for child in children]
    return {"op": type(tree).__name__.lower(), "parts": nodes, "operand": None}


class RefusedError(Exception):
    """A request that is not answered."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        """Describe the error; ``details`` are further fields beside code and message."""
        super().__init__(message)
        self.status, self.code, self.headers, self.details = status, code, headers, details

    def response(self) -> JSONResponse:
        """Return the response."""
        error = {"code": self.code, "message": one_line(str(self)), **self.details}
        return JSONResponse({"error": error}, self.status, headers=self.headers)


def one_line(text: str) -> str:
    """Join a message to one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…"


def as_refused(error: Exception) -> RefusedError:
    """Convert any exception; an unexpected one is logged with its traceback."""
    match error:
        case RefusedError():
            return error
        case errors.QuerySyntaxError():
            return RefusedError(400, "query_syntax", str(error), column=error.column)
        case errors.QueryError() | errors.ConfigError():
            return RefusedError(400, "bad_query", str(error))
        case errors.ServerError():
            logger.error("the store does not answer: %s", one_line(str(error)))
            message = "the store does not answer; see the log"
            return RefusedError(503, "store_unavailable", message, headers={"Retry-After": "5"})
        case errors.IndexBusyError():
            return RefusedError(503, "index_busy", str(error), headers={"Retry-After": "1"})
        case errors.IndexFolderError():
            logger.error("the index cannot be read: %s", one_line(str(error)))
            message = "the index is damaged or being repaired; see the log"
            return RefusedError(503, "index_damaged", message, headers={"Retry-After": "30"})
        case PydanticSerializationError():
            return RefusedError(422, "bad_field", "a value has half of a surrogate pair")
        case RequestValidationError():
            return _field_error(error.errors()[0])
        case HTTPException():
            code = _CODES.get(error.status_code, "refused")
            return RefusedError(error.status_code, code, str(error.detail), headers=error.headers)
    name = uuid4().hex[:12]  # under which the caller finds the error in the log
    is_known = isinstance(error, errors.BoolattnError)
    logger.error("error %s: %s", name, one_line(str(error)), exc_info=None if is_known else error)
    return RefusedError(500, "internal", f"internal error; see {name} in the log", id=name)


def _field_error(first: dict[str, Any]) -> RefusedError:
    """Name the first wrong field, what it must be, and what was sent."""
    if first["type"] == "json_invalid":
        return RefusedError(400, "not_json", "the body is not JSON")
    field = ".".join(map(str, first["loc"][1:]))[:60]  # after "body" or "query"
    reason = first["msg"].removeprefix("Value error, ").replace("a valid string", "a text")
    message = f"{field}: {reason[:1].lower()}{reason[1:]}"
    if reason.startswith("Input should be "):
        rule = reason.removeprefix("Input should be ").partition(", unable")[0]
        message = f"{field} must be {rule}, got {first['input']!r:.60}"
    elif first["type"] == "extra_forbidden":
        message = f"there is no field {field}"
    if not field:
        message = "the body must be a JSON object, sent as application/json"
    return RefusedError(422, "bad_field", message)


async def raise_again(_request: Request, error: Exception) -> Response:
    """Leave an error of the framework to the middleware, which formats all of them."""
    raise error
