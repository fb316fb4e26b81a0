"""BoolQuestions (Zhang et al., 2024): AND, OR and NOT questions over two passage collections.

From the hub's parquet files through the cache, or from a folder of JSONL or parquet files.
The negatives of a question become its excluded documents.
May import: boolattn.data, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from boolattn.data.download import fetch
from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import cache_folder
from boolattn.jsonl import check_fields, find_file, read_jsonl
from boolattn.logic.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from boolattn.data.download import Progress

#: Collections that the questions are asked of.
COLLECTIONS = ("MSMARCO", "NaturalQuestions")

REPOSITORY = "ustc-zhangzm/BoolQuestions"

# Lists the addresses of the parquet files of one configuration and split.
_LISTING = "https://huggingface.co/api/datasets/{repository}/parquet/{config}/{split}"

_QUESTION = {"question": str, "question_type": str, "positive_ctxs": list, "negative_ctxs": list}


def load_boolquestions(
    collection: str, folder: Path | None = None, *, progress: Progress | None = None
) -> Dataset:
    """Load the questions of a collection and its passages, as the split "eval".

    The passages are held in memory, of MS MARCO 8.8 million; :func:`read_questions` and
    :func:`read_passages` stream them.
    """
    folder = folder or fetch_boolquestions(collection, progress=progress)
    documents = tuple(read_passages(collection, folder))
    known = frozenset(document.id for document in documents)
    return Dataset(
        name=f"BoolQuestions-{collection}",
        documents=documents,
        splits={"eval": tuple(read_questions(collection, folder, known))},
    )


def fetch_boolquestions(collection: str, *, progress: Progress | None = None) -> Path:
    """Bring the hub's parquet files of a collection into the cache and return their folder."""
    _check_collection(collection)
    folder = cache_folder() / "boolquestions"
    for config, split in ((collection, "eval"), (f"{collection}-corpus", "corpus")):
        address = _LISTING.format(repository=REPOSITORY, config=config, split=split)
        try:
            listing = fetch(address, folder / config / f"{split}.files.json", progress=progress)
        except MissingDataError as error:
            if _is_there(folder / config, split):
                continue
            raise MissingDataError(
                f"no BoolQuestions on this machine; put the hub's files of {REPOSITORY}, {config}, "
                f"as {split}.jsonl or {split}*.parquet into {folder / config}"
            ) from error
        for place, url in enumerate(_listed(listing)):
            fetch(url, folder / config / f"{split}-{place:04}.parquet", progress=progress)
    return folder


def read_questions(
    collection: str, folder: Path, known: frozenset[str] | None = None
) -> Iterator[Query]:
    """Stream the questions of a collection.

    Args:
        collection: One of :data:`COLLECTIONS`.
        folder: Holds ``<collection>/eval*.jsonl`` or ``.parquet``.
        known: Ids of the passages; a question that names another is an error.
    """
    seen: set[str] = set()
    for where, row in _rows(collection, folder, "eval", _QUESTION):
        qid = str(row.get("qid", ""))
        if not qid:
            raise DataError(f"{where}: the field 'qid' is missing; there are {', '.join(row)}")
        if qid in seen:
            raise DataError(f"{where}: the question {qid!r} is there twice")
        seen.add(qid)
        gold = _passage_ids(row["positive_ctxs"], where)
        excluded = _passage_ids(row["negative_ctxs"], where)
        if known is not None and (stray := sorted((gold | excluded) - known)):
            raise DataError(f"{where}: the passage {stray[0]!r} is not in the corpus")
        yield Query(
            id=qid,
            text=row["question"],
            gold=gold,
            operators=_operators(row["question_type"], where),
            # A passage that both lists name answers the question.
            excluded=excluded - gold,
            domain=collection,
        )


def read_passages(collection: str, folder: Path) -> Iterator[Document]:
    """Stream the passages of a collection; a title stands before its text, after the authors."""
    seen: set[str] = set()
    for where, row in _rows(f"{collection}-corpus", folder, "corpus", {"doc": str}):
        name = str(row.get("docid", ""))
        if not name:
            raise DataError(f"{where}: the field 'docid' is missing; there are {', '.join(row)}")
        if name in seen:
            raise DataError(f"{where}: the passage {name!r} is there twice")
        seen.add(name)
        title = row.get("title") or ""
        text = f"{title} [SEP] {row['doc']}" if title else row["doc"]
        yield Document(id=name, text=text, title=title)


def _check_collection(collection: str) -> None:
    if collection not in COLLECTIONS:
        raise ConfigError(f"BoolQuestions has no {collection!r}; it has {', '.join(COLLECTIONS)}")


def _is_there(home: Path, split: str) -> bool:
    """Tell whether somebody put the files there by hand."""
    return any(home.glob(f"{split}*.parquet")) or any(home.glob(f"{split}.jsonl*"))


def _listed(listing: Path) -> list[str]:
    try:
        urls = json.loads(listing.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{listing} is not a list of files; remove it and try again") from error
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise DataError(f"{listing} is not a list of files; remove it and try again")
    return urls


def _operators(kind: str, where: str) -> tuple[Operator, ...]:
    try:
        return (Operator(kind.lower()),)
    except ValueError as error:
        known = ", ".join(Operator)
        raise DataError(f"{where}: unknown question_type {kind!r}; known: {known}") from error


def _passage_ids(contexts: list[Any], where: str) -> frozenset[str]:
    try:
        return frozenset(str(context["passage_id"]) for context in contexts)
    except (KeyError, TypeError) as error:
        raise DataError(f"{where}: a context has no 'passage_id'") from error


def _rows(
    config: str, folder: Path, split: str, fields: Mapping[str, type]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Stream the rows of one configuration, each with its place for messages."""
    _check_collection(config.removesuffix("-corpus"))
    home = folder / config
    parts = sorted(home.glob(f"{split}*.parquet"))
    if parts:
        for path in parts:
            yield from _parquet_rows(path, fields)
        return
    remedy = (
        f"fetch it from the hub's data set {REPOSITORY}, or give parquet files {split}*.parquet"
    )
    path = find_file(home, f"{split}.jsonl", remedy=remedy)
    for number, row in read_jsonl(path, fields):
        yield f"{path}:{number}", row


def _parquet_rows(
    path: Path, fields: Mapping[str, type]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        parquet: Any = import_module("pyarrow.parquet")
        errors: Any = import_module("pyarrow").ArrowException
    except ImportError as error:
        raise MissingDataError(
            f"reading {path} needs pyarrow: install it, or convert the file to JSONL"
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=10_000):
                for row in batch.to_pylist():
                    number += 1
                    check_fields(row, fields, path, number)
                    yield f"{path}:{number}", row
    except (errors, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}:{number + 1}: truncated or damaged ({reason})") from error
