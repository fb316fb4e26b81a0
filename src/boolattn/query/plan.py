"""The plan of a query: its tree, its operands, their vectors, and documents scored by them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from boolattn.query.clauses import Clause, clauses, conjunctions
from boolattn.query.structure import operand_signs
from boolattn.query.tree import QueryTree, operators_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from boolattn.query.operators import Operator
    from boolattn.query.parsed_query import Spans

    Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """What a query asks of an index.

    Attributes:
        text: The query as typed, or a tree in words.
        tree: What is scored: one operand where nothing is composed.
        atoms: The operands' texts, left to right.
        spans: For each operand its characters in the text; empty where a tree was given.
        vectors: One for each operand and, where they are composed, one for each of
            :func:`~boolattn.query.clauses.conjunctions`: that of its operands in words; of a
            query that is one conjunction, the mean of that and ``plain``, and likewise of a
            request. Shape ``(vectors, dim)``.
        plain: The vector of the text as typed, or of a tree in words. Shape ``(dim,)``.
        is_composed: Whether operands are scored apart. If not, the score is the similarity.
        confidence: Of the parse, 1 for a tree.
        parsed: What was parsed, also where it is not used.
        fallback: Why operators are not used, or not all words; empty where they are.
        is_request: Whether the text asks for one thing, and only the words that name it count.
    """

    text: str
    tree: QueryTree
    atoms: tuple[str, ...]
    spans: tuple[Spans, ...]
    vectors: Vectors
    plain: Vectors
    is_composed: bool
    confidence: float
    parsed: QueryTree
    fallback: str = ""
    is_request: bool = False

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators of the tree."""
        return operators_of(self.tree)

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """The alternatives of the tree."""
        return clauses(self.tree)

    @property
    def operand_vectors(self) -> Vectors:
        """The operands' vectors alone."""
        return self.vectors[: len(self.atoms)]

    @property
    def is_negated(self) -> tuple[bool, ...]:
        """Which operands are negated."""
        return tuple(sign < 0 for sign in operand_signs(self.tree))

    @property
    def clause_vectors(self) -> Vectors:
        """Of each clause that of its positive part, or zeros. Shape ``(clauses, dim)``."""
        own = enumerate(conjunctions(self.clauses), start=len(self.atoms))
        rows = {positive: row for row, positive in own}
        nothing = np.zeros_like(self.plain)
        parts = (clause.positive for clause in self.clauses)
        found = [self.vectors[rows.get(own, own[0])] if own else nothing for own in parts]
        return np.stack(found)

    @cached_property
    def positive_vector(self) -> Vectors:
        """One vector for the positive part. Shape ``(dim,)``."""
        vector: Vectors = self.clause_vectors.mean(0)
        return vector
