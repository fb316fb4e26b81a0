"""BoolQuestions (Zhang et al., 2024): AND, OR and NOT questions over two passage collections.

Read from the hub's parquet files through the cache, or from a folder of JSONL or parquet files.
The negatives of a question become its excluded documents.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from boolattn.data.download import fetch
from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import cache_folder
from boolattn.jsonl import check_fields, find_file, read_jsonl, read_parquet
from boolattn.query.tree import Operator
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The passage collections.
COLLECTIONS = ("MSMARCO", "NaturalQuestions")

REPOSITORY = "ustc-zhangzm/BoolQuestions"

# Lists the addresses of the parquet files of one configuration and split.
_LISTING = "https://huggingface.co/api/datasets/{repository}/parquet/{config}/{split}"

_QUESTION = {"question": str, "question_type": str, "positive_ctxs": list, "negative_ctxs": list}


@checked
def load_boolquestions(collection: str, folder: Path | None = None) -> Dataset:
    """Load the questions of a collection, as the split "eval", and its passages.

    All passages are in memory (8.8 million of MS MARCO); :func:`read_questions` and
    :func:`read_passages` stream them.
    """
    folder = folder or fetch_boolquestions(collection)
    documents = tuple(read_passages(collection, folder))
    known = frozenset(document.id for document in documents)
    return Dataset(
        name=f"BoolQuestions-{collection}",
        documents=documents,
        splits={"eval": tuple(read_questions(collection, folder, known))},
    )


def fetch_boolquestions(collection: str) -> Path:
    """Download the parquet files of a collection into the cache and return their folder."""
    _check_collection(collection)
    folder = cache_folder() / "boolquestions"
    for config, split in ((collection, "eval"), (f"{collection}-corpus", "corpus")):
        address = _LISTING.format(repository=REPOSITORY, config=config, split=split)
        try:
            listing = fetch(address, folder / config / f"{split}.files.json")
        except MissingDataError as error:
            home = folder / config
            if any(home.glob(f"{split}*.parquet")) or any(home.glob(f"{split}.jsonl*")):
                continue
            raise MissingDataError(
                f"no BoolQuestions on this machine; put the hub's files of {REPOSITORY}, {config}, "
                f"as {split}.jsonl or {split}*.parquet into {home}"
            ) from error
        for number, url in enumerate(_listed(listing)):
            fetch(url, folder / config / f"{split}-{number:04}.parquet")
    return folder


@checked
def read_questions(
    collection: str, folder: Path, known: frozenset[str] | None = None
) -> Iterator[Query]:
    """Stream the questions of ``<folder>/<collection>/eval*.jsonl`` or ``.parquet``.

    ``known`` are the ids of the passages; a question that names another is an error.
    """
    for where, qid, row in _rows(collection, folder, "eval", _QUESTION, "qid"):
        gold = _passage_ids(row["positive_ctxs"], where)
        excluded = _passage_ids(row["negative_ctxs"], where)
        if known is not None and (unknown := sorted((gold | excluded) - known)):
            raise DataError(f"{where}: the passage {unknown[0]!r} is not in the corpus")
        kind = row["question_type"]
        try:
            operator = Operator(kind.lower())
        except ValueError as error:
            message = f"{where}: unknown question_type {kind!r}; known: {', '.join(Operator)}"
            raise DataError(message) from error
        yield Query(
            id=qid,
            text=row["question"],
            gold=gold,
            operators=(operator,),
            # A passage in both lists is relevant.
            excluded=excluded - gold,
            domain=collection,
        )


@checked
def read_passages(collection: str, folder: Path) -> Iterator[Document]:
    """Stream the passages of a collection; the title precedes the text, as in the paper."""
    config = f"{collection}-corpus"
    for _, name, row in _rows(config, folder, "corpus", {"doc": str}, "docid"):
        title = row.get("title") or ""
        text = f"{title} [SEP] {row['doc']}" if title else row["doc"]
        yield Document(id=name, text=text, title=title)


def _check_collection(collection: str) -> None:
    if collection not in COLLECTIONS:
        raise ConfigError(f"BoolQuestions has no {collection!r}; it has {', '.join(COLLECTIONS)}")


def _listed(listing: Path) -> list[str]:
    try:
        urls = json.loads(listing.read_text(encoding="utf-8"))
    except ValueError:
        urls = None
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise DataError(f"{listing} is not a list of files; remove it and try again")
    return urls


def _passage_ids(contexts: list[Any], where: str) -> frozenset[str]:
    try:
        return frozenset(str(context["passage_id"]) for context in contexts)
    except (KeyError, TypeError) as error:
        raise DataError(f"{where}: a context has no 'passage_id'") from error


def _rows(
    config: str, folder: Path, split: str, fields: Mapping[str, type], key: str
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Stream the rows of a configuration, each with file and line, and its unique id."""
    _check_collection(config.removesuffix("-corpus"))
    home, seen = folder / config, set[str]()
    remedy = f"download it from the hub's {REPOSITORY}, or give parquet files {split}*.parquet"
    paths = sorted(home.glob(f"{split}*.parquet"))
    for path in paths or [find_file(home, f"{split}.jsonl", remedy=remedy)]:
        for number, row in read_parquet(path) if paths else read_jsonl(path):
            check_fields(row, fields, path, number)
            where, name = f"{path}:{number}", str(row.get(key, ""))
            if not name:
                present = ", ".join(row)
                raise DataError(f"{where}: the field {key!r} is missing; there are {present}")
            if name in seen:
                raise DataError(f"{where}: {key} {name!r} occurs twice")
            seen.add(name)
            yield where, name, row
