"""The web application: routes of the JSON API over an open index.

No postponed annotations here: FastAPI reads them when a route is made.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import PlainTextResponse, Response

import boolattn
from boolattn.search.filters import parse_filters
from boolattn.service import schemas
from boolattn.service.assets import page_routes
from boolattn.service.errors import leave_to_middleware
from boolattn.service.handlers import Handlers
from boolattn.service.judgements import JudgedQueries
from boolattn.service.metrics import CONTENT_TYPE
from boolattn.service.middleware import LimitsMiddleware
from boolattn.service.settings import ServiceSettings

if TYPE_CHECKING:
    from boolattn.search import Searcher

_ERRORS = {
    400: "The query or the body cannot be parsed.",
    401: "The API key is missing or wrong.",
    404: "There is no such document.",
    408: "The body arrived too slowly.",
    413: "The body is too large.",
    422: "A value is wrong, or over a limit.",
    500: "Internal error; the log has it under the id given.",
    503: "Too many active requests; try again after Retry-After seconds.",
    504: "The search took too long.",
}
Text = Annotated[str, Query(description="The query.", examples=[schemas.QUERY])]


def create_app(
    searcher: "Searcher",
    plain: "Searcher | None" = None,
    settings: ServiceSettings | None = None,
    judged: JudgedQueries | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        searcher: Index of the Boolean model.
        plain: The plain encoder's index of the same documents, to compare with; ``None``: the
            same index, searched with one vector per query.
        settings: Limits; the defaults if left out.
        judged: Judged queries, to mark results that violate them.
    """
    settings = settings or ServiceSettings()
    handlers = Handlers(searcher, plain, settings, judged)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        handlers.batcher.start()
        yield
        await handlers.batcher.close()

    app = FastAPI(
        title="boolattn",
        version=boolattn.__version__,
        description=(
            "Dense retrieval that understands and, or and not. A query has at most "
            f"{settings.max_length} characters, a search returns at most {settings.max_k} "
            f"results, a body has at most {settings.max_body} bytes, a request takes at most "
            f'{settings.timeout:g} s. Every error has the form {{"error": {{"code", "message"}}}}.'
        ),
        lifespan=lifespan,
        docs_url=None,  # both load scripts from other hosts
        redoc_url=None,
    )
    app.include_router(_api_routes(handlers))
    app.include_router(page_routes())
    leave_to_middleware(app)
    app.add_middleware(LimitsMiddleware, settings=settings, metrics=handlers.metrics)
    return app


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": schemas.ErrorReply, "description": _ERRORS[status]}
        for status in (*statuses, 401, 422, 500, 503, 504)
    }


def _api_routes(handlers: Handlers) -> APIRouter:
    router = APIRouter()

    @router.post("/search", responses=_errors(400, 408, 413))
    async def search(request: schemas.SearchRequest) -> schemas.SearchReply:
        """Search in plain language or explicit syntax."""
        return await handlers.search(request)

    @router.get("/search", responses=_errors(400))
    async def search_by_address(
        q: Text,
        k: Annotated[int, Query(ge=1, description="Number of results.")] = 10,
        mode: schemas.Mode = "auto",
        hybrid: bool = False,
        compare: bool = False,
        filters: Annotated[
            list[str] | None,
            Query(alias="filter", description="For example year>=1990; may be repeated."),
        ] = None,
    ) -> schemas.SearchReply:
        """Search by URL parameters."""
        request = schemas.SearchRequest(
            query=q,
            k=k,
            mode=mode,
            hybrid=hybrid,
            compare=compare,
            filters=parse_filters(filters) if filters else None,
        )
        return await handlers.search(request)

    @router.get("/explain", responses=_errors(400))
    async def explain(q: Text, mode: schemas.Mode = "auto") -> schemas.ExplainReply:
        """Show how a query is parsed: tree, operands, and cue, scope and bias by word."""
        return await handlers.explain(q, mode)

    @router.get("/documents/{document_id:path}", responses=_errors(404))
    async def document(document_id: str) -> schemas.DocumentReply:
        """Return the full text and the metadata of one document."""
        return await handlers.document(document_id)

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> schemas.HealthReply:
        """Check that the service is running."""
        return schemas.HealthReply(
            status="ok",
            version=boolattn.__version__,
            documents=len(handlers.searcher),
            uptime_s=round(time.monotonic() - handlers.start, 1),
        )

    @router.get("/about")
    async def about() -> schemas.AboutReply:
        """Describe the service: its index, its limits, and example queries."""
        return handlers.about()

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(handlers.metrics.text(), media_type=CONTENT_TYPE)

    return router
