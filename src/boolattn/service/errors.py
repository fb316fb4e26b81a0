"""What a caller is told when something cannot be done: a status, a code and one line.

May import: boolattn.errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fastapi import status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from boolattn.errors import BoolattnError, ConfigError, QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI, Request, Response

logger = logging.getLogger(__name__)

_LONGEST = 300
#: Codes of what the framework refuses by itself.
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 415: "not_json"}
#: The caller's own doing; any other BoolattnError means that the index or the model is broken.
_CALLERS: tuple[type[BoolattnError], ...] = (QueryError, ConfigError)


class RefusedError(Exception):
    """A refusal with its status; the message is one line for a person."""

    def __init__(
        self,
        http_status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        """Say what to answer.

        Args:
            http_status: The status.
            code: A word for programs.
            message: A line for people.
            headers: Further headers.
            **details: Further values beside code and message.
        """
        super().__init__(message)
        self.status, self.code, self.headers, self.details = http_status, code, headers, details

    def response(self) -> JSONResponse:
        """Make the answer."""
        error = {"code": self.code, "message": one_line(str(self)), **self.details}
        return JSONResponse({"error": error}, self.status, headers=self.headers)


def one_line(text: str) -> str:
    """Put a message on one line that no caller can make long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def refusal_of(error: Exception) -> RefusedError:
    """Say what an exception means to a caller; what nobody foresaw is logged with its trace."""
    match error:
        case RefusedError():
            return error
        case BoolattnError() if isinstance(error, _CALLERS):
            return _query_problem(error)
        case RequestValidationError():
            return _field_problem(error.errors())
        case HTTPException():
            code = _CODES.get(error.status_code, "refused")
            return RefusedError(error.status_code, code, str(error.detail), headers=error.headers)
    return _unforeseen(error)


def _query_problem(error: BoolattnError) -> RefusedError:
    column = getattr(error, "column", None)
    if column is None:
        return RefusedError(status.HTTP_400_BAD_REQUEST, "bad_query", str(error))
    # The lines below the first draw the place for a terminal; a program has the column.
    message = str(error).splitlines()[0]
    return RefusedError(status.HTTP_400_BAD_REQUEST, "query_syntax", message, column=int(column))


def _field_problem(errors: Sequence[Any]) -> RefusedError:
    """Name the first field that is wrong, without repeating what was sent."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    if first["type"] == "json_invalid":
        return RefusedError(status.HTTP_400_BAD_REQUEST, "not_json", "the body is not JSON")
    if not place:
        message = "the body must be a JSON object, sent as application/json"
        return RefusedError(status.HTTP_422_UNPROCESSABLE_CONTENT, "bad_field", message)
    return RefusedError(
        status.HTTP_422_UNPROCESSABLE_CONTENT, "bad_field", f"{place[:60]}: {first['msg'].lower()}"
    )


def _unforeseen(error: Exception) -> RefusedError:
    """Keep what happened in the log, and give the caller a name to ask for it by."""
    name = uuid4().hex[:12]
    is_known = isinstance(error, BoolattnError)
    logger.error("error %s: %s", name, one_line(str(error)), exc_info=None if is_known else error)
    message = f"something went wrong here; the log knows it as {name}"
    return RefusedError(status.HTTP_500_INTERNAL_SERVER_ERROR, "internal", message, id=name)


def leave_to_guard(app: FastAPI) -> None:
    """Let the framework's own refusals pass to the guard, which answers all in one form."""

    def pass_on(_request: Request, error: Exception) -> Response:
        raise error

    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, pass_on)
