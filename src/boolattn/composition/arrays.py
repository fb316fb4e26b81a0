"""The few array functions that numpy and torch write differently.

Both accept ``axis=`` and share the names used in this package, so a formula is written once with
``xp = namespace(x)``. Torch is never imported here: a tensor only exists where it already is.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

#: A numpy array or a torch tensor.
Array = Any


def is_tensor(x: Array) -> bool:
    """Tell a torch tensor from a numpy array."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def namespace(x: Array) -> Any:  # noqa: ANN401 - a module
    """Return ``torch`` for a tensor and ``numpy`` for anything else."""
    return sys.modules["torch"] if is_tensor(x) else np


def like(x: Array, reference: Array) -> Array:
    """Return ``x`` as float32 in the library and on the device of ``reference``."""
    if is_tensor(reference):
        torch = sys.modules["torch"]
        return torch.as_tensor(x, dtype=torch.float32, device=reference.device)
    return to_numpy(x).astype(np.float32, copy=False)


def same_type(x: Array, reference: Array) -> Array:
    """Return ``x`` in the library, on the device and in the precision of ``reference``."""
    x = like(x, reference)
    return x.to(reference.dtype) if is_tensor(x) else x.astype(reference.dtype, copy=False)


def to_numpy(x: Array) -> Any:  # noqa: ANN401 - an array of any type
    """Return a numpy array that holds the same values."""
    return x.detach().cpu().numpy() if is_tensor(x) else np.asarray(x)


def log_sigmoid(x: Array) -> Array:
    """``log σ(x)``, without overflow."""
    xp = namespace(x)
    return -xp.logaddexp(-x, xp.zeros_like(x))


def sigmoid(x: Array) -> Array:
    """``σ(x)``, without overflow."""
    return namespace(x).exp(log_sigmoid(x))


#: 1 - exp(x) is 0 above it; far below any difference that a score in float32 shows.
_LARGEST = -1e-7


def log1mexp(x: Array) -> Array:
    r"""``log(1 - exp(x))`` for ``x <= 0``, exact at both ends and with a gradient everywhere.

    >>> log1mexp(np.array([-1e-3, -50.0])).round(6).tolist()
    [-6.908255, -0.0]
    """
    xp = namespace(x)
    x = xp.where(x > _LARGEST, _LARGEST, x)
    # Both branches are computed, and the one not chosen must not make its gradient infinite.
    near = x > -0.6931
    small = xp.log(-xp.expm1(xp.where(near, x, -1.0)))
    large = xp.log1p(-xp.exp(xp.where(near, -1.0, x)))
    return xp.where(near, small, large)
