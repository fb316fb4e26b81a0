"""The verbs ``index`` and ``search``."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boolattn.cli.output import AsJson, console, note, print_json, quiet_libraries
from boolattn.errors import ConfigError, QuerySyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table
    from rich.text import Text

    from boolattn.search import Hit, Searcher, SearchResult

#: Characters of a text in the table.
SNIPPET = 160
_OPERATORS = {"AND": "bold green", "OR": "bold cyan", "NOT": "bold red"}
_OPERANDS = ("yellow", "blue", "magenta", "cyan", "green")
#: Verdicts for people.
_VERDICTS = {"put down": "ranked lower"}


def index(  # noqa: PLR0913 - options of a command line
    documents: Annotated[Path, typer.Argument(help="A .jsonl, .csv or .parquet file.")],
    out: Annotated[Path, typer.Option(help="Folder of the index.")],
    model: Annotated[str, typer.Option(help="shipped (default), minilm, or a model folder.")] = "",
    engine: Annotated[str, typer.Option(help="flat (exact), ivf, hnsw or milvus.")] = "flat",
    uri: Annotated[str, typer.Option(help="Milvus: a file name or an address.")] = "",
    lexical: Annotated[bool, typer.Option(help="Index words too, for --hybrid.")] = True,
    append: Annotated[bool, typer.Option("--append", help="Add documents to an index.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Add documents; replace those with the same id.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a build that stopped.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing index.")] = False,
    ray: Annotated[
        str, typer.Option(metavar="local|ADDRESS", help="Encode with Ray, here or on a cluster.")
    ] = "",
    batch_size: Annotated[
        int | None, typer.Option(help="Documents encoded at once; default: by the device.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index documents: vectors, words and metadata in one folder."""
    if (append or update) and (resume or replace):
        raise ConfigError(
            "--append and --update add to an index, --resume and --replace build one; choose one"
        )
    # Before a model is loaded, because this is the most common mistake.
    if not documents.is_file():
        raise ConfigError(f"there is no file {documents}")
    from boolattn.embedding.models import SHIPPED, absolute_name
    from boolattn.search import Searcher, load_model
    from boolattn.search.document_files import read_documents

    start = time.perf_counter()
    quiet_libraries()
    # An index that exists names its model itself.
    opened = None
    if append or update:
        opened = Searcher.open(out, load_model(model) if model else None)
    name = model or (opened.manifest.model if opened else SHIPPED)
    retriever = opened.retriever if opened else load_model(name)
    with _progress() as tell, _encoder(ray, name, retriever.fingerprint, batch_size) as encode:
        if opened is not None:
            searcher = opened
            searcher.add(read_documents(documents), replace_old=update, encode=encode, tell=tell)
        else:
            searcher = Searcher.build(
                out,
                read_documents(documents),
                retriever,
                encode=encode,
                tell=tell,
                engine=engine,
                uri=uri if "://" in uri or not uri else str(Path(uri).resolve()),
                lexical=lexical,
                model=absolute_name(name),
                batch_size=batch_size,
                resume=resume,
                replace=replace,
            )
    _print_summary(searcher, time.perf_counter() - start, as_json=as_json)


def search(  # noqa: PLR0913 - options of a command line
    index: Annotated[Path, typer.Argument(help="Folder of the index.")],
    query: Annotated[str, typer.Argument(help='Plain language, or "moths AND Borneo NOT Java".')],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results.")] = 10,
    mode: Annotated[
        str, typer.Option(help="Syntax of the query: auto, plain or explicit.")
    ] = "auto",
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="Also !=, >=, >, <=, <; repeatable."),
    ] = None,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Add lexical search.")] = False,
    strict_not: Annotated[
        bool, typer.Option("--strict-not", help="Remove documents with a negated operand's words.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Search with one vector, without composition.")
    ] = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Score all documents, not only candidates.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show probabilities, and documents that are ranked lower."),
    ] = False,
    model: Annotated[str, typer.Option(help="Default: the model named by the index.")] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the hashes of all files of the index.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search an index."""
    from boolattn.search import Searcher, load_model
    from boolattn.search.filters import parse_filters

    quiet_libraries()
    conditions = parse_filters(filters or [])
    searcher = Searcher.open(index, load_model(model) if model else None, verify=verify)
    try:
        result = searcher.search(
            query,
            k=k,
            mode=mode,
            filters=conditions,
            hybrid=hybrid,
            compose=not plain,
            strict_not=strict_not,
            exhaustive=exhaustive,
            explain=explain,
        )
    except QuerySyntaxError as error:
        note(error.pointer())
        raise
    if as_json:
        print_json(result.to_dict())
    else:
        _print_result(result, explain=explain)


def _print_result(result: SearchResult, *, explain: bool) -> None:
    """Print the parsed query to stderr and the results to stdout."""
    out, err = console(markup=True), console(stderr=True)
    err.print(coloured_query(result))
    if result.is_composed:
        err.print("parsed as", _coloured_tree(result.tree_text), end="")
        err.print(f"   (confidence {result.confidence:.0%})", style="dim")
    elif result.parsed != result.tree:
        err.print("parsed as", _coloured_tree(result.parsed_text), end="")
        err.print(f"   (confidence {result.confidence:.0%}, too low: one vector)", style="dim")
    for warning in result.warnings:
        err.print(f"note: {warning}", style="yellow")
    out.print(_table(result, result.hits, explain=explain))
    if result.ranked_lower:
        out.print("\nranked lower than by one vector:", style="dim")
        out.print(_table(result, result.ranked_lower, explain=explain))
    err.print(f"{len(result.hits)} results in {result.took['total']:.0f} ms", style="dim")


def _table(result: SearchResult, hits: tuple[Hit, ...], *, explain: bool) -> Table:
    from rich.markup import escape
    from rich.table import Table

    has_probabilities = explain and result.is_composed
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("score", justify="right")
    for name, is_negated in zip(result.operands, result.is_negated, strict=True):
        if has_probabilities:
            head = f"[red]NOT[/red] {escape(name)}" if is_negated else escape(name)
            table.add_column(head, justify="right")
    table.add_column("document")
    for rank, hit in enumerate(hits, start=1):
        cells = [str(rank), f"{hit.score:.3f}"]
        if has_probabilities:
            cells += [f"{p:.2f}".removeprefix("0") for p in hit.probabilities]
        text = " ".join(hit.text[: 2 * SNIPPET].split())[:SNIPPET]
        document = f"[bold]{escape(hit.title or hit.id)}[/bold]  {escape(text)}"
        if explain and hit.why:
            verdict = _VERDICTS.get(hit.verdict, hit.verdict)
            document += f"\n[red]{verdict} because it {escape(hit.why)}[/red]"
        table.add_row(*cells, document)
    return table


def coloured_query(result: SearchResult) -> Text:
    """Colour the words of each operand in the query; negated operands are struck out."""
    from rich.text import Text

    text = Text(result.query, style="" if result.is_composed else "bold")
    for number, (spans, is_negated) in enumerate(
        zip(result.spans, result.is_negated, strict=False)
    ):
        style = "red strike" if is_negated else _OPERANDS[number % len(_OPERANDS)]
        for start, end in spans:
            text.stylize(style, start, end)
    return text


def _coloured_tree(tree: str) -> Text:
    from rich.text import Text

    text = Text(tree)
    for operator, style in _OPERATORS.items():
        text.highlight_regex(rf"(?<![^ (]){operator}(?= )", style)
    return text


def _print_summary(searcher: Searcher, seconds: float, *, as_json: bool) -> None:
    manifest = searcher.manifest
    recall = manifest.engine_settings.get("recall")
    if as_json:
        print_json(
            {
                "index": str(searcher.folder),
                "documents": len(searcher),
                "model": manifest.model,
                "engine": manifest.engine,
                "recall": recall,
                "lexical": searcher.has_lexical,
                "seconds": round(seconds, 1),
            }
        )
        return
    measured = ", ".join(f"recall@{k} {value:.3f}" for k, value in (recall or {}).items())
    typer.echo(
        f"{searcher.folder}: {len(searcher)} documents, engine {manifest.engine} "
        f"({measured or 'exact'}), {seconds:.1f} s"
    )


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show the number of documents done, if stderr is a terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} documents, {task.fields[speed]:,.0f} per second"),
        TimeElapsedColumn(),
    )
    start, done = time.perf_counter(), 0
    is_hidden = not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), disable=is_hidden) as progress:
        task = progress.add_task("", total=None, speed=0)

        def tell(n: int) -> None:
            nonlocal done
            done += n
            speed = done / max(time.perf_counter() - start, 1e-9)
            progress.update(task, completed=done, speed=speed)

        yield tell


@contextmanager
def _encoder(ray: str, model: str, fingerprint: str, batch_size: int | None) -> Iterator[Any]:
    """Give an encoder that runs on Ray; ``None``: the model encodes here."""
    if not ray:
        yield None
        return
    from boolattn.search.ray_encoder import cluster

    address = "" if ray == "local" else ray
    with cluster(model, fingerprint, address=address, batch_size=batch_size) as encode:
        yield encode
