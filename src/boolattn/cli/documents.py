"""The verbs that change an index, or tell about it: index, add, update, delete, info."""

from __future__ import annotations

import resource
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import option

from boolattn.cli import joined, json_option, note, plural, print_json, quiet_libraries
from boolattn.cli.search import ADDRESS_HELP, index_argument, model_option, open_index
from boolattn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from boolattn.data.records import Document
    from boolattn.search import Searcher

_MIN_MEMORY = 768 << 20
_WIDTH = 200  # of a line about a field
_FILES = (
    "A .jsonl, .json, .csv, .tsv, .parquet or .xlsx file, a folder of .txt, .md, .html and .pdf "
    "files, or - (stdin)."
)
source_options = joined(
    click.argument("documents", type=Path, help=_FILES),
    option("--text-field", multiple=True, help="Field with the text; repeatable, they are joined."),
    option("--id-field", help="Field with the id."),
    option("--title-field", help="Field with the title."),
    option("--skip-bad", is_flag=True, help="Report rows with an error and go on."),
)


@click.command()
@source_options
@option("--out", metavar="ADDRESS", help=f"{ADDRESS_HELP} Default: the file's name with .index.")
@option("--model", default="shipped", help="shipped (comes with boolattn), minilm, or a folder.")
@option("--vectors", help="How neighbours are searched: exact, hnsw; default: the store's way.")
@option("--precision", default="float32", help="Of vectors: float32, float16, int8 by the store.")
@option("--passages", type=int, help="Most tokens of a passage; default: the model's; 0: any.")
@option("--words/--no-words", default=True, help="Index words too, for search by words.")
@option("--kinds", type=Path, help="File of your own kinds, as in dairy: butter, cream.")
@option("--resume", is_flag=True, help="Continue a stopped build.")
@option("--replace", is_flag=True, help="Replace an existing index.")
@option("--ray", metavar="local|ADDRESS", help="Encode with Ray, here or on a cluster.")
@option("--batch-size", type=int, help="Documents encoded at once.")
def index(out: str | None, model: str, **options: Any) -> None:
    """Index documents: vectors, words and metadata in one store."""
    documents = options["documents"]
    _check_source(documents)
    if not out and str(documents) == "-":
        raise ConfigError("documents from stdin need --out, the address of the index")
    address = out or f"{documents.resolve().name.partition('.')[0]}.index"
    from boolattn.kinds.lexicon import read_kinds
    from boolattn.search import IndexSettings, Searcher, load_model

    start = time.perf_counter()
    kinds = options["kinds"] and read_kinds(options["kinds"])
    quiet_libraries()
    ray: AbstractContextManager[Any] = nullcontext()
    if options["ray"]:
        from boolattn.encoders.ray_encoder import cluster

        fingerprint, size = load_model(model).fingerprint, options["batch_size"]
        ray = cluster(model, fingerprint, address=options["ray"], batch_size=size)
    settings = {n: options[n] for n in IndexSettings.__dataclass_fields__ if n in options}
    settings |= {"kinds": kinds, "vectors": options["vectors"] or ""}
    with _records(options) as records, _progress(options) as progress, ray as encode:
        searcher = Searcher.build(
            address, records, model, encode=encode, progress=progress, **settings
        )
    _print_summary(searcher, start)
    with searcher.store.reading() as reader:
        sample = reader.sample(20)
    texts = dict.fromkeys(n for d in sample for n, v in d.metadata.items() if isinstance(v, str))
    if texts and not any(document.title for document in sample):
        note(f"documents have no title; --title-field takes one of {', '.join(texts)}")
    quoted = shlex.quote(address)
    note(f"search: boolattn search {quoted}    page: boolattn serve {quoted}")


@click.command()
@index_argument
@source_options
@model_option
def add(index: str, **options: Any) -> None:
    """Add documents to an index; an id that it has already is an error."""
    # The same function is the verb ``update``, which replaces documents.
    replace_old = click.get_current_context().info_name == "update"
    _check_source(options["documents"])
    start = time.perf_counter()
    quiet_libraries()
    searcher = open_index(index, options["model"])
    n_rows, n_before = count(), len(searcher)
    with _records(options, makes_ids=False) as rows, _progress(options) as progress:
        counted = (row for row, _ in zip(rows, n_rows, strict=False))
        searcher.add(counted, replace_old=replace_old, progress=progress)
    n_added = len(searcher) - n_before
    _print_summary(searcher, start)
    note(f"{n_added:,} added, {next(n_rows) - n_added:,} replaced")


update = click.Command(
    "update",
    params=add.params,
    callback=add.callback,
    help="Add documents to an index; each replaces the one with its id, if there is one.",
)


@click.command()
@index_argument
@click.argument("ids", nargs=-1, required=True, help="Of documents; -: from stdin, one a line.")
def delete(index: str, ids: tuple[str, ...]) -> None:
    """Delete documents by id; with an unknown id nothing is deleted."""
    from boolattn.stores.address import open_store

    names = dict.fromkeys(ids)
    if [*names] == ["-"]:
        names = dict.fromkeys(line.rstrip("\n") for line in sys.stdin if line.strip())
    store = open_store(index)
    store.delete(names)
    click.echo(f"{index}: {len(names)} deleted, {plural(store.n_documents, 'document')} left")


@click.command()
@index_argument
@json_option
def info(index: str, as_json: bool) -> None:
    """Show what an index holds: documents, model, vectors, fields of the metadata."""
    from boolattn.stores.address import open_store

    store = open_store(index)
    values = {"index": index} | store.info() | {"kinds": store.settings.kinds}
    with store.reading() as reader:
        fields = {name: reader.value_counts(name, 5) for name in sorted(reader.fields())}
    if as_json:
        print_json(values | {"fields": {name: count._asdict() for name, count in fields.items()}})
        return
    kinds = ["shipped", *(f"{k}: {', '.join(v)}" for k, v in store.settings.kinds.items())]
    is_known = store.settings.known_kinds is not None
    values["kinds"] = "; ".join(kinds) if is_known else "not used: written with another lexicon"
    for name, value in values.items():
        if value is not None:
            click.echo(f"{name:10} {value}")
    for name, counts in fields.items():
        shown = ", ".join(f"{value!r} ({count})" for value, count in counts.frequent)
        about = "" if counts.is_exact else ", in a sample"
        n_documents = plural(counts.documents, "document")
        line = f"field {name!r}: {n_documents}, {plural(counts.different, 'value')}{about}: {shown}"
        click.echo(line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…")


def _check_source(documents: Path) -> None:
    """Refuse what is not there before a model is loaded: the most common mistake."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < _MIN_MEMORY:  # tantivy would end the process
        reason = f"memory is limited to {limit >> 20} MB, and indexing needs {_MIN_MEMORY >> 20}"
        raise ConfigError(f"{reason}: raise the limit with ulimit -v")
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

    names = {name: options[f"{name}_field"] or "" for name in ("id", "title")}
    yield read_documents(
        options["documents"],
        Fields(text=options["text_field"], **names),
        makes_ids=makes_ids,
        on_error=on_error,
    )
    if bad:
        note(f"{plural(len(bad), 'row')} left out")
    if empty:
        note(f"{plural(len(empty), 'empty document')} left out, the first: {empty[0]}")


def _print_summary(searcher: Searcher, start: float) -> None:
    store, seconds = searcher.store, time.perf_counter() - start
    values = store.info()
    shares = (values.get("recall") or {}).items()
    recall = ", ".join(f"recall@{k} {share:.3f}" for k, share in shares)
    vectors = values["vectors"] + (f" ({recall})" if recall else "")
    click.echo(f"{store.label}: {plural(len(searcher), 'document')}, {vectors}, {seconds:.1f} s")


@contextmanager
def _progress(options: Mapping[str, Any]) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many documents are done, their share, speed and the time left."""
    from boolattn.stores.document_files import STDIN, count_documents

    path, is_shown = options["documents"], sys.stderr.isatty()
    is_counted = is_shown and path != STDIN
    bar: Any = click.progressbar(
        repeat(None),
        length=count_documents(path) if is_counted else None,
        show_pos=True,
        show_percent=is_counted,
        item_show_func=lambda _: f"{bar.pos / max(time.time() - bar.start, 1e-3):,.0f} per second",
        bar_template="documents: %(info)s",
        file=sys.stderr,
        hidden=not is_shown,
    )
    with bar:
        yield bar.update
        bar.length, bar.show_percent = bar.pos, True
        bar.update(0)
