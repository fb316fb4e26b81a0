"""The verbs that change an index, or tell about it: index, add, update, delete, info."""

from __future__ import annotations

import resource
import shlex
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, plural, print_json, quiet_libraries
from boolattn.cli.search import ADDRESS_HELP, open_index
from boolattn.errors import BoolattnError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from boolattn.data.records import Document
    from boolattn.search import Searcher
    from boolattn.stores.settings import StoreSettings

_MIN_MEMORY = 768 << 20
_SAMPLE = 20  # documents that are looked at for titles
_FILES = (
    ".jsonl, .json, .csv, .tsv, .parquet or .xlsx file, a folder of .txt, .md, .html and .pdf "
    "files, or - (stdin)"
)
Documents = Annotated[Path, Argument(help=f"A {_FILES}.")]
Index = Annotated[str, Argument(metavar="ADDRESS", help=ADDRESS_HELP)]
TextField = Annotated[
    list[str] | None, Option(help="Field with the text; repeatable, the texts are joined.")
]
IdField = Annotated[str, Option(help="Field with the id.")]
TitleField = Annotated[str, Option(help="Field with the title.")]
MaxLine = Annotated[float, Option(metavar="MB", min=0.001, help="Most megabytes of a line.")]
FollowLinks = Annotated[
    bool, Option("--follow-links", help="Also read files of a folder that are links.")
]
SkipBad = Annotated[bool, Option("--skip-bad", help="Report rows with an error and go on.")]


def index(  # noqa: PLR0913 - options of a command line
    context: typer.Context,
    documents: Documents,
    out: Annotated[
        str,
        Option(metavar="ADDRESS", help=f"{ADDRESS_HELP} Default: the file's name with .index."),
    ] = "",
    model: Annotated[
        str, Option(help="shipped (comes with boolattn; default), minilm, or a model folder.")
    ] = "",
    text_field: TextField = None,
    id_field: IdField = "",
    title_field: TitleField = "",
    skip_bad: SkipBad = False,
    max_line: MaxLine = 256,
    follow_links: FollowLinks = False,
    vectors: Annotated[
        str, Option(help="How neighbours are searched: exact, hnsw; default: the store's way.")
    ] = "",
    precision: Annotated[
        str, Option(help="Of stored vectors: float32, float16, int8.")
    ] = "float32",
    passages: Annotated[
        int | None,
        Option(help="Most tokens of a passage; default: what the model reads; 0: never cut."),
    ] = None,
    words: Annotated[bool, Option(help="Index words too, for search by words.")] = True,
    kinds: Annotated[
        Path | None, Option(help="File of your own kinds, with lines such as dairy: butter, cream.")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue a stopped build.")] = False,
    replace: Annotated[bool, Option("--replace", help="Replace an existing index.")] = False,
    ray: Annotated[
        str, Option(metavar="local|ADDRESS", help="Encode with Ray, here or on a cluster.")
    ] = "",
    batch_size: Annotated[int | None, Option(help="Documents encoded at once.")] = None,
    as_json: AsJson = False,
) -> None:
    """Index documents: vectors, words and metadata in one store."""
    _check_source(documents)
    if not out and str(documents) == "-":
        raise ConfigError("documents from stdin need --out, the address of the index")
    address = out or f"{documents.resolve().name.partition('.')[0]}.index"
    from boolattn.encoders.models import SHIPPED, absolute_name
    from boolattn.kinds.lexicon import read_kinds
    from boolattn.search import IndexSettings, Searcher, load_model

    start = time.perf_counter()
    members = read_kinds(kinds) if kinds is not None else None
    quiet_libraries()
    name, options = model or SHIPPED, context.params
    encoder = load_model(name)
    with (
        _records(options) as records,
        _progress(documents, max_line, follow_links) as progress,
        _encoder(ray, name, encoder.fingerprint, batch_size) as encode,
    ):
        searcher = Searcher.build(
            address,
            records,
            encoder,
            encode=encode,
            progress=progress,
            **{n: options[n] for n in IndexSettings.__dataclass_fields__ if n in options}
            | {"kinds": members, "model": absolute_name(name)},
        )
    _print_summary(searcher, start, as_json=as_json)
    with searcher.store.reading() as reader:
        sample = reader.sample(_SAMPLE)
    texts = dict.fromkeys(n for d in sample for n, v in d.metadata.items() if isinstance(v, str))
    if texts and not any(document.title for document in sample):
        note(f"documents have no title; --title-field takes one of {', '.join(texts)}")
    quoted = shlex.quote(address)
    note(f"search: boolattn search {quoted}    page: boolattn serve {quoted}")


def add(  # noqa: PLR0913 - options of a command line
    context: typer.Context,
    index: Index,
    documents: Documents,
    model: Annotated[str, Option(help="Default: the model named by the index.")] = "",
    text_field: TextField = None,
    id_field: IdField = "",
    title_field: TitleField = "",
    skip_bad: SkipBad = False,
    max_line: MaxLine = 256,
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Add documents to an index; an id that it has already is an error."""
    # The same function is the verb ``update``, which replaces documents.
    replace_old = context.info_name == "update"
    _check_source(documents)
    start = time.perf_counter()
    quiet_libraries()
    searcher = open_index(index, model)
    n_rows, n_before = count(), len(searcher)
    records = _records(context.params, makes_ids=False)
    with records as rows, _progress(documents, max_line, follow_links) as progress:
        counted = (row for row, _ in zip(rows, n_rows, strict=False))
        searcher.add(counted, replace_old=replace_old, progress=progress)
    n_added = len(searcher) - n_before
    _print_summary(searcher, start, as_json=as_json)
    note(f"{n_added:,} added, {next(n_rows) - n_added:,} replaced")


def delete(
    index: Index,
    ids: Annotated[list[str], Argument(help="Ids of documents; -: from stdin, one a line.")],
    as_json: AsJson = False,
) -> None:
    """Delete documents by id; with an unknown id nothing is deleted."""
    from boolattn.stores.address import open_store
    from boolattn.stores.filters import Filter

    if ids == ["-"]:
        ids = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    store = open_store(index)
    store.delete(ids)
    with store.reading() as reader:
        n_left = reader.count(Filter())
    if as_json:
        print_json({"index": index, "deleted": len(ids), "documents": n_left})
    else:
        typer.echo(f"{index}: {len(ids)} deleted, {plural(n_left, 'document')} left")


def info(index: Index, as_json: AsJson = False) -> None:
    """Show what an index holds: documents, model, vectors, fields of the metadata."""
    from boolattn.stores.address import open_store

    store = open_store(index)
    values = {"index": index} | store.info() | {"kinds": store.settings.kinds}
    with store.reading() as reader:
        fields = {name: reader.value_counts(name, 5) for name in sorted(reader.fields())}
    if as_json:
        print_json(values | {"fields": {name: count._asdict() for name, count in fields.items()}})
        return
    values["kinds"] = _kinds_line(store.settings)
    for name, value in values.items():
        if value is not None:
            typer.echo(f"{name:10} {value}")
    for name, counts in fields.items():
        shown = ", ".join(f"{value!r} ({count})" for value, count in counts.frequent)
        about = "" if counts.is_exact else ", in a sample"
        n_documents = plural(counts.documents, "document")
        line = f"field {name!r}: {n_documents}, {plural(counts.different, 'value')}{about}: "
        console().print(line + shown, overflow="ellipsis", no_wrap=True)


def _kinds_line(settings: StoreSettings) -> str:
    if settings.known_kinds is None:
        return "not used: written with another lexicon"
    return "; ".join(["shipped", *(f"{k}: {', '.join(v)}" for k, v in settings.kinds.items())])


def _check_source(documents: Path) -> None:
    """Refuse what is not there before a model is loaded: the most common mistake."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < _MIN_MEMORY:  # tantivy would end the process
        raise ConfigError(
            f"memory is limited to {limit >> 20} MB, and indexing needs {_MIN_MEMORY >> 20}: "
            "raise the limit with ulimit -v"
        )
    if str(documents) != "-" and not documents.exists():
        raise ConfigError(f"there is no file {documents}")


@contextmanager
def _records(options: Mapping[str, Any], *, makes_ids: bool = True) -> Iterator[Iterator[Document]]:
    """Read documents; tell about rows that were left out as they come, and at the end."""
    from boolattn.stores.document_files import EmptyDocumentError, Fields, read_documents

    bad: list[DataError] = []
    empty: list[DataError] = []

    def on_error(error: DataError) -> None:
        if isinstance(error, EmptyDocumentError):
            empty.append(error)
        elif options["skip_bad"]:
            bad.append(error)
            note(f"left out: {error}")
        else:
            raise error

    texts = tuple(options["text_field"] or ())
    yield read_documents(
        Path(options["documents"]),
        Fields(text=texts, id=options["id_field"], title=options["title_field"]),
        makes_ids=makes_ids,
        on_error=on_error,
        max_line=int(options["max_line"] * 1e6),
        follow_links=options["follow_links"],
    )
    if bad:
        note(f"{plural(len(bad), 'row')} left out")
    if empty:
        note(f"{plural(len(empty), 'empty document')} left out, the first: {empty[0]}")


def _print_summary(searcher: Searcher, start: float, *, as_json: bool) -> None:
    seconds, information = time.perf_counter() - start, searcher.store.info()
    values: dict[str, Any] = {
        "index": searcher.store.address,
        "documents": len(searcher),
        "model": searcher.settings.model,
        "vectors": information["vectors"],
        "recall": information.get("recall"),
        "words": searcher.has_words,
        "seconds": round(seconds, 1),
    }
    if as_json:
        print_json(values)
        return
    recall = ", ".join(f"recall@{k} {share:.3f}" for k, share in (values["recall"] or {}).items())
    vectors = f"{values['vectors']} ({recall})" if recall else values["vectors"]
    typer.echo(
        f"{searcher.store.label}: {plural(len(searcher), 'document')}, {vectors}, {seconds:.1f} s"
    )


@contextmanager
def _progress(path: Path, max_line: float, follow_links: bool) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many documents are done, their share, speed and the time left."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    from boolattn.stores.document_files import count_documents

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    is_hidden = not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), disable=is_hidden) as progress:
        task = progress.add_task("", total=None)

        def tell(n: int) -> None:
            state = progress.tasks[0]
            done, total = state.completed + n, state.total
            share = f" of {total:,.0f} ({min(1, done / total):.0%})" if total else ""
            shown = f"{done:,.0f} documents{share}, {done / (state.elapsed or 1):,.0f} per second"
            progress.update(task, completed=done, description=shown)

        def count() -> None:
            # Meanwhile documents are encoded; a file with an error ends that, not this.
            with suppress(BoolattnError, OSError):
                total = count_documents(path, int(max_line * 1e6), follow_links=follow_links)
                progress.update(task, total=total)

        if not is_hidden and str(path) != "-":
            Thread(target=count, daemon=True).start()
        yield tell
        progress.update(task, total=progress.tasks[0].completed)
        tell(0)


def _encoder(
    ray: str, model: str, fingerprint: str, batch_size: int | None
) -> AbstractContextManager[Any]:
    """Return an encoder that runs on Ray; ``None``: the model encodes here."""
    if not ray:
        return nullcontext()
    from boolattn.encoders.ray_encoder import cluster

    address = "" if ray == "local" else ray
    return cluster(model, fingerprint, address=address, batch_size=batch_size)
