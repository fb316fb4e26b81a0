"""The verbs of ``boolattn data``: list, build, stats, show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, print_json
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.table import Table

    from boolattn.data.catalog import DataOptions
    from boolattn.data.negation import Negation
    from boolattn.data.records import Query
    from boolattn.data.sentences import Sentence


app = typer.Typer(help="List, build and inspect data sets.", no_args_is_help=True)

Name = Annotated[str, Argument(help="A name that `boolattn data list` shows.")]
From = Annotated[Path | None, Option("--from", help="Folder with the data set's files.")]
Size = Annotated[str, Option(help="Size of a generated benchmark: small or full.")]
Seed = Annotated[int, Option(help="Random seed of generated data.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets, their sources and their licences."""
    from boolattn.data.catalog import CATALOG

    if as_json:
        print_json([asdict(entry) for entry in CATALOG.values()])
        return
    table = _table("name", "content (source)", "size (licence)")
    for entry in CATALOG.values():
        content = f"{entry.summary}\n({entry.source})"
        table.add_row(entry.name, content, f"{entry.size}\n({entry.licence})")
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
    beir: Annotated[bool, Option("--beir", help="Write a benchmark as a BEIR folder.")] = False,
    only: Annotated[list[str] | None, Option(help="Domains to build; repeatable.")] = None,
) -> None:
    """Write a data set: a BEIR folder, taxa or domains with a manifest, sentences as JSON lines."""
    from boolattn.data import catalog
    from boolattn.data.beir import write_beir
    from boolattn.data.sentences import generate
    from boolattn.jsonl import write_jsonl

    options = _options(folder, size, seed, n)
    kind = catalog.find_entry(name).kind
    if name == "taxa" and not beir:
        out = out or catalog.taxa_folder(size)
        catalog.build_taxa(out, options)
    elif name == "domains" and not beir:
        options = replace(options, only=tuple(only or ()))
        out = out or catalog.domains_folder(options)
        catalog.build_domains(out, options)
    elif out is None:
        raise ConfigError(f"no output given for {name}: add --out FOLDER")
    elif kind == "sentences":
        write_jsonl(out, map(asdict, generate(n, seed)))
    else:
        data = catalog.open_dataset(name, options)
        write_beir(out, data.documents, data.splits)
    typer.echo(str(out))


@app.command()
def stats(
    name: Name, folder: From = None, size: Size = "small", seed: Seed = 0, as_json: AsJson = False
) -> None:
    """Count documents, and queries or other records by split and template."""
    from boolattn.data.catalog import find_entry, open_dataset, open_negation
    from boolattn.data.sentences import generate

    options, kind = _options(folder, size, seed, 1000), find_entry(name).kind
    n_documents, coverage, records = 0, {}, dict[str, Iterable[Any]]()
    if kind == "negation":
        records = dict(open_negation(name, folder))
    elif kind == "sentences":  # a sample: they are generated without end
        records = {name: generate(options.n, seed)}
    else:
        data = open_dataset(name, options)
        n_documents, records, name = len(data.documents), dict(data.splits), data.name
        coverage = {part: asdict(own) for part, own in getattr(data, "coverage", {}).items()}
    splits = {split: dict(Counter(map(_group, own))) for split, own in records.items()}
    if as_json:
        values = {"name": name, "n_documents": n_documents, "coverage": coverage}
        print_json(values | {"splits": splits})
        return
    lines = [f"{name}: {n_documents:,} documents"] * bool(n_documents)
    lines += [
        f"{split}: kept {counts['n_kept']:,} of {counts['n_queries']:,} queries, "
        f"{counts['n_gold_kept']:,} of {counts['n_gold']:,} gold documents"
        for split, counts in coverage.items()
    ]
    table = _table("split", "template", "records")
    for split, counts in splits.items():
        for template, n in counts.items():
            table.add_row(split, template, f"{n:,}")
    console().print(*lines, table, sep="\n")


@app.command()
def show(  # noqa: PLR0913 - options of a command line
    name: Name,
    split: Annotated[str, Option(help="Only this split.")] = "",
    n: Annotated[int, Option("-n", min=1, help="Examples of each split.")] = 3,
    template: Annotated[str, Option(help="Only queries of this template.")] = "",
    folder: From = None,
    size: Size = "small",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show a few examples of each split."""
    from boolattn.data.catalog import find_entry, open_dataset, open_negation
    from boolattn.data.sentences import generate

    kind = find_entry(name).kind
    options = _options(folder, size, seed, n)
    lines: Callable[[Any], Iterable[str]]
    if kind == "negation":
        records, lines = open_negation(name, folder), _negation_lines
        examples = _examples(records, split, n, lambda record: record.has_negation)
    elif kind == "sentences":
        examples, lines = {name: list(generate(n, seed))}, _sentence_lines
    else:
        data = open_dataset(name, replace(options, splits=(split,)))
        titles = {document.id: document.title for document in data.documents}
        lines = partial(_query_lines, titles=titles)
        examples = _examples(data.splits, split, n, lambda q: template in ("", q.template))
    if as_json:
        print_json({part: [asdict(record) for record in rs] for part, rs in examples.items()})
        return
    for part, found in examples.items():
        for record in found:
            typer.echo(f"{part}  " + "\n    ".join(lines(record)))


def _group(record: object) -> str:
    """Return a record's template, or its operators."""
    operators = (operator.value for operator in getattr(record, "operators", ()))
    return getattr(record, "template", "") or " ".join(operators)


def _options(folder: Path | None, size: str, seed: int, n: int) -> DataOptions:
    from boolattn.data.catalog import DataOptions

    return DataOptions(folder=folder, size=size, seed=seed, n=n, tell=note)


def _examples(
    splits: Mapping[str, Iterable[Any]], split: str, n: int, is_chosen: Callable[[Any], bool]
) -> dict[str, list[Any]]:
    """Take the chosen records of one split, or of each, at equal distances."""
    if split and split not in splits:
        raise ConfigError(f"no split {split!r}; there are {', '.join(splits)}")
    found = {name: list(filter(is_chosen, splits[name])) for name in ([split] if split else splits)}
    return {name: records[:: max(1, len(records) // n)][:n] for name, records in found.items()}


def _query_lines(query: Query, titles: Mapping[str, str]) -> Iterator[str]:
    yield query.text
    yield f"{query.id}  {query.template}  {query.domain}".rstrip()
    if query.operands:
        yield "operands: " + " | ".join(operand.text for operand in query.operands)
    for name in ("gold", "excluded", "partial"):
        found = sorted(titles.get(document) or document for document in getattr(query, name))
        if found:
            more = ", …" if len(found) > 3 else ""
            yield f"{name} {len(found)}: {', '.join(found[:3])}{more}"


def _negation_lines(record: Negation) -> Iterator[str]:
    """Mark cues with brackets and scopes with underlines: ``It does [n't] _boil_``."""
    words = zip(record.tokens, record.cue, record.scope, strict=True)
    yield " ".join(f"[{w}]" if cue else f"_{w}_" if scope else w for w, cue, scope in words)
    yield record.source


def _sentence_lines(sentence: Sentence) -> Iterator[str]:
    yield sentence.text
    yield f"{sentence.template}  cues: " + " | ".join(
        f"{cue.operator.value} {sentence.text[cue.start : cue.end]!r}" for cue in sentence.cues
    )


def _table(*columns: str) -> Table:
    """Make a table; columns of counts are aligned to the right."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        is_text = column in ("name", "template", "split") or "(" in column
        is_name = column in ("name", "template")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=is_name)
    return table
