"""The interface of a store: neighbours with their vectors, and rows.

A row is whatever the store holds beside a vector, as a mapping; ids are the store's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.search.filters import Condition

    Array = NDArray[np.float32]
    Row = Mapping[str, Any]

#: How a store compares vectors. L2 only of vectors of length 1, where it ranks as cosine does.
COSINE, DOT, L2 = "cosine", "dot", "l2"
METRICS = (COSINE, DOT, L2)
#: Names of the field with the text, where none is given.
TEXTS = ("text", "content", "page_content", "document", "body")


class Neighbours(NamedTuple):
    """The nearest rows of one vector, best first."""

    ids: list[Any]
    vectors: Array  # Shape ``(rows, dim)``


class Store(ABC):
    """A store opened for searching.

    Attributes:
        name: Says in errors which it is.
        metric: One of :data:`METRICS`.
        dimension: Length of a vector.
        text: The field with the text; empty: the first of :data:`TEXTS` that a row has.
        title: The field with the title.
        limit: Most neighbours of one search.
    """

    name: str
    metric: str
    dimension: int
    text: str = ""
    title: str = "title"
    limit: int | None = None

    @abstractmethod
    def nearest(
        self, queries: Array, n: int, conditions: Sequence[Condition] = ()
    ) -> list[Neighbours]:
        """Return the ``n`` nearest rows of each query that meet the conditions.

        A row without a vector is never found.
        """

    def key(self, text: str) -> Any:  # noqa: ANN401 - the store's own
        """Return the id that a text is, as in ``like:17``."""
        return int(text) if text.isdecimal() else text

    @abstractmethod
    def vectors(self, ids: Sequence[Any]) -> dict[Any, Array]:
        """Return the vectors of rows by id; those of unknown ids are absent."""

    @abstractmethod
    def rows(self, ids: Sequence[Any]) -> dict[Any, Row]:
        """Return rows by id, without their vectors; those of unknown ids are absent."""


def check_metric(name: str, metric: str) -> str:
    """Return a metric; refuse one that composition cannot use."""
    if metric not in METRICS:
        raise ConfigError(
            f"{name} compares vectors by {metric}; composed search needs one of "
            f"{', '.join(METRICS)}"
        )
    return metric


def as_array(vectors: Sequence[Any], dimension: int) -> Array:
    """Return vectors as one array, also where there are none. Shape ``(vectors, dim)``."""
    return np.asarray(vectors, np.float32).reshape(len(vectors), dimension)
