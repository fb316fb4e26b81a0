"""The verb ``serve``: an index behind a JSON API and a page."""

from __future__ import annotations

import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click
from click import option

from boolattn.cli import joined, note, quiet_libraries
from boolattn.cli.search import index_argument, model_option, open_index
from boolattn.files import require
from boolattn.service.settings import LOOPBACK, ServiceSettings, key_from

#: Names of known models for people.
NAMES = {"shipped": "the model that comes with boolattn", "minilm": "all-MiniLM-L6-v2"}
#: Limits that are options.
_LIMITS = {limit.name: limit for limit in fields(ServiceSettings) if "help" in limit.metadata}
limit_options = joined(
    *(
        option(f"--{name.replace('_', '-')}", default=limit.default, help=limit.metadata["help"])
        for name, limit in _LIMITS.items()
    )
)


@click.command()
@index_argument
@model_option
@option("--device", help="Run the model in PyTorch: cpu, cuda.")
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="0: any free port.")
@option("--allowed-host", multiple=True, help="Name that the service has; repeatable; *: any.")
@option("--trusted-proxy", multiple=True, help="Address of a proxy that names its clients.")
@option("--api-key-env", help="Variable with the API key.")
@limit_options
@option("--batch-wait", default=2.0, help="Milliseconds to wait for a batch.")
def serve(index: str, host: str, port: int, **options: Any) -> None:
    """Serve an index: a page, a JSON API, metrics."""
    require("serve", ("fastapi", "prometheus_client", "uvicorn"), "serve")
    quiet_libraries(log_format="%(asctime)s %(message)s")
    key = options["api_key_env"]
    # An address that stands for all is no name that callers use.
    names = [host] if host not in ("", "0.0.0.0", "::") else []  # nosec B104 - not bound
    settings = ServiceSettings(
        **{name: options[name] for name in _LIMITS} | {"batch_wait": options["batch_wait"] / 1000},
        allowed_hosts=(*LOOPBACK, *map(str.lower, (*names, *options["allowed_host"]))),
        trusted_proxies=options["trusted_proxy"],
        api_key=None if key is None else key_from(key),
    )
    folder = mkdtemp(prefix="boolattn-metrics-") if settings.workers > 1 else ""
    if folder:  # read when prometheus_client is imported
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    from boolattn.service.app import Server, address_of, create_app, listen
    from boolattn.service.supervisor import supervise

    if settings.api_key is None and host not in LOOPBACK:
        note("boolattn: no API key is set: anyone who reaches this address can search")
    try:
        listeners = listen(host, port, settings.workers)
        listener, ready = supervise(listeners, address_of(listeners[0]))
    except BaseException:  # SystemExit in the process that watches
        shutil.rmtree(folder, ignore_errors=True)
        raise
    searcher = open_index(index, options["model"], device=options["device"])
    name = searcher.settings.model
    label = NAMES.get(name) or Path(name).name or "unnamed model"
    # Loads what is loaded on first use, so that the first caller does not wait.
    if len(searcher):
        searcher.search("warm-up", 1)
    # A change by one worker is seen by all.
    refresh = 0.0 if settings.workers > 1 else settings.refresh
    app = create_app(searcher, replace(settings, label=label, refresh=refresh))
    Server(app, settings, ready=ready).run(sockets=[listener])
