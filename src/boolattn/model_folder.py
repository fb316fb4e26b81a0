"""Checks of a torch model's folder before any library reads it; needs no torch.

Refused are files that are not what their names say, weights that are pickled, and modules that
are outside the folder or need code other than sentence-transformers'.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from boolattn.checksums import DAMAGED, check_sums
from boolattn.errors import DataError
from boolattn.files import check_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULES, ROUTER = "modules.json", "router_config.json"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
_INDEX = "model.safetensors.index.json"
_OBJECTS = (
    CONFIG,
    ROUTER,
    _INDEX,
    "adapter_config.json",
    "added_tokens.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    TOKENIZER,
    "tokenizer_config.json",
)
_PICKLED = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")
#: Modules of a model; any other class is code that somebody else wrote.
_LIBRARY = "sentence_transformers."


def check_folder(folder: Path) -> bool:
    """Check a folder; return whether its files are those that its checksums name."""
    for path in folder.rglob("*"):
        check_regular(path)
    is_whole = check_sums(folder)
    for part in parts_of(folder):
        _check_part(part)
    return is_whole


def parts_of(folder: Path) -> list[Path]:
    """Return the folder and those of its modules, after a check of where they are."""
    folders = {folder: None}
    if (folder / MODULES).is_file():
        modules = _read(folder / MODULES, list)
        pairs = [(m.get("path"), m.get("type")) if isinstance(m, dict) else (0, 0) for m in modules]
        folders |= dict.fromkeys(_inside(folder, folder / MODULES, pairs))
    for part in list(folders):
        if (part / ROUTER).is_file():
            types = _read(part / ROUTER, dict).get("types")
            pairs = list(types.items()) if isinstance(types, dict) else [(0, 0)]
            folders |= dict.fromkeys(_inside(part, part / ROUTER, pairs))
    return list(folders)


def _inside(folder: Path, file: Path, pairs: Iterable[tuple[Any, Any]]) -> list[Path]:
    folders = []
    for name, kind in pairs:
        if not isinstance(name, str) or not isinstance(kind, str):
            raise DataError(f"{file} is damaged: a module needs a path and a type; {DAMAGED}")
        if not kind.startswith(_LIBRARY):
            raise DataError(
                f"{file} asks for the code {kind[:80]!r}, which is not sentence-transformers'; "
                "it is not run: load the model yourself, and pass it to TorchEncoder()"
            )
        if not is_inside(folder, name):
            raise DataError(f"{file}: the module {name[:80]!r} is outside the folder; {DAMAGED}")
        folders.append(folder / name)
    return folders


def is_inside(folder: Path, name: str) -> bool:
    """Whether a relative name leads to a place inside a folder."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\0" in name:
        return False
    path = folder / name
    # A hub's cache has links to files elsewhere, but none to folders.
    path = path if path.is_dir() else path.parent
    return path.resolve().is_relative_to(folder.resolve())


def _check_part(part: Path) -> None:
    weights = sorted(part.glob("*.safetensors"))
    if (part / _INDEX).is_file():
        places = _read(part / _INDEX, dict).get("weight_map")
        names: set[Any] = set(places.values()) if isinstance(places, dict) else {0}
        for name in names:
            if not isinstance(name, str) or not is_inside(part, name):
                raise DataError(f"{part / _INDEX} names a file outside the folder; {DAMAGED}")
        weights = sorted({*weights, *(part / name for name in names)})
    pickled = [path for path in part.glob("*") if path.suffix in _PICKLED]
    if pickled and not weights:
        raise DataError(
            f"{min(pickled)} is pickled and could run code; save the model with safetensors"
        )
    for name in _OBJECTS:
        if (part / name).is_file():
            _read(part / name, dict)
    for path in weights:
        try:
            with safe_open(path, "np"):
                pass
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} is cut or damaged ({error}); {DAMAGED}") from error


def _read(path: Path, kind: type) -> Any:  # noqa: ANN401 - JSON
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged ({reason}); {DAMAGED}") from error
    if not isinstance(value, kind):
        expected = "a list" if kind is list else "an object"
        raise DataError(f"{path} is damaged: it holds no JSON {expected}; {DAMAGED}")
    return value
