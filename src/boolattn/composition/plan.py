"""The plan of a query: its tree, its operands, their vectors, and documents scored by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boolattn.composition.arrays import Array, like, sigmoid
from boolattn.composition.scores import compose, with_negation_margin
from boolattn.logic.operators import OPERATORS, Operator
from boolattn.logic.structure import operand_signs
from boolattn.logic.tree import QueryTree, operators_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from boolattn.composition.calibration import Calibration
    from boolattn.logic.parsed_query import Spans

    Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Plan:
    """What a query asks of an index.

    Attributes:
        text: The query as typed, or a tree in words.
        tree: What is scored: one operand where nothing is composed.
        atoms: The operands' texts, left to right.
        spans: For each operand its characters in the text; empty where a tree was given.
        vectors: One for each operand and, where they are composed, the whole-query vector: that of
            the positive part of the query (the operand itself where there is one); without a
            negation, the mean of that and ``plain``; without a positive part, ``plain``.
            Shape ``(operands, dim)``, composed ``(operands + 1, dim)``.
        plain: The vector of the text as typed, or of a tree in words. Shape ``(dim,)``.
        is_composed: Whether operands are scored apart. If not, the score is the similarity.
        confidence: Of the parse, 1 for a tree.
        parsed: What was parsed, also where the confidence was too low to use it.
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

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators of the tree."""
        return operators_of(self.tree)

    @property
    def operand_vectors(self) -> Vectors:
        """The operands' vectors alone."""
        return self.vectors[: len(self.atoms)]

    @property
    def is_negated(self) -> tuple[bool, ...]:
        """Which operands are negated."""
        return tuple(sign < 0 for sign in operand_signs(self.tree))

    @property
    def single_vector(self) -> Vectors:
        """One vector for an engine that takes no more; composing finds better. Shape ``(dim,)``.

        The mean of the positive operands less half the mean of the negated ones.
        """
        negated = np.array(self.is_negated, bool)
        vector: Vectors = self.operand_vectors[~negated].mean(0)
        if negated.any():
            vector = vector - 0.5 * self.operand_vectors[negated].mean(0)
        return np.asarray(vector, np.float32)


class OperandProbabilities(NamedTuple):
    """Probability that documents belong to operands. Shapes ``(operands, documents)``."""

    composed: Any
    displayed: Any


def operand_logits(plan: Plan, similarities: Array, calibration: Calibration) -> Array:
    """Turn similarities ``(vectors, ..., documents)`` into logits of the operands."""
    n = len(plan.atoms)
    vectors = like(plan.operand_vectors, similarities)
    return calibration.logits(similarities[:n], vectors, like(plan.is_negated, similarities))


def compose_plan(plan: Plan, logits: Array, whole: Array, calibration: Calibration) -> Array:
    """Compose logits ``(operands, ..., documents)``, and add the whole-query vector's term.

    ``whole`` are the similarities to that vector, ``(..., documents)``.
    """
    used = like([operator in plan.operators for operator in OPERATORS], whole)
    reduced = with_negation_margin(plan.tree, logits, calibration.negation_margin)
    return compose(plan.tree, reduced) + calibration.whole_query_term(whole, used)


def score(plan: Plan, similarities: Array, calibration: Calibration) -> Array:
    """Score documents: composed, or by similarity where nothing is composed.

    Args:
        plan: Of the query.
        similarities: Of its vectors to documents. Shape ``(vectors, documents)``.
        calibration: In the same library.
    """
    if not plan.is_composed:
        return similarities[0]
    logits = operand_logits(plan, similarities, calibration)
    return compose_plan(plan, logits, similarities[-1], calibration)


def operand_probabilities(
    plan: Plan, similarities: Array, calibration: Calibration
) -> OperandProbabilities:
    """Return the probability that each document belongs to each operand, composed and displayed.

    Arguments as in :func:`score`.
    """
    logits = operand_logits(plan, similarities, calibration)
    reduced = with_negation_margin(plan.tree, logits, calibration.negation_margin)
    is_negated = like(plan.is_negated, similarities)
    return OperandProbabilities(sigmoid(reduced), calibration.displayed(logits, is_negated))
