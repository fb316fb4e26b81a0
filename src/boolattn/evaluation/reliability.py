"""Reliability of operand probabilities: the curve, its error, and the fit that corrects it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Smallest slope of a fit: documents keep their order.
_MIN_SLOPE = 0.01


@dataclass(frozen=True)
class Reliability:
    """A reliability curve: by bin the mean probability, the share of true pairs and their number.

    ``error`` is the expected calibration error, the mean of ``|said - found|`` weighted by count.
    """

    said: NDArray[np.float64]
    found: NDArray[np.float64]
    count: NDArray[np.int64]
    error: float


def reliability(
    probabilities: NDArray[Any], is_true: NDArray[Any], n_bins: int = 10
) -> Reliability:
    """Compare probabilities with the truth, in bins of equal width; empty bins are left out.

    >>> reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 0, 1, 0])).error
    0.25
    """
    count, said, found = (
        np.histogram(probabilities, n_bins, (0, 1), weights=weights)[0]
        for weights in (None, probabilities, np.asarray(is_true, np.float64))
    )
    is_filled = count > 0
    count = count[is_filled]
    said, found = said[is_filled] / count, found[is_filled] / count
    error = float(np.abs(said - found) @ count / count.sum())
    return Reliability(said, found, count, round(error, 12))


def reliability_by_sign(
    probabilities: NDArray[Any], is_true: NDArray[Any], is_negated: NDArray[Any]
) -> dict[str, Any]:
    """Return the curves of ``kept`` (positive) and ``excluded`` (negated) operands.

    In ``bin_error`` each bin counts once.

    Args:
        probabilities: Shape ``(operands, documents)``; nan leaves a pair out.
        is_true: Whether the document belongs to the operand, same shape.
        is_negated: Shape ``(operands,)``.
    """
    curves: dict[str, Any] = {}
    for name, chosen in (("kept", ~is_negated), ("excluded", is_negated)):
        if chosen.any():
            is_known = ~np.isnan(probabilities[chosen])
            curve = reliability(probabilities[chosen][is_known], is_true[chosen][is_known])
            curves[name] = {
                "operands": int(chosen.sum()),
                "said": curve.said.round(5).tolist(),
                "found": curve.found.round(5).tolist(),
                "count": curve.count.tolist(),
                "error": round(curve.error, 5),
                "bin_error": round(float(np.abs(curve.said - curve.found).mean()), 5),
            }
    return curves


def fit_scale(logits: NDArray[Any], is_true: NDArray[Any]) -> tuple[float, float]:
    """Fit ``a`` and ``b`` of ``σ(a·z + b)`` to the truth, by maximum likelihood.

    A weak prior, worth one pair, draws them to (1, 0); ``a`` is at least 0.01.

    >>> a, b = fit_scale(np.tile([-1.0, 1.0], 500), np.repeat([0, 0, 0, 0, 1], 200))
    >>> a, round(b, 1)
    (0.01, -1.4)
    """
    from scipy.optimize import minimize
    from scipy.special import expit, logit

    n, prior = max(1, len(logits)), np.array([1.0, 0.0])
    columns = np.stack([logits, np.ones_like(logits)], -1).astype(np.float64)
    truth = np.asarray(is_true, np.float64)

    def loss(x: NDArray[np.float64]) -> float:
        z = columns @ x
        return float(np.logaddexp(0, z).sum() - z @ truth + (x - prior) @ (x - prior) / 2) / n

    def gradient(x: NDArray[np.float64]) -> Any:  # noqa: ANN401 - scipy has no types
        return (columns.T @ (expit(columns @ x) - truth) + x - prior) / n

    def hessian(x: NDArray[np.float64]) -> Any:  # noqa: ANN401
        p = expit(columns @ x)
        return ((columns * (p * (1 - p))[:, None]).T @ columns + np.eye(2)) / n

    options = {"gtol": 1e-10}
    a, b = minimize(
        loss, prior, jac=gradient, hess=hessian, method="trust-exact", options=options
    ).x
    if a >= _MIN_SLOPE:
        return float(a), float(b)
    # The truth falls where logits rise: only the share of true pairs can be fitted.
    share = np.clip(truth.mean(), 1e-6, 1 - 1e-6)
    return _MIN_SLOPE, float(logit(share) - _MIN_SLOPE * np.mean(logits))
