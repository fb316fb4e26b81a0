"""Vectors in memory: a numpy array, with a list of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.encoders.callables import unit
from boolattn.errors import DataError, QueryError
from boolattn.scoring.exact import exact_search
from boolattn.settings import checked
from boolattn.stores.base import similarities
from boolattn.stores.filters import RANGES, document_tags, tag_condition
from boolattn.stores.foreign import COSINE, Collection, check_metric
from boolattn.stores.values import flatten, is_number, items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Row, Vectors


class ArrayCollection(Collection):
    """An array of vectors with a list of rows; compared exactly.

    Args:
        vectors: Shape ``(rows, dim)``.
        rows: A mapping for each vector; the id of a row is its place.
        metric: How vectors are compared.

    >>> from boolattn.search import Searcher, load_model
    >>> rows, encoder = [{"text": "A moth."}, {"text": "An ant."}], load_model("shipped")
    >>> vectors = encoder.encode_documents([row["text"] for row in rows])
    >>> Searcher(ArrayCollection(vectors, rows), encoder).search("ants", 1)[0].text
    'An ant.'
    """

    @checked
    def __init__(
        self,
        vectors: Array,
        rows: Sequence[Row],
        *,
        metric: str = COSINE,
        text: str = "",
        title: str = "title",
    ) -> None:
        if not hasattr(rows, "__len__") or not all(isinstance(row, Mapping) for row in rows):
            raise DataError("rows are a list of mappings, one for each vector")
        self._rows, self.text, self.title = rows, text, title
        self._numbers = range(len(rows))
        try:
            vectors = np.asarray(vectors, np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"vectors are an array of numbers: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(rows):
            raise DataError(
                f"{len(rows)} rows need an array of as many vectors, not one of shape "
                f"{vectors.shape}"
            )
        if not np.isfinite(vectors).all():
            raise DataError("some vectors are not finite; leave their rows out")
        self.name, self.metric = "the array", check_metric("the array", metric)
        self.dimension = vectors.shape[1]
        self._vectors = unit(vectors) if metric == COSINE else vectors

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Vectors]:
        passing = [all(_meets(row, condition) for condition in conditions) for row in self._rows]
        chosen, vectors = np.flatnonzero(passing), self._vectors
        if len(chosen) < len(vectors):
            vectors = vectors[chosen]
        # L2 ranks vectors of length 1 alike, and the store refuses others.
        rows = chosen[exact_search(queries, vectors, n, similarities).rows]
        return [self.vectors(numbers.tolist()) for numbers in rows]

    def vectors(self, ids: Sequence[Any]) -> Vectors:
        return {number: self._vectors[number] for number in ids if number in self._numbers}

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        return {number: self._rows[number] for number in ids if number in self._numbers}


def _meets(row: Row, condition: Condition) -> bool:
    metadata, kind, wanted = flatten(row), condition.kind, condition.values
    values = items(metadata.get(condition.name))
    if kind in RANGES:
        if not is_number(wanted[0]):
            raise QueryError(f"filter {condition.name!r}: rows in memory compare numbers only")
        holds = any(RANGES[kind](value, wanted[0]) for value in values if is_number(value))
    elif kind == "contains":
        texts = [value.casefold() for value in values if isinstance(value, str)]
        holds = any(str(wanted[0]).casefold() in text for text in texts)
    else:
        tags, is_wanted = tag_condition(condition)
        return is_wanted != set(tags).isdisjoint(document_tags(metadata))
    return holds != condition.is_negated
