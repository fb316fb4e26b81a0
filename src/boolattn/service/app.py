"""The web application: routes of the JSON API over an open index, and of the page.

No postponed annotations here: FastAPI reads them when a route is made.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException

import boolattn
from boolattn.service import schemas
from boolattn.service.errors import raise_again
from boolattn.service.handlers import Handlers
from boolattn.service.middleware import LimitsMiddleware
from boolattn.service.settings import ServiceSettings

if TYPE_CHECKING:
    from boolattn.search import Searcher


def create_app(searcher: "Searcher", settings: ServiceSettings | None = None) -> FastAPI:
    """Build the application over an index."""
    settings = settings or ServiceSettings()
    handlers = Handlers(searcher, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        handlers.batcher.start()
        yield
        await handlers.close()

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
        redirect_slashes=False,
        exception_handlers={RequestValidationError: raise_again, HTTPException: raise_again},
    )
    app.state.stop = handlers.stopping.set
    app.include_router(_api_routes(handlers))
    page = StaticFiles(packages=[("boolattn.service", "page")], html=True)
    app.mount("/page", page)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    app.add_middleware(
        LimitsMiddleware,
        settings=settings,
        metrics=handlers.metrics,
        is_stopping=handlers.stopping.is_set,
    )
    return app


def _example(name: str, kind: str = "application/json") -> dict[int | str, dict[str, Any]]:
    """Return the example of a reply for the OpenAPI description."""
    examples = json.loads(files("boolattn.service").joinpath("examples.json").read_text("utf-8"))
    return {200: {"content": {kind: {"example": examples[name]}}}}


def _api_routes(handlers: Handlers) -> APIRouter:
    router = APIRouter(
        responses={
            kind: {"model": schemas.ErrorReply, "description": text}
            for kind, text in schemas.ERRORS.items()
        }
    )
    document = "/documents/{document_id:path}"
    router.post("/search", responses=_example("search"))(handlers.search)
    router.get("/search", responses=_example("search"))(handlers.search_by_address)
    router.get("/explain", responses=_example("explain"))(handlers.explain)
    router.get(document, responses=_example("document"))(handlers.document)
    router.delete(document, responses=_example("change"))(handlers.delete)
    router.post("/documents", responses=_example("change"))(handlers.add)
    for name in ("health", "about", "examples", "facets"):
        router.get(f"/{name}", responses=_example(name))(getattr(handlers, name))

    @router.get(
        "/metrics", response_class=PlainTextResponse, responses=_example("metrics", "text/plain")
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        text = await asyncio.to_thread(handlers.metrics.text)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
