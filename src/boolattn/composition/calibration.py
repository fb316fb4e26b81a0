r"""From a similarity to a probability: ``p = σ(α·s − β)``, learned, and measured.

A broad operand ("moths") and a narrow one ("hawk moths of Java") need different thresholds, so β
has a part that is read off the operand's vector. May import: boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.logic.operators import OPERATORS

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALPHA, BETA = 15.0, 7.0
_LEAST_SLOPE = 0.01


class Calibration(nn.Module):
    r"""Turns similarities into logits: ``z = α·s − β`` with ``β = α·(t + w·v − δ)``.

    ``t`` is the similarity at which a document is as likely in as out, ``w·v`` what the operand's
    breadth adds to it, and ``δ`` (for an excluded operand only) how much sooner it is held to
    belong. ``w`` and ``δ`` begin at 0. All are of the size of a similarity, so that one learning
    rate suits them. ``lean`` says how far what is excluded is held against what is wanted
    (:func:`~boolattn.composition.scores.leaned`).

    What composes best is no frequency: training meets far more documents of an operand than a
    corpus holds. So what a person is shown is ``σ(a·z + b)`` with ``a`` and ``b`` of their own for
    kept and for excluded operands (:meth:`shown`), fitted to a corpus when all else is settled.

    The vector of the whole (:class:`~boolattn.composition.plan.Plan`) knows what operands do not
    say apart (a place that both are cut by), most where AND joins them, least where something is
    excluded: a composed score takes ``α`` times its similarity in, with a weight of the query's
    operator.

    Args:
        dimension: Of the operand vectors.
        lean: At birth. 0 suits encoders that were never trained for it, and exclusions as bare as
            "moths NOT Kenya".
    """

    scale: Tensor

    def __init__(self, dimension: int, lean: float = 0.0) -> None:
        super().__init__()
        self.dimension = dimension
        # Its logarithm, so that no step makes a more similar document less probable.
        self.log_alpha = nn.Parameter(torch.tensor(ALPHA).log())
        self.threshold = nn.Parameter(torch.tensor(BETA / ALPHA))
        self.breadth = nn.Parameter(torch.zeros(dimension))
        self.negation_offset = nn.Parameter(torch.tensor(0.0))
        self.lean = nn.Parameter(torch.tensor(lean))
        self.whole = nn.Parameter(torch.full((len(OPERATORS),), -1.0))
        # Rows: kept, excluded; columns: a and b. No training moves them.
        self.register_buffer("scale", torch.tensor([[1.0, 0.0], [1.0, 0.0]]))

    def reset_scale(self) -> None:
        """Show what is composed, as before anything was fitted."""
        self.scale.copy_(torch.tensor([1.0, 0.0]))

    def forward(self, similarities: Tensor, vectors: Tensor, is_negated: Tensor) -> Tensor:
        """Return logits.

        Args:
            similarities: Shape ``(..., operands, documents)``.
            vectors: The operands'. Shape ``(..., operands, dim)``.
            is_negated: Which operands stand under a NOT. Shape ``(..., operands)``.
        """
        middle = self.threshold + vectors @ self.breadth - self.negation_offset * is_negated
        return self.log_alpha.exp() * (similarities - middle[..., None])

    def shown(self, logits: Tensor, is_negated: Tensor) -> Tensor:
        """Return probabilities that hold in the corpus they were fitted to.

        Args:
            logits: Shape ``(..., operands, documents)``.
            is_negated: Shape ``(..., operands)``.
        """
        a, b = self.scale[is_negated.long()][..., None].unbind(-2)
        return torch.sigmoid(a * logits + b)

    def whole_query_term(self, similarities: Tensor, operators: Tensor) -> Tensor:
        """Return what the whole query's vector adds to a composed score.

        Args:
            similarities: Shape ``(..., documents)``.
            operators: 1 for each of AND, OR, NOT that the query uses. Shape ``(..., 3)``.
        """
        weights = operators * F.softplus(self.whole)
        # What is joined beside an exclusion must not outweigh it: NOT's own weight decides.
        weight = torch.where(operators[..., -1] > 0, weights[..., -1], weights.sum(-1))
        return self.log_alpha.exp() * weight[..., None] * similarities


@dataclass(frozen=True)
class Reliability:
    """How often what is said to hold with some probability does hold.

    Attributes:
        said: Mean probability of each bin.
        found: Share of it that is true.
        count: Pairs in each bin.
        error: Expected calibration error: mean distance of the two, weighted by count.
    """

    said: NDArray[np.float64]
    found: NDArray[np.float64]
    count: NDArray[np.int64]
    error: float


def fit_scale(
    logits: NDArray[Any], is_true: NDArray[Any], n_steps: int = 50
) -> tuple[float, float]:
    """Find ``a`` and ``b`` with which ``σ(a·z + b)`` is the likeliest to give the truth.

    Newton's method, on a concave likelihood. Documents keep their order: ``a`` stays above 0.

    >>> a, b = fit_scale(np.tile([-1.0, 1.0], 500), np.repeat([0, 0, 0, 0, 1], 200))
    >>> a, round(b, 1)
    (0.01, -1.4)
    """
    found = np.array([1.0, 0.0])
    columns = np.stack([logits, np.ones_like(logits)], -1)
    # As if one document more had been seen on each side: two kept apart would have no best.
    ridge = np.eye(2) / max(1, len(logits))
    for _ in range(n_steps):
        p = 1 / (1 + np.exp(-np.clip(columns @ found, -50, 50)))
        slope = columns.T @ (is_true - p) / len(logits) - ridge @ (found - (1.0, 0.0))
        bend = (columns * (p * (1 - p))[:, None]).T @ columns / len(logits) + ridge
        step = np.linalg.solve(bend, slope)
        # A long step overshoots where probabilities are near 0 or 1.
        found = found + step * min(1.0, 1.0 / max(1e-9, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-9:
            break
    a, b = found.tolist()
    if a >= _LEAST_SLOPE:
        return a, b
    # The truth falls where logits rise: all that can be said is how much is true.
    share = np.clip(np.mean(is_true), 1e-6, 1 - 1e-6)
    return _LEAST_SLOPE, float(np.log(share / (1 - share)) - _LEAST_SLOPE * np.mean(logits))


def reliability(
    probabilities: NDArray[Any], is_true: NDArray[Any], n_bins: int = 10
) -> Reliability:
    """Lay probabilities beside the truth.

    >>> reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 0, 1, 0])).error
    0.25
    """
    bins = np.minimum((probabilities * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(bins, minlength=n_bins)
    filled = count > 0
    count = count[filled]
    said = np.bincount(bins, probabilities, n_bins)[filled] / count
    found = np.bincount(bins, is_true, n_bins)[filled] / count
    error = float(np.abs(said - found) @ count / count.sum())
    return Reliability(said, found, count, round(error, 12))
