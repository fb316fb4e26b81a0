"""A two-tower model on disk: a folder that sentence-transformers and transformers both open.

``SentenceTransformer(folder)`` gives the towers, ``AutoModel.from_pretrained(folder)`` the query
encoder, from the same weights: the root holds an index that points into the tower's folder.
May import: boolattn.encoder, boolattn.plugin.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from boolattn.encoder.bool_bert import QUERY
from boolattn.encoder.card import Card, model_card
from boolattn.encoder.towers import DOCUMENT, settings_of
from boolattn.files import atomic_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentence_transformers import SentenceTransformer

ROUTER = "router_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
#: What a tower's folder holds for sentence-transformers alone.
_TOWER_ONLY = ("sentence_bert_config.json", INDEX)


def save_towers(
    model: SentenceTransformer,
    folder: str | Path,
    *,
    card: Card | None = None,
    also: Callable[[Path], None] | None = None,
) -> None:
    """Write a model with its card, whole or not at all; shared weights are written once.

    Args:
        model: From :func:`build_towers`, or loaded from a folder.
        folder: Where to; a model that is there is replaced.
        card: What the model card says beyond the model's own settings.
        also: Writes what else belongs into the folder, before it takes its place.
    """
    folder = Path(folder)
    is_shared = settings_of(model).is_shared
    with atomic_folder(folder, replace=True, marker="modules.json") as draft:
        model.save_pretrained(str(draft), create_model_card=False)
        tower = draft / _route(draft, is_shared=is_shared)
        _point_to(tower, draft)
        text = model_card(model, card or Card(), folder.name)
        (draft / "README.md").write_text(text, encoding="utf-8")
        if also is not None:
            also(draft)


def _route(draft: Path, *, is_shared: bool) -> str:
    """Send both routes of shared weights to one folder; return the query tower's.

    sentence-transformers does so itself from 6.2 on; before, it writes the weights twice.
    """
    path = draft / ROUTER
    values = json.loads(path.read_text(encoding="utf-8"))
    structure: dict[str, list[str]] = values["structure"]
    [query], [document] = structure[QUERY], structure[DOCUMENT]
    if is_shared and document != query:
        shutil.rmtree(draft / document)
        structure[DOCUMENT] = [query]
        del values["types"][document]
        path.write_text(json.dumps(values, indent=4), encoding="utf-8")
    return query


def _point_to(tower: Path, root: Path) -> None:
    """Let transformers open the root: config and tokenizer, and an index to the weights."""
    places: dict[str, str] = {}
    for file in sorted(tower.iterdir()):
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as weights:
                names = list(weights.keys())
            places |= dict.fromkeys(names, f"{tower.name}/{file.name}")
        elif file.name not in _TOWER_ONLY:
            shutil.copyfile(file, root / file.name)
    index = {"metadata": {}, "weight_map": places}
    (root / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
