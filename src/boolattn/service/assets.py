"""Routes of the page: its files, loaded once.

No postponed annotations here: FastAPI reads them when a route is made.
"""

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

from boolattn.service.errors import RefusedError

#: Media type by suffix; other files are not served.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_routes() -> APIRouter:
    """Serve the page at / and its parts below /page/."""
    router = APIRouter(include_in_schema=False)
    assets = {
        path.name: (path.read_bytes(), TYPES[path.name[path.name.rfind(".") :]])
        for path in files("boolattn.service").joinpath("page").iterdir()
        if path.name.endswith(tuple(TYPES))
    }

    def serve(name: str, request: Request) -> Response:
        if name not in assets:
            raise RefusedError(404, "not_found", "there is no such file")
        content, media_type = assets[name]
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return serve("index.html", request)

    @router.get("/page/{name}")
    async def part(name: str, request: Request) -> Response:
        return serve(name, request)

    return router
