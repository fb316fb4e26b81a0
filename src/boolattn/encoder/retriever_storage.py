"""A retriever on disk: a folder of towers with two more files.

``SentenceTransformer(folder)`` opens the same folder and sees the towers alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from boolattn.encoder.calibration import TrainableCalibration
from boolattn.encoder.parser_head import ParserConfig, ParserHead
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.settings import build

if TYPE_CHECKING:
    from torch import Tensor, nn

SETTINGS, WEIGHTS = "composition.json", "composition.safetensors"
FORMAT = 2
#: Names of tensors in format 1, and their names today; a name that ends with a point is a prefix.
_RENAMED = {
    "reader.": "parser.",
    "calibration.lean": "calibration.negation_margin",
    "calibration.excluded_shift": "calibration.negation_offset",
    "calibration.whole": "calibration.whole_query",
    "calibration.scale": "calibration.display_scale",
}
_ADDED = ("negation_margin", "display_scale")


class RetrieverParts(NamedTuple):
    """What a retriever is made of, in the order of its own arguments."""

    towers: SentenceTransformer
    parser: ParserHead | None
    calibration: TrainableCalibration
    threshold: float


def write_retriever_files(parts: RetrieverParts, draft: Path) -> None:
    """Write what a retriever has besides its towers into an unfinished folder."""
    weights = {
        f"{part}.{name}": value.detach().cpu().contiguous()
        for part, module in _modules(parts).items()
        for name, value in module.state_dict().items()
    }
    save_file(weights, draft / WEIGHTS)
    settings = {
        "format": FORMAT,
        "threshold": parts.threshold,
        "parser": asdict(parts.parser.config) if parts.parser else None,
    }
    (draft / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read_retriever(folder: str | Path, *, device: str | None = None) -> RetrieverParts | None:
    """Load a saved retriever's parts; ``None`` for a model folder that is no retriever."""
    folder = Path(folder)
    if not (folder / SETTINGS).is_file():
        return None
    towers = load_towers(folder, device=device)
    settings, weights = _read(folder)
    config = settings["parser"]
    parts = RetrieverParts(
        towers,
        ParserHead(build(ParserConfig, config, source=str(folder / SETTINGS))) if config else None,
        TrainableCalibration(int(towers.get_embedding_dimension() or 0)),
        float(settings["threshold"]),
    )
    for part, module in _modules(parts).items():
        own = {k.partition(".")[2]: v for k, v in weights.items() if k.startswith(f"{part}.")}
        if settings["format"] == 1 and part == "calibration":
            # The first files had neither a margin nor a display scale.
            own = {name: getattr(module, name).detach() for name in _ADDED} | own
        try:
            module.load_state_dict(own)
        except RuntimeError as error:
            raise ConfigError(f"{folder / WEIGHTS} does not fit {folder / SETTINGS}") from error
    return parts


def load_towers(folder: str | Path, *, device: str | None = None) -> SentenceTransformer:
    """Load any sentence-transformers folder, or say that there is none."""
    folder = Path(folder)
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise MissingDataError(f"{folder} holds no model: neither modules.json nor config.json")
    return SentenceTransformer(str(folder), device=device, local_files_only=True)


def _modules(parts: RetrieverParts) -> dict[str, nn.Module]:
    modules: dict[str, nn.Module] = {"calibration": parts.calibration}
    if parts.parser is not None:
        modules["parser"] = parts.parser
    return modules


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read both files, in today's names."""
    try:
        settings = json.loads((folder / SETTINGS).read_text("utf-8"))
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder}: {SETTINGS} or {WEIGHTS} is damaged ({error})") from error
    if settings.get("format") not in range(1, FORMAT + 1):
        raise DataError(f"{folder / SETTINGS} has format {settings.get('format')}, not {FORMAT}")
    if settings["format"] == 1:
        settings["parser"] = settings.pop("reader")
        weights = {_renamed(name): value for name, value in weights.items()}
        if (rule := settings.pop("rule")) != "probability":
            raise ConfigError(f"{folder / SETTINGS}: the composition rule {rule!r} was removed")
    return settings, weights


def _renamed(name: str) -> str:
    for old, new in _RENAMED.items():
        if name == old or (old.endswith(".") and name.startswith(old)):
            return new + name[len(old) :]
    return name
