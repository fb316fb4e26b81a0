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
