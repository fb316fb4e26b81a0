"""What is right: for each query the rows of its gold, excluded and partly matching documents.

May import: boolattn.data, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.data.records import Query


@dataclass(frozen=True, eq=False)
class RowSets:
    """One set of rows for each query, all in one array.

    Attributes:
        rows: The sets one after the other, each in rising order, int32.
        starts: Where each begins; one more than there are sets, int64.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, sets: Iterable[Iterable[int]]) -> RowSets:
        """Pack sets.

        >>> sets = RowSets.of([{3, 1}, (), {2}])
        >>> sets.sizes.tolist(), sets[0].tolist()
        ([2, 0, 1], [1, 3])
        """
        ordered = [sorted(set(one)) for one in sets]
        starts = np.zeros(len(ordered) + 1, dtype=np.int64)
        np.cumsum([len(one) for one in ordered], out=starts[1:])
        rows = np.array([row for one in ordered for row in one], dtype=np.int32)
        return cls(rows, starts)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each set has."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.rows[self.starts[index] : self.starts[index + 1]]


@dataclass(frozen=True, eq=False)
class Judgements:
    """Queries with a gold document in the corpus, and the rows of what they name.

    Attributes:
        queries: Those that are judged.
        n_documents: Size of the corpus the rows are of.
        gold: Documents that answer.
        excluded: Documents the query excludes.
        partial: Documents that match some but not all of an AND.
    """

    queries: tuple[Query, ...]
    n_documents: int
    gold: RowSets
    excluded: RowSets
    partial: RowSets

    @classmethod
    def of(cls, queries: Sequence[Query], rows: Mapping[str, int]) -> Judgements:
        """Find the rows of every query's documents.

        A query none of whose gold documents is in the corpus is left out, because no ranking
        could answer it. A document that is gold counts as gold alone.

        Args:
            queries: With the ids of their documents.
            rows: Row of each document of the corpus, 0 to the number of documents less one.
        """
        kept, gold, excluded, partial = [], [], [], []
        for query in queries:
            found = _rows(query.gold, rows)
            if not found:
                continue
            kept.append(query)
            gold.append(found)
            excluded.append(_rows(query.excluded, rows) - found)
            partial.append(_rows(query.partial, rows) - found)
        if not kept:
            raise DataError(
                f"none of {len(queries)} queries has a gold document among {len(rows)} documents; "
                "do queries and documents belong together?"
            )
        return cls(
            tuple(kept), len(rows), RowSets.of(gold), RowSets.of(excluded), RowSets.of(partial)
        )

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Names of the queries."""
        return tuple(query.id for query in self.queries)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """What is asked."""
        return tuple(query.text for query in self.queries)

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """Structures, empty where not known."""
        return tuple(query.template for query in self.queries)

    @cached_property
    def operators(self) -> tuple[tuple[str, ...], ...]:
        """Names of the operators each query uses."""
        return tuple(tuple(op.value for op in query.operators) for query in self.queries)

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Subjects, empty where not known."""
        return tuple(query.domain for query in self.queries)

    @cached_property
    def wordings(self) -> tuple[str, ...]:
        """Whether training may have seen the wording: ``seen``, ``unseen``, or empty."""
        return tuple(_exposure().get(query.wording, "") for query in self.queries)


def _rows(names: Iterable[str], rows: Mapping[str, int]) -> set[int]:
    return {rows[name] for name in names if name in rows}


@lru_cache(maxsize=1)
def _exposure() -> Mapping[str, str]:
    """Say of every frozen wording whether it is held out of training."""
    from boolattn.data.taxa.wordings import wordings

    return {
        wording.name: "unseen" if wording.is_unseen else "seen"
        for group in wordings().values()
        for wording in group
    }
