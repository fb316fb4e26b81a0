"""What a query asks of an index: its tree, its operands, and their vectors.

May import: boolattn.composition.scores, boolattn.logic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.composition.scores import signs
from boolattn.logic.tree import operators_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from boolattn.logic.operators import Operator
    from boolattn.logic.parsed_query import Spans
    from boolattn.logic.tree import QueryTree

    Array = NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """What a query asks of an index.

    Attributes:
        text: The query as typed, or a tree in words.
        tree: What is scored: one operand where nothing is composed.
        atoms: The operands' texts, left to right.
        spans: For each operand its characters in the text; empty where it was given as a tree.
        vectors: One for each operand; where they are composed, then that of the whole: of what is
            wanted, said in one breath (the operand itself where it is one), and where nothing is
            excluded, the mean of that and ``plain``. A query that wants nothing in particular has
            ``plain``. Shape ``(operands, dim)``, composed ``(operands + 1, dim)``.
        plain: The vector of the text as typed, of a tree as one says it. Shape ``(dim,)``.
        is_composed: Whether operands are scored apart. If not, the score is the bare similarity.
        confidence: Of the reading, 1 for a tree.
        reading: What was read, also where it was not trusted.
    """

    text: str
    tree: QueryTree
    atoms: tuple[str, ...]
    spans: tuple[Spans, ...]
    vectors: Array
    plain: Array
    is_composed: bool
    confidence: float
    parsed: QueryTree

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators that are obeyed."""
        return operators_of(self.tree)

    @property
    def operand_vectors(self) -> Array:
        """The operands' vectors alone."""
        return self.vectors[: len(self.atoms)]

    @property
    def is_negated(self) -> tuple[bool, ...]:
        """Which operands stand under a NOT."""
        return tuple(sign < 0 for sign in signs(self.tree))
