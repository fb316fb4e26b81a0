"""The verbs of ``boolattn data``: list, build, show, stats.

Results go to stdout, everything else to stderr. May import: boolattn.data.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.table import Table

    from boolattn.data.catalog import Options
    from boolattn.data.negation import Negation
    from boolattn.data.records import Dataset, Query
    from boolattn.data.sentences import Sentence

T = TypeVar("T")

_QUERY_COUNTS = ("queries", "gold", "excluded", "partial")
_NEGATION_COUNTS = ("records", "negations", "tokens", "cue tokens", "scope tokens")
_COUNTS = frozenset(_QUERY_COUNTS + _NEGATION_COUNTS)

app = typer.Typer(help="Data sets: what there is, and what is in it.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Of the names that `boolattn data list` gives.")]
From = Annotated[Path | None, typer.Option("--from", help="Folder with the data set's files.")]
Size = Annotated[str, typer.Option(help="Of a benchmark that is built: small or full.")]
Seed = Annotated[int, typer.Option(help="For what is generated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets, where they come from and their licences."""
    from boolattn.data.catalog import CATALOG

    if as_json:
        _print_json([asdict(entry) for entry in CATALOG.values()])
        return
    table = _table("name", "what and whence", "size and licence")
    for entry in CATALOG.values():
        what = f"{entry.summary}\n({entry.source})"
        table.add_row(entry.name, what, f"{entry.size}\n({entry.licence})")
        table.add_section()
    _print(table)


@app.command()
def build(  # noqa: PLR0913 - one parameter for each option
    name: Name,
    out: Annotated[
        Path | None, typer.Option(help="What to write; it must not be there yet.")
    ] = None,
    folder: From = None,
    size: Size = "small",
    seed: Seed = 0,
    n: Annotated[int, typer.Option("-n", min=1, help="How many sentences.")] = 10_000,
    beir: Annotated[bool, typer.Option("--beir", help="Write taxa as a BEIR folder.")] = False,
) -> None:
    """Write a data set: a BEIR folder, taxa with their manifest, sentences as JSON lines."""
    from boolattn.data.beir import write_beir
    from boolattn.data.catalog import (
        build_taxa,
        find_entry,
        open_dataset,
        open_sentences,
        taxa_folder,
    )
    from boolattn.jsonl import write_jsonl

    options = _options(folder, size, seed, n)
    kind = find_entry(name).kind
    if name == "taxa" and not beir:
        out = out or taxa_folder(size)
        build_taxa(out, options)
    elif out is None:
        raise ConfigError(f"where shall {name} be written? say it with --out")
    elif kind == "sentences":
        write_jsonl(out, map(asdict, open_sentences(options)))
    else:
        data = open_dataset(name, options)
        write_beir(out, data.documents, data.splits)
    typer.echo(str(out))


@app.command()
def stats(
    name: Name,
    folder: From = None,
    size: Size = "small",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Count documents, and queries by split and template."""
    from boolattn.data.catalog import find_entry, open_dataset

    kind = find_entry(name).kind
    options = _options(folder, size, seed, 1000)
    if kind == "negation":
        _negation_stats(name, folder, as_json)
    elif kind == "sentences":
        _sentence_stats(options, as_json)
    else:
        counts = _stats(open_dataset(name, options))
        _print_json(counts) if as_json else _print_stats(counts)


@app.command()
def show(  # noqa: PLR0913 - one parameter for each option
    name: Name,
    split: Annotated[str, typer.Option(help="Only this split.")] = "",
    n: Annotated[int, typer.Option("-n", min=1, help="Examples of each split.")] = 3,
    template: Annotated[str, typer.Option(help="Only queries of this template.")] = "",
    folder: From = None,
    size: Size = "small",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show a few examples of each split, spread over it."""
    from boolattn.data.catalog import find_entry, open_dataset, open_negation, open_sentences

    kind = find_entry(name).kind
    options = _options(folder, size, seed, n)
    if kind == "negation":
        records = _chosen(open_negation(name, folder), split)
        examples = {part: _spread([r for r in rs if r.has_negation], n) for part, rs in records}
        _print_examples(examples, _negation_lines, as_json)
    elif kind == "sentences":
        _print_examples({name: list(open_sentences(options))}, _sentence_lines, as_json)
    else:
        data = open_dataset(name, options)
        titles = {document.id: document.title for document in data.documents}
        queries = {
            part: _spread([q for q in queries if not template or q.template == template], n)
            for part, queries in _chosen(data.splits, split)
        }
        _print_examples(queries, lambda query: _query_lines(query, titles), as_json)


def _options(folder: Path | None, size: str, seed: int, n: int) -> Options:
    from boolattn.data.catalog import Options

    def tell(line: str) -> None:
        typer.echo(line, err=True)

    return Options(folder=folder, size=size, seed=seed, n=n, tell=tell)


def _chosen(splits: Mapping[str, T], split: str) -> list[tuple[str, T]]:
    if split and split not in splits:
        raise ConfigError(f"no split {split!r}; there are {', '.join(splits)}")
    return [(name, part) for name, part in splits.items() if name == split or not split]


def _spread(records: Sequence[T], n: int) -> list[T]:
    step = max(1, len(records) // n)
    return list(records[::step][:n])


def _stats(data: Dataset) -> dict[str, Any]:
    from boolattn.data.counts import count_by_template, count_queries

    splits = {
        split: {
            "all": asdict(count_queries(queries)),
            "templates": {t: asdict(c) for t, c in count_by_template(queries).items()},
        }
        for split, queries in data.splits.items()
    }
    coverage = getattr(data, "coverage", {})
    return {
        "name": data.name,
        "n_documents": len(data.documents),
        "coverage": {split: asdict(counts) for split, counts in coverage.items()},
        "splits": splits,
    }


def _print_stats(stats: Mapping[str, Any]) -> None:
    lines = [f"{stats['name']}: {stats['n_documents']:,} documents"]
    for split, counts in stats["coverage"].items():
        lines.append(
            f"{split}: kept {counts['n_kept']:,} of {counts['n_queries']:,} queries, "
            f"{counts['n_gold_kept']:,} of {counts['n_gold']:,} gold documents"
        )
    typer.echo("\n".join(lines))
    table = _table("split", "template", *_QUERY_COUNTS)
    for split, counts in stats["splits"].items():
        for template, row in {**counts["templates"], "all": counts["all"]}.items():
            means = (f"{row[f'mean_{name}']:.1f}" for name in _QUERY_COUNTS[1:])
            table.add_row(split, template, f"{row['n_queries']:,}", *means)
        table.add_section()
    _print(table)


def _negation_stats(name: str, folder: Path | None, as_json: bool) -> None:
    from boolattn.data.catalog import open_negation
    from boolattn.data.counts import count_negations

    counts = {
        split: asdict(count_negations(records))
        for split, records in open_negation(name, folder).items()
    }
    if as_json:
        _print_json({"name": name, "splits": counts})
        return
    table = _table("split", *_NEGATION_COUNTS)
    for split, row in counts.items():
        table.add_row(split, *(f"{count:,}" for count in row.values()))
    _print(table)


def _sentence_stats(options: Options, as_json: bool) -> None:
    """Count the templates of a sample, because there are as many sentences as one asks for."""
    from boolattn.data.catalog import open_sentences

    counts = Counter(sentence.template for sentence in open_sentences(options))
    if as_json:
        _print_json({"name": "sentences", "templates": counts})
        return
    table = _table("template", "records")
    for template, count in counts.most_common():
        table.add_row(template, f"{count:,}")
    _print(table)


def _print_examples(
    examples: Mapping[str, Sequence[Any]], lines: Callable[[Any], Iterable[str]], as_json: bool
) -> None:
    if as_json:
        plain = {split: [asdict(record) for record in found] for split, found in examples.items()}
        _print_json(plain)
        return
    for split, records in examples.items():
        for record in records:
            first, *rest = lines(record)
            typer.echo("\n    ".join([f"{split}  {first}", *rest]))


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
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        is_count = column in _COUNTS
        table.add_column(
            column, justify="right" if is_count else "left", no_wrap=column in ("name", "template")
        )
    return table


def _print(table: Table) -> None:
    from rich.console import Console

    # Texts hold brackets that are no markup, such as [SEP].
    Console(markup=False, highlight=False, emoji=False).print(table)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, default=sorted))
