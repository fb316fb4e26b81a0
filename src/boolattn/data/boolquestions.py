"""BoolQuestions (Zhang et al., 2024): AND, OR and NOT questions over two passage collections.

Read from the hub's parquet files or JSONL files; a question's negatives are what it excludes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import ConfigError, DataError
from boolattn.files import cache_folder
from boolattn.jsonl import check_fields, find_file, read_jsonl, read_parquet
from boolattn.query.tree import Operator
from boolattn.settings import checked

COLLECTIONS = ("MSMARCO", "NaturalQuestions")  # the collections of passages
_QUESTION = {"question": str, "question_type": str, "positive_ctxs": list, "negative_ctxs": list}


@checked
def load_boolquestions(collection: str, folder: Path | None = None) -> Dataset:
    """Load the questions of a collection, as the split "eval", and its passages.

    All passages are in memory (8.8 million of MS MARCO); :func:`read_questions` and
    :func:`read_passages` stream them. The default folder is in the cache.
    """
    folder = folder or cache_folder() / "boolquestions"
    documents = tuple(read_passages(collection, folder))
    known = frozenset(document.id for document in documents)
    splits = {"eval": tuple(read_questions(collection, folder, known))}
    return Dataset(name=f"BoolQuestions-{collection}", documents=documents, splits=splits)


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
        # A passage in both lists is relevant.
        sets: Any = {"gold": gold, "excluded": excluded - gold}
        yield Query(id=qid, text=row["question"], operators=(operator,), domain=collection, **sets)


@checked
def read_passages(collection: str, folder: Path) -> Iterator[Document]:
    """Stream the passages of a collection; the title precedes the text, as in the paper."""
    config = f"{collection}-corpus"
    for _, name, row in _rows(config, folder, "corpus", {"doc": str}, "docid"):
        title = row.get("title") or ""
        text = f"{title} [SEP] {row['doc']}" if title else row["doc"]
        yield Document(id=name, text=text, title=title)


def _passage_ids(contexts: list[Any], where: str) -> frozenset[str]:
    try:
        return frozenset(str(context["passage_id"]) for context in contexts)
    except (KeyError, TypeError) as error:
        raise DataError(f"{where}: a context has no 'passage_id'") from error


def _rows(
    config: str, folder: Path, split: str, fields: Mapping[str, type], key: str
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Stream the rows of a configuration, each with file and line, and its unique id."""
    if (collection := config.removesuffix("-corpus")) not in COLLECTIONS:
        raise ConfigError(f"BoolQuestions has no {collection!r}; it has {', '.join(COLLECTIONS)}")
    home, seen = folder / config, set[str]()
    remedy = f"put {split}*.parquet of {config} of the hub's ustc-zhangzm/BoolQuestions there"
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
