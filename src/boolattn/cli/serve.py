"""The verb ``serve``: an index behind a JSON API and a page."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from boolattn.cli.output import note, quiet_libraries
from boolattn.cli.search import ADDRESS_HELP, open_index
from boolattn.errors import ConfigError
from boolattn.files import require

if TYPE_CHECKING:
    from boolattn.search import Searcher
    from boolattn.service.settings import ServiceSettings

#: Names of known models for people.
NAMES = {"shipped": "the model that comes with boolattn", "minilm": "all-MiniLM-L6-v2"}


def serve(  # noqa: PLR0913 - options of a command line
    context: typer.Context,
    index: Annotated[str, Argument(metavar="ADDRESS", help=ADDRESS_HELP)],
    plain_index: Annotated[
        str | None,
        Option(help="Another model's index of the same documents, to compare with."),
    ] = None,
    compare: Annotated[bool, Option(help="Offer a comparison with plain search.")] = True,
    model: Annotated[str | None, Option(help="Default: the model named by the index.")] = None,
    device: Annotated[str | None, Option(help="Run the model in PyTorch: cpu, cuda.")] = None,
    label: Annotated[str | None, Option(help="Name of the model on the page.")] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(max=65535, help="Port to listen on; 0: any free port.")] = 8000,
    allowed_host: Annotated[
        list[str] | None, Option(help="Name under which the service is asked; repeatable; *: any.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, Option(help="Address of a proxy that names its clients; repeatable.")
    ] = None,
    api_key_env: Annotated[str | None, Option(help="Variable with the API key.")] = None,
    max_length: Annotated[int, Option(help="Most characters of a query.")] = 1000,
    max_k: Annotated[int, Option(help="Maximum number of results.")] = 100,
    max_body: Annotated[int, Option(help="Most bytes of a request.")] = 65_536,
    max_upload: Annotated[int, Option(help="Most bytes of documents in a request.")] = 1 << 24,
    max_work: Annotated[int, Option(help="Most operands of a query times its candidates.")] = 1
    << 15,
    concurrency: Annotated[int, Option(help="Most active requests.")] = 64,
    per_client: Annotated[int, Option(help="Most active requests of one client.")] = 48,
    timeout: Annotated[float, Option(help="Seconds that a request may take.")] = 10.0,
    batch_size: Annotated[int, Option(help="Queries of a batch; 1: no batching.")] = 32,
    batch_wait: Annotated[float, Option(help="Milliseconds to wait for a batch.")] = 2.0,
) -> None:
    """Serve an index: a page, a JSON API, metrics."""
    require("serve", ("fastapi", "prometheus_client", "uvicorn"), "serve")
    quiet_libraries(log_format="%(asctime)s %(message)s")
    from boolattn.service.settings import LOOPBACK, ServiceSettings, key_from

    if plain_index is not None and not compare:
        raise ConfigError("--plain-index cannot be used with --no-compare")
    names = {field.name for field in fields(ServiceSettings)}
    settings = ServiceSettings(
        **{name: value for name, value in context.params.items() if name in names - {"label"}}
        | {"batch_wait": batch_wait / 1000},
        allowed_hosts=(*LOOPBACK, *_names(host), *map(str.lower, allowed_host or ())),
        trusted_proxies=tuple(trusted_proxy or ()),
        api_key=None if api_key_env is None else key_from(api_key_env),
    )
    searcher = open_index(index, model or "", device=device)
    settings = replace(settings, label=label or _name(searcher))
    plain = None
    if plain_index is not None:
        plain = open_index(plain_index)
        settings = replace(settings, plain_label=f"{_name(plain)}, one vector")
        if len(plain) != len(searcher):
            raise ConfigError(
                f"the plain index has {len(plain)} documents and the other {len(searcher)}; "
                "index the same documents with both models"
            )
    _run(searcher, plain, settings, (host, port))


def _names(host: str) -> list[str]:
    """Return the name that callers use; none for an address that stands for all."""
    return [host.lower()] if host not in ("", "0.0.0.0", "::") else []  # nosec B104 - not bound


def _name(searcher: Searcher) -> str:
    name = searcher.settings.model
    return NAMES.get(name) or Path(name).name or "unnamed model"


def _run(
    searcher: Searcher,
    plain: Searcher | None,
    settings: ServiceSettings,
    address: tuple[str, int],
) -> None:
    from boolattn.service.app import create_app
    from boolattn.service.server import Server, address_of, listen
    from boolattn.service.settings import LOOPBACK

    listener = listen(*address)
    # Loads what is loaded on first use, so that the first caller does not wait.
    for system in (searcher, plain):
        if system is not None and len(system):
            system.search("warm-up", 1)
    if settings.api_key is None and address[0] not in LOOPBACK:
        note("boolattn: no API key is set: anyone who reaches this address can search")

    app = create_app(searcher, plain, settings)
    ready = partial(typer.echo, address_of(listener))
    Server(app, settings, ready=ready).run(sockets=[listener])
