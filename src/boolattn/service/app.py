"""The web application around an open index.

No postponed annotations here: FastAPI reads them when a route is made. May import:
boolattn.service, boolattn.search.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response

import boolattn
from boolattn.search.filters import parse_filters
from boolattn.service.assets import load_page
from boolattn.service.errors import RefusedError, leave_to_guard
from boolattn.service.handlers import Desk
from boolattn.service.judgements import KnownQueries
from boolattn.service.metrics import CONTENT_TYPE
from boolattn.service.middleware import Guard
from boolattn.service.schemas import (
    QUERY,
    AboutReply,
    DocumentReply,
    ErrorReply,
    ExplainReply,
    HealthReply,
    Mode,
    SearchReply,
    SearchRequest,
)
from boolattn.service.settings import ServiceSettings

if TYPE_CHECKING:
    from boolattn.search import Searcher

_WORDS = {
    400: "The query, or the body, cannot be read.",
    401: "The API key is missing or wrong.",
    404: "There is no such document.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    422: "A value is wrong, or over a limit.",
    500: "Something went wrong; the log knows it by its id.",
    503: "Too many requests are under way; come back after Retry-After seconds.",
    504: "It took too long.",
}
Text = Annotated[str, Query(description="The query.", examples=[QUERY])]


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": ErrorReply, "description": _WORDS[status]}
        for status in (*statuses, 401, 422, 500, 503, 504)
    }


def create_app(
    searcher: "Searcher",
    plain: "Searcher | None" = None,
    settings: ServiceSettings | None = None,
    known: KnownQueries | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        searcher: The Boolean model's index.
        plain: The plain encoder's index of the same documents, to compare with; ``None``: the
            same index is searched by the query's one vector.
        settings: Limits; left out, the defaults.
        known: What is known of some queries, to mark results that violate them.
    """
    settings = settings or ServiceSettings()
    desk = Desk(searcher, plain, settings, known)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        desk.batcher.start()
        yield
        await desk.batcher.close()

    app = FastAPI(
        title="boolattn",
        version=boolattn.__version__,
        description=(
            "Dense retrieval that understands and, or and not. A query has at most "
            f"{settings.max_length} characters, a search returns at most {settings.max_k} "
            f"results, a body has at most {settings.max_body} bytes, an answer takes at most "
            f"{settings.timeout:g} s. Every error has the form "
            '{"error": {"code", "message"}}.'
        ),
        lifespan=lifespan,
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
    )
    app.state.desk = desk
    app.include_router(_api(desk))
    app.include_router(_page())
    leave_to_guard(app)
    app.add_middleware(Guard, settings=settings, metrics=desk.metrics)
    return app


def _api(desk: Desk) -> APIRouter:
    router = APIRouter()

    @router.post("/search", responses=_refusals(400, 408, 413))
    async def search(request: SearchRequest) -> SearchReply:
        """Search in plain language or explicit syntax."""
        return await desk.search(request)

    @router.get("/search", responses=_refusals(400))
    async def search_by_address(
        q: Text,
        k: Annotated[int, Query(ge=1, description="Number of results.")] = 10,
        mode: Mode = "auto",
        hybrid: bool = False,
        compare: bool = False,
        filters: Annotated[
            list[str] | None,
            Query(alias="filter", description="As year>=1990 or country=Peru, once or often."),
        ] = None,
    ) -> SearchReply:
        """Search by address."""
        request = SearchRequest(
            query=q,
            k=k,
            mode=mode,
            hybrid=hybrid,
            compare=compare,
            filters=parse_filters(filters) if filters else None,
        )
        return await desk.search(request)

    @router.get("/explain", responses=_refusals(400))
    async def explain(q: Text, mode: Mode = "auto") -> ExplainReply:
        """Say how a query is read: tree, operands, and cue, scope and bias by word."""
        return await desk.explain(q, mode)

    @router.get("/documents/{document_id:path}", responses=_refusals(404))
    async def document(document_id: str) -> DocumentReply:
        """Return one document, whole."""
        return await desk.document(document_id)

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> HealthReply:
        """Say that the service can answer."""
        return HealthReply(
            status="ok",
            version=boolattn.__version__,
            documents=len(desk.searcher),
            uptime_s=round(time.monotonic() - desk.start, 1),
        )

    @router.get("/about")
    async def about() -> AboutReply:
        """Say what the service searches, its limits, and some queries to try."""
        return desk.about()

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(desk.metrics.text(), media_type=CONTENT_TYPE)

    return router


def _page() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    assets = load_page()

    def answer(name: str, request: Request) -> Response:
        asset = assets.get(name)
        if asset is None:
            raise RefusedError(404, "not_found", "there is no such file")
        headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == asset.tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.kind, headers=headers)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return answer("index.html", request)

    @router.get("/page/{name}")
    async def part(name: str, request: Request) -> Response:
        return answer(name, request)

    return router
