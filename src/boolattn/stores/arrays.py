"""Vectors in memory: a numpy array, or a faiss index, each with a list of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.encoders.callables import unit
from boolattn.errors import ConfigError, DataError, QueryError, ServerError
from boolattn.scoring.exact import exact_search
from boolattn.settings import checked
from boolattn.stores.base import similarities
from boolattn.stores.filters import RANGES
from boolattn.stores.foreign import COSINE, DOT, L2, Collection, Neighbours, check_metric
from boolattn.stores.values import filter_hash, flatten, is_number, items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from boolattn.stores.filters import Condition
    from boolattn.stores.foreign import Array, Row

    FaissIndex = Any
    Places = NDArray[np.int64]

#: Least cells of inverted lists that a search visits.
_CELLS = 32


class _RowList(Collection):
    """Rows in a list; the id of a row is its place."""

    def __init__(self, rows: Sequence[Row], text: str = "", title: str = "title") -> None:
        if not hasattr(rows, "__len__") or not all(isinstance(row, Mapping) for row in rows):
            raise DataError("rows are a list of mappings, one for each vector")
        self._rows, self.text, self.title = rows, text, title

    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return rows by their places."""
        return {number: self._rows[number] for number in self._known(ids)}

    def _known(self, ids: Sequence[Any]) -> list[int]:
        return [
            number for number in ids if isinstance(number, int) and 0 <= number < len(self._rows)
        ]

    def _selected(self, conditions: Sequence[Condition]) -> Places | None:
        """Return the places of the rows that meet conditions; ``None``: all."""
        if not conditions:
            return None
        return np.array(
            [number for number, row in enumerate(self._rows) if _passes(row, conditions)], np.int64
        )


class ArrayCollection(_RowList):
    """An array of vectors with a list of rows; compared exactly.

    Args:
        vectors: Shape ``(rows, dim)``.
        rows: A mapping for each vector.
        metric: How vectors are compared.
        text: The field with the text.
        title: The field with the title.
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
        super().__init__(rows, text, title)
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
    ) -> list[Neighbours]:
        """Compare with every row."""
        chosen = self._selected(conditions)
        vectors = self._vectors if chosen is None else self._vectors[chosen]
        compare = _minus_l2 if self.metric == L2 else similarities
        positions = exact_search(queries, vectors, n, compare).rows
        rows = positions if chosen is None else chosen[positions]
        return [Neighbours(numbers.tolist(), self._vectors[numbers]) for numbers in rows]

    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return vectors by their places."""
        return {number: self._vectors[number] for number in self._known(ids)}


class FaissCollection(_RowList):
    """A faiss index that can reconstruct its vectors, with a list of rows.

    Args:
        index: Of inner products or L2 distances.
        rows: A mapping for each vector, by faiss's own ids.
        text: The field with the text.
        title: The field with the title.
        effort: Least candidates of a graph that a search visits: fewer are faster, and find less.
    """

    @checked
    def __init__(
        self,
        index: FaissIndex,
        rows: Sequence[Row],
        *,
        text: str = "",
        title: str = "title",
        effort: int = 1000,
    ) -> None:
        import faiss

        if not isinstance(index, faiss.Index):
            raise ConfigError(f"index is one of faiss, not {type(index).__name__}")
        super().__init__(rows, text, title)
        metrics = {faiss.METRIC_INNER_PRODUCT: DOT, faiss.METRIC_L2: L2}
        self.name, self.dimension = "the faiss index", index.d
        self._index, self._faiss, self._effort = index, faiss, effort
        self.metric = check_metric(self.name, metrics.get(index.metric_type, "another metric"))
        if index.ntotal != len(rows):
            raise DataError(
                f"the faiss index has {index.ntotal} vectors, and there are {len(rows)} rows"
            )
        if isinstance(index, faiss.IndexIVF):
            index.make_direct_map()

    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Neighbours]:
        """Search the index; a graph or lists are searched as wide as that many neighbours need."""
        chosen, selector = self._selected(conditions), None
        if chosen is not None:
            selector = self._faiss.IDSelectorBatch(chosen)
        n = min(n, self._index.ntotal if chosen is None else len(chosen))
        if not n:
            return [self._neighbours(np.zeros(0, np.int64)) for _ in queries]
        queries = np.ascontiguousarray(queries, np.float32)
        _, rows = self._index.search(queries, n, params=self._parameters(n, selector))
        return [self._neighbours(numbers[numbers >= 0]) for numbers in rows]

    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return reconstructed vectors."""
        return dict(zip(*self._neighbours(np.array(self._known(ids), np.int64)), strict=True))

    def _parameters(self, n: int, selector: Any) -> Any:  # noqa: ANN401 - faiss has no types
        faiss, index = self._faiss, self._index
        if isinstance(index, faiss.IndexHNSW):
            least = min(max(n, self._effort, index.hnsw.efSearch), index.ntotal)
            return faiss.SearchParametersHNSW(sel=selector, efSearch=least)
        if isinstance(index, faiss.IndexIVF):
            cells = min(index.nlist, max(_CELLS, index.nprobe))
            return faiss.SearchParametersIVF(sel=selector, nprobe=cells)
        return None if selector is None else faiss.SearchParameters(sel=selector)

    def _neighbours(self, rows: Places) -> Neighbours:
        try:
            vectors = self._index.reconstruct_batch(rows)
        except RuntimeError as error:
            raise ServerError(
                "the faiss index cannot reconstruct its vectors, which composition needs; give "
                "the vectors to ArrayCollection, or wrap the index in IndexIDMap2"
            ) from error
        return Neighbours(rows.tolist(), vectors)


def _minus_l2(queries: Array, vectors: Array) -> Array:
    return np.asarray(2 * queries @ vectors.T - (vectors**2).sum(1), np.float32)


def _passes(row: Row, conditions: Sequence[Condition]) -> bool:
    values = flatten(row)
    for condition in conditions:
        field_values, kind = items(values.get(condition.name)), condition.kind
        wanted: Any = condition.values[0] if condition.values else None
        if kind in RANGES:
            if not is_number(wanted):
                raise QueryError(f"filter {condition.name!r}: rows in memory compare numbers only")
            holds = any(RANGES[kind](value, wanted) for value in field_values if is_number(value))
        elif kind == "exists":
            holds = bool(field_values) == wanted
        elif kind == "contains":
            part = str(wanted).casefold()
            holds = any(
                part in value.casefold() for value in field_values if isinstance(value, str)
            )
        else:
            hashes = set(map(filter_hash, condition.values))
            holds = (kind == "not") != any(filter_hash(value) in hashes for value in field_values)
        if holds == condition.is_negated:
            return False
    return True
