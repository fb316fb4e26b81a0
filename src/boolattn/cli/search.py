"""The verbs ``index`` and ``search``."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from boolattn.cli.output import AsJson, StrictNot, console, note, print_json, quiet_libraries
from boolattn.errors import ConfigError, QuerySyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

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
    documents: Annotated[Path, Argument(help="A .jsonl, .csv or .parquet file.")],
    out: Annotated[Path, Option(help="Folder of the index.")],
    model: Annotated[str, Option(help="shipped (default), minilm, or a model folder.")] = "",
    engine: Annotated[str, Option(help="flat (exact), ivf, hnsw or milvus.")] = "flat",
    uri: Annotated[str, Option(help="Milvus: a file name or an address.")] = "",
    lexical: Annotated[bool, Option(help="Index words too, for --hybrid.")] = True,
    append: Annotated[bool, Option("--append", help="Add documents to an index.")] = False,
    update: Annotated[bool, Option("--update", help="Add, replacing the same ids.")] = False,
    resume: Annotated[bool, Option("--resume", help="Continue a stopped build.")] = False,
    replace: Annotated[bool, Option("--replace", help="Replace an existing index.")] = False,
    ray: Annotated[
        str, Option(metavar="local|ADDRESS", help="Encode with Ray, here or on a cluster.")
    ] = "",
    batch_size: Annotated[int | None, Option(help="Documents encoded at once.")] = None,
    as_json: AsJson = False,
) -> None:
    """Index documents: vectors, words and metadata in one folder."""
    if (append or update) and (resume or replace):
        raise ConfigError("--append and --update add to an index; --resume and --replace build one")
    # Before a model is loaded, because this is the most common mistake.
    if not documents.is_file():
        raise ConfigError(f"there is no file {documents}")
    from boolattn.embedding.models import SHIPPED, absolute_name
    from boolattn.search import Searcher, load_model
    from boolattn.search.index.document_files import read_documents

    start = time.perf_counter()
    quiet_libraries()
    opened = open_index(out, model) if append or update else None
    name = model or (opened.manifest.model if opened else SHIPPED)
    retriever = opened.retriever if opened else load_model(name)
    records = read_documents(documents)
    with _progress() as progress, _encoder(ray, name, retriever.fingerprint, batch_size) as encode:
        if opened is not None:
            opened.add(records, replace_old=update, encode=encode, progress=progress)
        else:
            opened = Searcher.build(
                out,
                records,
                retriever,
                encode=encode,
                progress=progress,
                engine=engine,
                uri=uri if "://" in uri or not uri else str(Path(uri).resolve()),
                lexical=lexical,
                model=absolute_name(name),
                batch_size=batch_size,
                resume=resume,
                replace=replace,
            )
    _print_summary(opened, time.perf_counter() - start, as_json=as_json)


def search(  # noqa: PLR0913 - options of a command line
    index: Annotated[Path, Argument(help="Folder of the index.")],
    query: Annotated[str, Argument(help='Plain language, or "moths AND Borneo NOT Java".')],
    k: Annotated[int, Option("-k", min=1, help="Number of results.")] = 10,
    mode: Annotated[str, Option(help="Query syntax: auto, plain, explicit.")] = "auto",
    filters: Annotated[
        list[str] | None,
        Option(
            "--filter", metavar="KEY=VALUE", help="On metadata; also !=, >=, >, <=, <; repeatable."
        ),
    ] = None,
    hybrid: Annotated[bool, Option("--hybrid", help="Add lexical search.")] = False,
    strict_not: StrictNot = False,
    plain: Annotated[bool, Option("--plain", help="Search with one vector only.")] = False,
    exhaustive: Annotated[bool, Option("--exhaustive", help="Score all documents.")] = False,
    explain: Annotated[
        bool, Option("--explain", help="Show probabilities, and what is ranked lower.")
    ] = False,
    model: Annotated[str, Option(help="Default: the model named by the index.")] = "",
    verify: Annotated[bool, Option("--verify", help="Check hashes of the index files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search an index."""
    from boolattn.search.filters import parse_filters

    quiet_libraries()
    conditions = parse_filters(filters or [])
    searcher = open_index(index, model, verify=verify)
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


def open_index(
    folder: Path, model: str = "", *, device: str | None = None, verify: bool = False
) -> Searcher:
    """Open an index; without a model's name, with the model that the index names."""
    from boolattn.search import Searcher, load_model

    if device and not model:
        from boolattn.search.storage.manifest import read_manifest

        model = read_manifest(folder).model
    found = load_model(model, device=device) if model else None
    return Searcher.open(folder, found, verify=verify)


def _print_result(result: SearchResult, *, explain: bool) -> None:
    """Print the parsed query to stderr and the results to stdout."""
    from rich.text import Text

    out, err = console(markup=True), console(stderr=True)
    err.print(coloured_query(result))
    if result.is_composed or result.parsed != result.tree:
        used = "" if result.is_composed else ", too low: searched with one vector"
        tree = Text(result.parsed_text)
        for operator, style in _OPERATORS.items():
            tree.highlight_regex(rf"(?<![^ (]){operator}(?= )", style)
        err.print("parsed as", tree, end="")
        err.print(f"   (confidence {result.confidence:.0%}{used})", style="dim")
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
            table.add_column(head, justify="right", max_width=14)
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
    pairs = zip(result.spans, result.is_negated, strict=False)
    for number, (spans, is_negated) in enumerate(pairs):
        style = "red strike" if is_negated else _OPERANDS[number % len(_OPERANDS)]
        for start, end in spans:
            text.stylize(style, start, end)
    return text


def _print_summary(searcher: Searcher, seconds: float, *, as_json: bool) -> None:
    manifest = searcher.manifest
    values: dict[str, Any] = {
        "index": str(searcher.folder),
        "documents": len(searcher),
        "model": manifest.model,
        "engine": manifest.engine,
        "recall": manifest.engine_settings.get("recall"),
        "lexical": searcher.has_lexical,
        "seconds": round(seconds, 1),
    }
    if as_json:
        print_json(values)
        return
    recall = ", ".join(f"recall@{k} {value:.3f}" for k, value in (values["recall"] or {}).items())
    typer.echo(
        f"{searcher.folder}: {len(searcher)} documents, engine {manifest.engine} "
        f"({recall or 'exact'}), {seconds:.1f} s"
    )


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show the number of documents done, if stderr is a terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.completed:,.0f} documents, {task.fields[speed]:,.0f} per second")
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    is_hidden = not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), disable=is_hidden) as progress:
        task = progress.add_task("", total=None, speed=0)

        def tell(n: int) -> None:
            progress.advance(task, n)
            own = progress.tasks[0]
            progress.update(task, speed=own.completed / max(own.elapsed or 0, 1e-9))

        yield tell


def _encoder(
    ray: str, model: str, fingerprint: str, batch_size: int | None
) -> AbstractContextManager[Any]:
    """Return an encoder that runs on Ray; ``None``: the model encodes here."""
    if not ray:
        return nullcontext()
    from boolattn.search.index.ray_encoder import cluster

    address = "" if ray == "local" else ray
    return cluster(model, fingerprint, address=address, batch_size=batch_size)
