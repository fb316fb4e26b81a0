"""A retriever on disk: a folder of towers with two files more.

``SentenceTransformer(folder)`` opens the same folder and sees the towers alone.
May import: boolattn.composition, boolattn.encoder, boolattn.settings, boolattn.errors.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from boolattn.composition.calibration import Calibration
from boolattn.encoder import save_towers
from boolattn.encoder.parser_head import ParserConfig, ParserHead
from boolattn.encoder.retriever import Retriever
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.settings import build

if TYPE_CHECKING:
    from boolattn.encoder import Card

SETTINGS, WEIGHTS = "composition.json", "composition.safetensors"
FORMAT = 1


def save_retriever(retriever: Retriever, folder: str | Path, *, card: Card | None = None) -> None:
    """Write towers, reader and calibration, whole or not at all."""
    save_towers(
        retriever.towers,
        folder,
        card=card,
        also=lambda draft: write_retriever_files(retriever, draft),
    )


def write_retriever_files(retriever: Retriever, draft: Path) -> None:
    """Write what a retriever has beyond its towers, into a folder under way."""
    parts: dict[str, Any] = {"calibration": retriever.calibration}
    if retriever.parser is not None:
        parts["reader"] = retriever.parser
    weights = {
        f"{part}.{name}": value.detach().cpu().contiguous()
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }
    save_file(weights, draft / WEIGHTS)
    settings = {
        "format": FORMAT,
        "threshold": retriever.threshold,
        "rule": retriever.rule,
        "reader": asdict(retriever.parser.config) if retriever.parser else None,
    }
    (draft / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_retriever(folder: str | Path, *, device: str | None = None) -> Retriever:
    """Load a retriever, or any sentence-transformers folder, which then reads no plain text."""
    folder = Path(folder)
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise MissingDataError(f"{folder} holds no model: neither modules.json nor config.json")
    towers = SentenceTransformer(str(folder), device=device, local_files_only=True)
    if not (folder / SETTINGS).is_file():
        return Retriever(towers)
    try:
        settings = json.loads((folder / SETTINGS).read_text("utf-8"))
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder}: {SETTINGS} or {WEIGHTS} is damaged ({error})") from error
    if settings.get("format") != FORMAT:
        raise DataError(f"{folder / SETTINGS} has format {settings.get('format')}, not {FORMAT}")
    retriever = Retriever(
        towers,
        calibration=Calibration(int(towers.get_embedding_dimension() or 0)),
        threshold=float(settings["threshold"]),
        rule=str(settings["rule"]),
    )
    parts: dict[str, Any] = {"calibration": retriever.calibration}
    if settings["reader"] is not None:
        config = build(ParserConfig, settings["reader"], source=str(folder / SETTINGS))
        retriever.parser = ParserHead(config).to(towers.device).eval()
        parts["reader"] = retriever.parser
    for part, module in parts.items():
        own = {k.partition(".")[2]: v for k, v in weights.items() if k.startswith(f"{part}.")}
        if part == "calibration":
            # What was saved before there were such leaned on nothing, and showed what composes.
            own = {"lean": torch.tensor(0.0), "scale": retriever.calibration.scale} | own
            if "excluded_shift" in own:
                own["negation_offset"] = own.pop("excluded_shift")
        try:
            module.load_state_dict(own)
        except RuntimeError as error:
            raise ConfigError(f"{folder / WEIGHTS} does not fit {folder / SETTINGS}") from error
    return retriever
