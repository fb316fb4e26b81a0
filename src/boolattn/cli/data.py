"""The verbs of ``boolattn data``: list, build, stats."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, print_json
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from boolattn.data.records import Query


app = typer.Typer(help="List, build and count data sets.", no_args_is_help=True)

Name = Annotated[str, Argument(help="A name that `boolattn data list` shows.")]
From = Annotated[Path | None, Option("--from", help="Folder with the data set's files.")]
Size = Annotated[str, Option(help="Size of a generated benchmark: small or full.")]
Seed = Annotated[int, Option(help="Random seed of generated data.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets, their sources and their licences."""
    from rich.box import SIMPLE
    from rich.table import Table

    from boolattn.data.catalog import CATALOG

    if as_json:
        print_json(list(CATALOG.values()))
        return
    table = Table("name", "content (source)", "size (licence)", box=SIMPLE, pad_edge=False)
    for entry in CATALOG.values():
        content = f"{entry['summary']}\n({entry['source']})"
        table.add_row(entry["name"], content, f"{entry['size']}\n({entry['licence']})")
        table.add_section()
    console().print(table)


@app.command()
def build(  # noqa: PLR0913 - options of a command line
    name: Name,
    out: Annotated[Path | None, Option(help="New folder or file to write.")] = None,
    folder: From = None,
    size: Size = "small",
    seed: Seed = 0,
    n: Annotated[int, Option("-n", min=1, help="Number of sentences.")] = 10_000,
    only: Annotated[list[str] | None, Option(help="Domains to build; repeatable.")] = None,
) -> None:
    """Write a data set: a BEIR folder, taxa or domains with a manifest, sentences as JSON lines."""
    from boolattn.data import catalog
    from boolattn.data.beir import write_beir
    from boolattn.data.sentences import generate
    from boolattn.jsonl import write_jsonl

    options = catalog.DataOptions(folder=folder, size=size, seed=seed, tell=note)
    catalog.check_name(name)
    if name in ("taxa", "domains"):
        options = replace(options, only=tuple(only or ()) if name == "domains" else ())
        out = out or catalog.built_folder(name, options)
        catalog.build_benchmark(name, out, options)
    elif out is None:
        raise ConfigError(f"no output given for {name}: add --out FOLDER")
    elif name == "sentences":
        write_jsonl(out, map(asdict, generate(n, seed)))
    else:
        data = catalog.open_dataset(name, options)
        write_beir(out, data.documents, data.splits)
    typer.echo(str(out))


@app.command()
def stats(
    name: Name, folder: From = None, size: Size = "small", seed: Seed = 0, as_json: AsJson = False
) -> None:
    """Count documents, and queries by split and template."""
    from rich.box import SIMPLE
    from rich.table import Table

    from boolattn.data.catalog import DataOptions, open_dataset

    data = open_dataset(name, DataOptions(folder=folder, size=size, seed=seed, tell=note))
    splits = {split: dict(Counter(map(_group, queries))) for split, queries in data.splits.items()}
    if as_json:
        counted = {"name": data.name, "n_documents": len(data.documents), "splits": splits}
        print_json(counted)
        return
    table = Table("split", "template", "queries", box=SIMPLE, pad_edge=False)
    table.columns[-1].justify = "right"
    for split, counts in splits.items():
        for template, n_queries in counts.items():
            table.add_row(split, template, f"{n_queries:,}")
    console().print(f"{data.name}: {len(data.documents):,} documents", table, sep="\n")


def _group(query: Query) -> str:
    """Return a query's template, or its operators."""
    return query.template or " ".join(operator.value for operator in query.operators)
