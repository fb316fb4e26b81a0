"""The verb ``serve``: an index behind a JSON API and a page.

May import: boolattn.service, boolattn.search.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boolattn.errors import ConfigError, MissingDataError

if TYPE_CHECKING:
    from boolattn.search import Searcher
    from boolattn.service.judgements import JudgedQueries
    from boolattn.service.settings import ServiceSettings

#: Models that an index names by one word.
NAMES = {"shipped": "the shipped model", "minilm": "all-MiniLM-L6-v2"}
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(  # noqa: PLR0913 - options of a command line
    index: Annotated[Path, typer.Argument(help="Folder of the index.")],
    plain_index: Annotated[
        Path | None,
        typer.Option(help="The plain encoder's index of the same documents, to compare with."),
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Show the plain encoder beside the Boolean model.")
    ] = True,
    judgements: Annotated[
        list[Path] | None,
        typer.Option(help="JSON lines with text, gold, excluded: marks results that violate."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model; left out, the one that the index names.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="What the page calls the model; left out, its name.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the API key.")
    ] = None,
    max_length: Annotated[int, typer.Option(help="Characters of a query.")] = 1000,
    max_k: Annotated[int, typer.Option(help="Results of a search.")] = 100,
    max_body: Annotated[int, typer.Option(help="Bytes of a request's body.")] = 65_536,
    concurrency: Annotated[int, typer.Option(help="Requests under way at once.")] = 64,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 10.0,
    batch_size: Annotated[int, typer.Option(help="Queries in one call; 1: no batching.")] = 32,
    batch_wait: Annotated[float, typer.Option(help="Milliseconds to wait for more.")] = 2.0,
) -> None:
    """Serve an index: a page, a JSON API, metrics."""
    _prepare()
    from boolattn.service.judgements import read_judgements
    from boolattn.service.settings import ServiceSettings, key_from

    if plain_index is not None and not compare:
        raise ConfigError("--plain-index cannot be used with --no-compare")
    limits = ServiceSettings(
        max_length=max_length,
        max_k=max_k,
        max_body=max_body,
        concurrency=concurrency,
        timeout=timeout,
        batch_size=batch_size,
        batch_wait=batch_wait / 1000,
        compare=compare,
        api_key=None if api_key_env is None else key_from(api_key_env),
    )
    judged = read_judgements(judgements or [])
    searcher = _open(index, model)
    plain = None if plain_index is None else _open(plain_index, None)
    _check_same(searcher, plain)
    _run(searcher, plain, _labelled(limits, searcher, plain, label), judged, (host, port))


def _prepare() -> None:
    """Send requests and errors to stderr, and the libraries' own talk nowhere."""
    try:
        import fastapi  # noqa: F401 - the extra may not be installed
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDataError("serving needs FastAPI; pip install 'boolattn[serve]'") from error
    from transformers.utils.logging import disable_progress_bar

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "transformers", "uvicorn", "faiss"):
        logging.getLogger(name).setLevel(logging.WARNING)
    disable_progress_bar()


def _open(folder: Path, model: str | None) -> Searcher:
    from boolattn.search import Searcher, load_model

    return Searcher.open(folder, None if model is None else load_model(model))


def _check_same(searcher: Searcher, plain: Searcher | None) -> None:
    if plain is not None and len(plain) != len(searcher):
        raise ConfigError(
            f"the plain index holds {len(plain)} documents and the other {len(searcher)}; "
            "index the same documents with both models"
        )


def _labelled(
    settings: ServiceSettings, searcher: Searcher, plain: Searcher | None, label: str | None
) -> ServiceSettings:
    """Name the models for people."""
    beside = settings.plain_label if plain is None else _name(plain)
    return replace(settings, label=label or _name(searcher), plain_label=beside)


def _name(searcher: Searcher) -> str:
    name = searcher.manifest.model
    return NAMES.get(name) or Path(name).name or "a model without a name"


def _run(
    searcher: Searcher,
    plain: Searcher | None,
    settings: ServiceSettings,
    judged: JudgedQueries,
    address: tuple[str, int],
) -> None:
    from boolattn.service.app import create_app
    from boolattn.service.server import address_of, listen, make_server

    host, _ = address
    taken = listen(*address)
    where = address_of(taken)
    # One search wakes what is loaded lazily, so that the first caller does not wait for it.
    for own in (searcher, plain):
        if own is not None and len(own):
            own.search("wake up", 1)
    if settings.api_key is None and host not in LOOPBACK:
        typer.echo("boolattn: no API key is set: whoever reaches this address can search", err=True)

    def ready() -> None:
        typer.echo(where)

    app = create_app(searcher, plain, settings, judged)
    make_server(app, timeout=settings.timeout, ready=ready).run(sockets=[taken])
