"""Opening what a manifest names, and checking that it belongs together.

May import: boolattn.search, boolattn.composition, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import IndexMismatchError
from boolattn.search.index.segments import Rows, Segment
from boolattn.search.index.transaction import SEGMENTS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.encoder.retriever import Retriever
    from boolattn.search.index.manifest import Manifest

    Array = NDArray[np.float32]


def open_rows(folder: Path, manifest: Manifest) -> Rows:
    """Open all segments."""
    return Rows(
        [
            Segment(folder / SEGMENTS / segment.name, segment.count, manifest.dimension)
            for segment in manifest.segments
        ]
    )


def live_rows(folder: Path, manifest: Manifest) -> NDArray[np.bool_] | None:
    """Return which rows are not deleted; ``None`` where none is."""
    if not manifest.deleted:
        return None
    live = np.ones(manifest.n_rows, bool)
    live[np.load(folder / manifest.deleted, allow_pickle=False)] = False
    return live


def check_model(folder: Path, manifest: Manifest, retriever: Retriever) -> None:
    """Refuse another model's index: its vectors mean nothing to this one."""
    if manifest.fingerprint != retriever.fingerprint:
        raise IndexMismatchError(
            f"{folder} was indexed by another model ({manifest.model or 'unnamed'}, fingerprint "
            f"{manifest.fingerprint[:8]}, not {retriever.fingerprint[:8]}); index again with this "
            "one, or search with that one"
        )


def unit(vectors: Array) -> Array:
    """Return vectors of length 1; those that are so already stay as they are, bit for bit."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    is_unit = np.abs(lengths - 1) < 1e-3
    return np.where(is_unit, vectors, vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
