"""Errors of the API: every one is a status, a code and one line."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from boolattn.errors import (
    BoolattnError,
    ConfigError,
    IndexBusyError,
    IndexFolderError,
    QueryError,
    QuerySyntaxError,
    ServerError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import Request, Response

    Headers = Mapping[str, str] | None

logger = logging.getLogger(__name__)

_MAX_LENGTH = 300
#: Codes of the framework's own errors.
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 415: "not_json"}


class RefusedError(Exception):
    """A request that is not answered."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Headers = None, **details: Any
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
        case QuerySyntaxError():
            return RefusedError(400, "query_syntax", str(error), column=error.column)
        case QueryError() | ConfigError():
            return RefusedError(400, "bad_query", str(error))
        case ServerError():
            logger.error("the store does not answer: %s", one_line(str(error)))
            message = "the store does not answer; see the log"
            return RefusedError(503, "store_unavailable", message, headers={"Retry-After": "5"})
        case IndexBusyError():
            return RefusedError(503, "index_busy", str(error), headers={"Retry-After": "1"})
        case IndexFolderError():
            logger.error("the index cannot be read: %s", one_line(str(error)))
            message = "the index is damaged or being repaired; see the log"
            return RefusedError(503, "index_damaged", message, headers={"Retry-After": "30"})
        case RequestValidationError():
            return _field_error(error.errors())
        case HTTPException():
            code = _CODES.get(error.status_code, "refused")
            return RefusedError(error.status_code, code, str(error.detail), headers=error.headers)
    # The caller is given the id under which the log has the error.
    name = uuid4().hex[:12]
    is_known = isinstance(error, BoolattnError)
    logger.error("error %s: %s", name, one_line(str(error)), exc_info=None if is_known else error)
    return RefusedError(500, "internal", f"internal error; see {name} in the log", id=name)


def _field_error(errors: Sequence[Any]) -> RefusedError:
    """Name the first wrong field, what it must be, and what was sent."""
    first = errors[0]
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
