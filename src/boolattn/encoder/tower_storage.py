"""Save a two-tower model as a folder for both sentence-transformers and transformers.

``SentenceTransformer(folder)`` loads the towers, ``AutoModel.from_pretrained(folder)`` the query
encoder, from the same weights: the root has an index that points to the tower's folder.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from safetensors import safe_open
from sentence_transformers import SentenceTransformer

from boolattn.checksums import write_sums
from boolattn.encoder.bool_bert import QUERY, BoolBertModel, base_name
from boolattn.encoder.towers import query_encoder, settings_of
from boolattn.errors import MissingDataError
from boolattn.files import atomic_folder
from boolattn.plugin.storage import refuse_adapters, strict_loading
from boolattn.settings import checked

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
#: Files of a tower's folder that are only for sentence-transformers.
_TOWER_ONLY = ("sentence_bert_config.json", INDEX)
UNKNOWN = "unknown"
_TEMPLATE = files("boolattn.encoder").joinpath("card.md")
_BIAS = """BoolAttn adds a learned bias to the attention of the query encoder. Documents are encoded
without it.
"""
_GATES = {
    "label": "oracle operator labels; without `operators` every gate is closed",
    "lexicon": "cue lexicon, from plain text",
    "learned": "trained classifier, from plain text",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts for the model card that are not in the model."""

    base: str = ""  # what the towers were initialised from; by default the name it was loaded by
    licence: str = "apache-2.0"  # identifier of the weights' licence, as model hubs write it
    data: str = UNKNOWN
    command: str = ""  # that trained the model


@checked
def load_towers(folder: str | Path, *, device: str | None = None) -> SentenceTransformer:
    """Load any sentence-transformers folder, or say that there is none."""
    folder = Path(folder)
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise MissingDataError(f"{folder} holds no model: neither modules.json nor config.json")
    with strict_loading(folder):
        return SentenceTransformer(str(folder), device=device, local_files_only=True)


@checked
def save_towers(
    model: SentenceTransformer, folder: str | Path, *, card: Card | None = None
) -> None:
    """Write a model with its card, atomically; shared weights are written once.

    An older model in the folder is replaced.

    >>> import boolattn
    >>> from tempfile import TemporaryDirectory
    >>> towers = boolattn.build_towers(boolattn.shipped_model())
    >>> with TemporaryDirectory() as folder:
    ...     boolattn.save_towers(towers, f"{folder}/towers")
    ...     SentenceTransformer(f"{folder}/towers").get_embedding_dimension()
    384
    """
    folder = Path(folder)
    refuse_adapters(model)
    settings_of(model)  # refuses a model of another kind
    with atomic_folder(folder, replace=True, marker="modules.json", finish=write_sums) as draft:
        model.save_pretrained(str(draft), create_model_card=False)
        [tower] = draft.glob(f"{QUERY}_0_*")
        _point_to(tower, draft)
        text = model_card(model, card or Card(), folder.name)
        (draft / "README.md").write_text(text, encoding="utf-8")


def _point_to(tower: Path, root: Path) -> None:
    """Write config, tokenizer and an index of the weights to the root, for transformers."""
    files: dict[str, str] = {}
    for file in sorted(tower.iterdir()):
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as weights:
                names = list(weights.keys())
            files |= dict.fromkeys(names, f"{tower.name}/{file.name}")
        elif file.name not in _TOWER_ONLY:
            shutil.copyfile(file, root / file.name)
    index = {"metadata": {}, "weight_map": files}
    (root / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def model_card(model: SentenceTransformer, card: Card, name: str) -> str:
    """Return the card of a two-tower model as Markdown; ``name`` is that of its folder."""
    encoder, towers, plugin = query_encoder(model), settings_of(model), "none"
    family = encoder.config.model_type
    if isinstance(encoder, BoolBertModel):
        config, family = encoder.config.boolattn_config, encoder.backbone.config.model_type
        plugin = f"{config.variant} variant; gate: {_GATES[config.gate]}"
    rows = {
        "base encoder": card.base or base_name(encoder) or UNKNOWN,
        "family": family,
        "weights": "shared by both towers" if towers.is_shared else "separate for each tower",
        "pooling": towers.pooling,
        "similarity": towers.similarity,
        "dimensions": str(model.get_embedding_dimension()),
        "maximum length": f"queries {towers.query_length}, documents {towers.document_length}",
        "BoolAttn": plugin,
        "training data": card.data,
    }
    cells = {key: " ".join(value.split()).replace("|", "\\|") for key, value in rows.items()}
    table = "\n".join(f"| {key} | {cell} |" for key, cell in cells.items())
    command = f"\nTrained with\n\n```sh\n{card.command}\n```\n" if card.command else ""
    values = {"name": name, "licence": card.licence, "table": table, "command": command}
    values["bias"] = "" if plugin == "none" else _BIAS
    return Template(_TEMPLATE.read_text("utf-8")).substitute(values)
