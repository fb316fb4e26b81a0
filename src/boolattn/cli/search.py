"""The verbs ``index`` and ``search``.

Results go to stdout; progress, the reading of a query and warnings to stderr.
May import: boolattn.search, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boolattn.errors import ConfigError, QuerySyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table
    from rich.text import Text

    from boolattn.search import Hit, Searcher, SearchResult

#: Characters of a text that the table shows.
SNIPPET = 160
_OPERATORS = {"AND": "bold green", "OR": "bold cyan", "NOT": "bold red"}
_OPERANDS = ("yellow", "blue", "magenta", "cyan", "green")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def index(  # noqa: PLR0913 - options of a command line
    documents: Annotated[Path, typer.Argument(help="A .jsonl, .csv or .parquet file.")],
    out: Annotated[Path, typer.Option(help="Folder of the index.")],
    model: Annotated[
        str, typer.Option(help="shipped (the default), minilm, or any model folder.")
    ] = "",
    engine: Annotated[str, typer.Option(help="flat (exact), ivf, hnsw or milvus.")] = "flat",
    uri: Annotated[str, typer.Option(help="Of Milvus: a file's name, or an address.")] = "",
    lexical: Annotated[bool, typer.Option(help="Index the words too, for --hybrid.")] = True,
    append: Annotated[bool, typer.Option("--append", help="Add to an index.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Add; a document whose id is there is replaced.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a build stopped.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Build an index anew.")] = False,
    ray: Annotated[
        str, typer.Option(metavar="local|ADDRESS", help="Encode with Ray, here or on a cluster.")
    ] = "",
    batch_size: Annotated[
        int | None, typer.Option(help="Documents encoded at once; left out, by the device.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index documents: vectors, words and metadata, in one folder."""
    if (append or update) and (resume or replace):
        raise ConfigError("--append and --update add to an index; --resume and --replace build one")
    # Before a model is loaded, because this is the commonest slip.
    if not documents.is_file():
        raise ConfigError(f"there is no file {documents}")
    from boolattn.embedding.models import SHIPPED, absolute_name
    from boolattn.search import Searcher, load_model
    from boolattn.search.document_files import read_documents

    start = time.perf_counter()
    _quiet()
    adds = append or update
    # An index that is added to names its model itself.
    opened = Searcher.open(out, load_model(model) if model else None) if adds else None
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
    _report(searcher, time.perf_counter() - start, as_json=as_json)


def search(  # noqa: PLR0913 - options of a command line
    index: Annotated[Path, typer.Argument(help="Folder of the index.")],
    query: Annotated[str, typer.Argument(help='Plain language, or "moths AND Borneo NOT Java".')],
    k: Annotated[int, typer.Option("-k", min=1, help="How many results.")] = 10,
    mode: Annotated[str, typer.Option(help="auto, plain or explicit.")] = "auto",
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="KEY=VALUE", help="Also !=, >=, >, <=, <; repeatable."),
    ] = None,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Let the words count too.")] = False,
    strict_not: Annotated[
        bool, typer.Option("--strict-not", help="Drop what holds an excluded operand's words.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Score by one vector, to compare with.")
    ] = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Compose every document, not candidates.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each operand's probability, and what fell.")
    ] = False,
    model: Annotated[str, typer.Option(help="Left out, the one that the index names.")] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every byte of the index with its hash.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search an index."""
    from boolattn.search import Searcher, load_model
    from boolattn.search.filters import parse_filters

    _quiet()
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
        typer.echo(error.pointer(), err=True)
        raise
    if as_json:
        typer.echo(json.dumps(result.to_dict(), ensure_ascii=False))
        return
    show(result, explain=explain)


def show(result: SearchResult, *, explain: bool = False) -> None:
    """Print a result for people: the reading to stderr, the table to stdout."""
    from rich.console import Console

    aside = Console(stderr=True, highlight=False)
    aside.print(coloured_query(result))
    if result.is_composed:
        aside.print("read as  ", _coloured_tree(result.tree_text), end="")
        aside.print(f"   ({result.confidence:.0%} sure)", style="dim")
    elif result.parsed != result.tree:
        aside.print("not trusted  ", _coloured_tree(result.parsed_text), style="dim")
    for warning in result.warnings:
        aside.print(f"note: {warning}", style="yellow")
    console = Console(highlight=False)
    console.print(_table(result, result.hits, explain=explain))
    if result.ranked_lower:
        console.print("put down: one vector would have shown them", style="dim")
        console.print(_table(result, result.ranked_lower, explain=explain))
    aside.print(f"{len(result.hits)} results in {result.took['total']:.0f} ms", style="dim")


def _table(result: SearchResult, hits: tuple[Hit, ...], *, explain: bool) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("score", justify="right")
    if explain and result.is_composed:
        for name, is_out in zip(result.operands, result.is_negated, strict=True):
            head = f"[red]NOT[/red] {escape(name)}" if is_out else escape(name)
            table.add_column(head, justify="right")
    table.add_column("document")
    for rank, hit in enumerate(hits, start=1):
        cells = [str(rank), f"{hit.score:.3f}"]
        if explain and result.is_composed:
            cells += [f"{p:.2f}".removeprefix("0") for p in hit.probabilities]
        text = " ".join(hit.text[: 2 * SNIPPET].split())[:SNIPPET]
        title = escape(hit.title or hit.id)
        document = f"[bold]{title}[/bold]  {escape(text)}"
        if explain and hit.why:
            document += f"\n[red]{hit.verdict}: {escape(hit.why)}[/red]"
        table.add_row(*cells, document)
    return table


def coloured_query(result: SearchResult) -> Text:
    """Colour each operand's words in the query; excluded ones are struck out."""
    from rich.text import Text

    text = Text(result.query, style="bold" if not result.is_composed else "")
    pairs = zip(result.spans, result.is_negated, strict=False)
    for place, (spans, is_out) in enumerate(pairs):
        style = "red strike" if is_out else _OPERANDS[place % len(_OPERANDS)]
        for start, end in spans:
            text.stylize(style, start, end)
    return text


def _coloured_tree(tree: str) -> Text:
    from rich.text import Text

    text = Text(tree)
    for word, style in _OPERATORS.items():
        text.highlight_words([f" {word} ", f"({word} "], style)
    if tree.startswith("NOT "):
        text.stylize(_OPERATORS["NOT"], 0, 3)
    return text


def _report(searcher: Searcher, seconds: float, *, as_json: bool) -> None:
    manifest = searcher.manifest
    about: dict[str, Any] = {
        "index": str(searcher.folder),
        "documents": len(searcher),
        "model": manifest.model,
        "engine": manifest.engine,
        "recall": manifest.engine_settings.get("recall"),
        "lexical": searcher.has_lexical,
        "seconds": round(seconds, 1),
    }
    if as_json:
        typer.echo(json.dumps(about))
        return
    recall = about["recall"] or {}
    how = ", ".join(f"recall@{depth} {value:.3f} against exact" for depth, value in recall.items())
    typer.echo(
        f"{about['index']}: {len(searcher)} documents, engine {manifest.engine} "
        f"({how or 'exact'}), {seconds:.1f} s"
    )


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show how many documents are done, where somebody looks."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} documents"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
    )
    start, done = time.perf_counter(), 0
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None, speed="")

        def tell(n: int) -> None:
            nonlocal done
            done += n
            speed = done / max(time.perf_counter() - start, 1e-9)
            progress.update(task, completed=done, speed=f"{speed:,.0f} a second")

        yield tell


@contextmanager
def _encoder(ray: str, model: str, fingerprint: str, batch_size: int | None) -> Iterator[Any]:
    """Give what encodes on a cluster, or nothing: then the model does it here."""
    if not ray:
        yield None
        return
    from boolattn.search.ray_encoder import cluster

    address = "" if ray == "local" else ray
    with cluster(model, fingerprint, address=address, batch_size=batch_size) as encode:
        yield encode


def _quiet() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
