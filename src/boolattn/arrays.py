"""The few array functions that numpy and torch write differently.

Torch is never imported here: a tensor only exists where it already is.
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


def same_type(x: Array, reference: Array) -> Array:
    """Return ``x`` in the library, on the device and in the precision of ``reference``."""
    if is_tensor(reference):
        torch = sys.modules["torch"]
        return torch.as_tensor(x, dtype=reference.dtype, device=reference.device)
    return to_numpy(x).astype(reference.dtype, copy=False)


def to_numpy(x: Array) -> Any:  # noqa: ANN401 - an array of any type
    """Return a numpy array that holds the same values."""
    return x.detach().cpu().numpy() if is_tensor(x) else np.asarray(x)
