"""The verbs of ``boolattn data``: list and build."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click import option

from boolattn.cli import note
from boolattn.errors import ConfigError


@click.group()
def data() -> None:
    """List and build data sets."""


@data.command("list")
def list_() -> None:
    """List the data sets, their sources and their licences."""
    from boolattn.data.catalog import CATALOG

    for entry in CATALOG.values():
        click.secho(entry["name"], bold=True)
        click.echo(f"  {entry['summary']} ({entry['source']})")
        click.echo(f"  {entry['size']} ({entry['licence']})")


@data.command()
@click.argument("name", help="A name that `boolattn data list` shows.")
@option("--from", "folder", type=Path, help="Folder with the data set's files.")
@option("--size", default="small", help="Size of a generated benchmark: small or full.")
@option("--seed", default=0, help="Random seed of generated data.")
@option("--out", type=Path, help="New folder or file to write.")
@option("-n", type=click.IntRange(1), default=10_000, help="Number of sentences.")
@option("--only", multiple=True, help="Domains to build; repeatable.")
def build(name: str, out: Path | None, n: int, only: tuple[str, ...], **options: Any) -> None:
    """Write a data set: a BEIR folder, taxa or domains with a manifest, sentences as JSON lines."""
    from boolattn.data import catalog
    from boolattn.data.beir import write_beir
    from boolattn.data.sentences import generate
    from boolattn.jsonl import write_jsonl

    only = only if name == "domains" else ()
    chosen = catalog.DataOptions(**options, only=only, tell=note)
    catalog.check_name(name)
    if name in ("taxa", "domains"):
        out = out or catalog.built_folder(name, chosen)
        catalog.build_benchmark(name, out, chosen)
    elif out is None:
        raise ConfigError(f"no output given for {name}: add --out FOLDER")
    elif name == "sentences":
        write_jsonl(out, map(asdict, generate(n, chosen.seed)))
    else:
        opened = catalog.open_dataset(name, chosen)
        write_beir(out, opened.documents, opened.splits)
    click.echo(str(out))
