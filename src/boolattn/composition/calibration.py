r"""Calibration: from the similarity of an operand to a logit, and to a displayed probability."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from boolattn.composition.arrays import Array, like, namespace, sigmoid, to_numpy
from boolattn.logic.operators import OPERATORS

if TYPE_CHECKING:
    from typing import Self

#: Slope and threshold of an untrained calibration.
ALPHA, THRESHOLD = 15.0, 7.0 / 15.0
#: Weight of the whole-query vector before training, for AND, OR and NOT.
WHOLE_QUERY_WEIGHT = float(np.log1p(np.exp(-1.0)))


@dataclass(frozen=True)
class Calibration:
    r"""Turns similarities into logits: ``z = α·(s − t − w·v + δ)``.

    The arrays are all of numpy or all of torch.

    Attributes:
        alpha: Slope ``α``, above 0.
        threshold: Similarity ``t`` at which a document is as likely in as out.
        breadth: ``w``; ``w·v`` raises the threshold of an operand with vector ``v``, because a
            broad operand ("moths") and a narrow one ("hawk moths of Java") need different ones.
            Shape ``(dim,)``.
        negation_offset: ``δ``, by which the threshold of a negated operand is lower.
        negation_margin: How far a negated operand's logit is reduced by the positive ones'
            (:func:`~boolattn.composition.scores.with_negation_margin`).
        whole_query_weights: Weight of the whole-query vector's similarity in a composed score, by
            operator: AND, OR, NOT. Shape ``(3,)``.
        display_scale: ``a`` and ``b`` of the displayed probability ``σ(a·z + b)``, for positive
            and for negated operands. Composed probabilities are no frequencies, because training
            sees far more documents of an operand than a corpus holds. Shape ``(2, 2)``.
    """

    alpha: Array
    threshold: Array
    breadth: Array
    negation_offset: Array
    negation_margin: Array
    whole_query_weights: Array
    display_scale: Array

    @classmethod
    def untrained(cls, dimension: int) -> Self:
        """Return the calibration that training starts from."""
        return cls(
            alpha=np.float32(ALPHA),
            threshold=np.float32(THRESHOLD),
            breadth=np.zeros(dimension, np.float32),
            negation_offset=np.float32(0.0),
            negation_margin=np.float32(0.0),
            whole_query_weights=np.full(len(OPERATORS), WHOLE_QUERY_WEIGHT, np.float32),
            display_scale=np.array([[1.0, 0.0], [1.0, 0.0]], np.float32),
        )

    def like(self, reference: Array) -> Self:
        """Return the same values in the library and on the device of an array."""
        return type(self)(*(like(getattr(self, f.name), reference) for f in fields(self)))

    def numpy(self) -> Self:
        """Return the same values as numpy arrays."""
        return type(self)(*(to_numpy(getattr(self, field.name)) for field in fields(self)))

    def logits(self, similarities: Array, vectors: Array, is_negated: Array) -> Array:
        """Return operand logits.

        Args:
            similarities: Shape ``(..., operands, documents)``.
            vectors: The operands'. Shape ``(..., operands, dim)``.
            is_negated: 1 for negated operands, else 0. Shape ``(..., operands)``.
        """
        middle = self.threshold + vectors @ self.breadth - self.negation_offset * is_negated
        return self.alpha * (similarities - middle[..., None])

    def displayed(self, logits: Array, is_negated: Array) -> Array:
        """Return displayed probabilities; shapes as in :meth:`logits`."""
        xp = namespace(logits)
        positive, negated = self.display_scale
        scale = xp.where((is_negated > 0)[..., None], negated, positive)
        return sigmoid(scale[..., :1] * logits + scale[..., 1:])

    def whole_query_term(self, similarities: Array, operators: Array) -> Array:
        """Return what the whole-query vector adds to a composed score.

        It carries what operands do not say apart, most under AND, least beside a negation.

        Args:
            similarities: To the whole-query vector. Shape ``(..., documents)``.
            operators: 1 for each of AND, OR, NOT that the query uses. Shape ``(..., 3)``.
        """
        weights = operators * self.whole_query_weights
        # Beside a negation only NOT's weight counts: a joined part must not outweigh it.
        weight = namespace(weights).where(operators[..., -1] > 0, weights[..., -1], weights.sum(-1))
        return self.alpha * weight[..., None] * similarities
