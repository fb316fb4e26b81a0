"""Loading the model of an index by the name its manifest gives.

May import: boolattn.composition, boolattn.encoder, boolattn.embedding.minilm, boolattn.errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import MissingDataError

if TYPE_CHECKING:
    from boolattn.encoder.retriever import Retriever

SHIPPED, MINILM = "shipped", "minilm"


def load_model(name: str, *, device: str | None = None) -> Retriever:
    """Load a model.

    Args:
        name: ``shipped``, ``minilm``, or a folder of any sentence-transformers model.
        device: Where to; left out, a GPU if there is one.
    """
    from boolattn.encoder.retriever import Retriever

    return Retriever.load(model_folder(name), device=device)


def model_name(name: str) -> str:
    """Return a name that means the same from every working directory."""
    return name if name in (SHIPPED, MINILM) or not name else str(Path(name).resolve())


def model_folder(name: str) -> Path:
    """Return the folder of a model; the shipped one is unpacked once."""
    if name == SHIPPED:
        from boolattn.embedding.packed import shipped_model

        return shipped_model()
    if name == MINILM:
        from boolattn.embedding.minilm import minilm_folder

        return minilm_folder()
    if not Path(name).is_dir():
        raise MissingDataError(
            f"there is no model at {name}; name a folder, {SHIPPED!r} or {MINILM!r}"
        )
    return Path(name)
