"""How well one model reads, as a table: names with a cue word, and queries nobody here wrote.

May import: boolattn.evaluation, boolattn.composition, boolattn.encoder, boolattn.training,
boolattn.reproduction, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boolattn.embedding.models import load_model
from boolattn.errors import ConfigError
from boolattn.evaluation.parse_accuracy import split_names, unseen_accuracy
from boolattn.reproduction.tables import markdown, short
from boolattn.training.run_folder import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHARES = ("structure", "obeyed", "words", "word_f1")


def read(model: str, path: Path | None = None) -> str:
    """Measure a model's reading.

    Args:
        model: A folder, or "shipped".
        path: Where to write everything as JSON.

    Returns:
        A table.
    """
    retriever = load_model(model)
    if retriever.parser is None:
        raise ConfigError(f"{model} has no reader: to it, every text is one operand")
    names, fresh = split_names(retriever.plan), unseen_accuracy(retriever.plan)
    if path is not None:
        write_json(path, {"names": names, "fresh": fresh})
    kinds = ", ".join(
        f"{kind} {own['misread']} of {own['n']}" for kind, own in names["kinds"].items()
    )
    groups = {
        "all": fresh,
        "taxa": fresh["domains"]["taxa"],
        "other domains": fresh["elsewhere"],
        **fresh["forms"],
    }
    rows = [[name, str(own["n"]), *_cells(own)] for name, own in groups.items()]
    heads = ["fresh queries", "n", "structure", "obeyed", "words", "word F1"]
    words = f"{names['misread']} of {names['n']} names were taken apart ({kinds})."
    return f"{words}\n\n{markdown(heads, rows)}"


def _cells(shares: Mapping[str, Any]) -> list[str]:
    return [short(shares[name]) if name in shares else "–" for name in _SHARES]
