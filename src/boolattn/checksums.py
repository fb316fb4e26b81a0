"""Checks of model folders before any library reads them: checksums, and what a folder holds.

A manifest is a JSON object with ``files``, the SHA-256 of each, and ``checksum``, that of the
other values: ``model.json`` for onnxruntime, ``parser.json``, ``checksums.json`` for torch; a
folder for torch needs none. Refused are also files that are not what their names say, pickled
weights, and modules outside the folder or of code other than sentence-transformers'.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_file, cache_folder, check_regular, write_text
from boolattn.settings import build, check_types

T = TypeVar("T")
SUMS = "checksums.json"
DAMAGED = "copy the folder again, or export the model again"
_CHANGED = "copy the folder again; after a change of your own: boolattn checksums FOLDER"
#: Files that a library may load; others, such as a README, may change.
_LOADED = (".json", ".jinja", ".model", ".onnx", ".safetensors")
_LOADED_NAMES = ("merges.txt", "vocab.txt")
MODULES, ROUTER = "modules.json", "router_config.json"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
_INDEX = "model.safetensors.index.json"
_PICKLED = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")
#: Modules of a model; any other class is code that somebody else wrote.
_LIBRARY = "sentence_transformers."


def write_sums(folder: Path) -> None:
    """Write ``checksums.json`` with the sums of all files that are loaded."""
    sums = {name: file_sum(folder / name) for name in sorted(_loaded(folder))}
    write_manifest(folder / SUMS, {"files": sums})


def check_sums(folder: Path) -> bool:
    """Compare a folder with its ``checksums.json``; return whether it has one."""
    if not (folder / SUMS).is_file():
        return False
    sums = read_manifest(folder / SUMS)["files"]
    if unknown := sorted(_loaded(folder) - sums.keys()):
        raise DataError(f"{folder / unknown[0]} is not in {SUMS}; remove it, or {_CHANGED}")
    verify(folder, sums, SUMS, _CHANGED)
    return True


def _loaded(folder: Path) -> set[str]:
    loaded = (p for p in folder.rglob("*") if p.suffix in _LOADED or p.name in _LOADED_NAMES)
    return {path.relative_to(folder).as_posix() for path in loaded if path.name != SUMS}


def write_manifest(path: Path, values: Mapping[str, Any]) -> None:
    """Write a manifest with its own checksum."""
    write_text(path, json.dumps({**values, "checksum": checksum(values)}, indent=1) + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest, compare it with its own checksum, and return it without that."""
    values: dict[str, Any] = _read(path, dict)
    expected, sums = values.pop("checksum", None), values.get("files")
    is_sums = isinstance(sums, dict) and all(isinstance(digest, str) for digest in sums.values())
    if expected is None or not is_sums:
        raise DataError(f"{path} is damaged: it is no manifest; {DAMAGED}")
    if expected != checksum(values):
        raise DataError(f"{path} was changed: its checksum differs; {DAMAGED}")
    return values


def read_typed_manifest(kind: type[T], path: Path) -> T:
    """Read a manifest of the format that a class of settings has by default."""
    values, expected = read_manifest(path), getattr(kind, "format", None)
    if (number := values.get("format")) != expected:
        raise DataError(f"{path} has format {number}; this version reads {expected}")
    try:
        manifest = build(kind, values, source=str(path))
        check_types(manifest)
    except ConfigError as error:
        raise DataError(f"{path} is damaged ({error}); {DAMAGED}") from error
    return manifest


def checksum(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def verify(folder: Path, sums: Mapping[str, str], manifest: str, remedy: str = DAMAGED) -> None:
    """Compare the files of a model folder with the SHA-256 sums of its manifest.

    A folder that was verified is remembered by the sizes and times of its files.
    """
    stamps: list[Any] = [str(folder.resolve() / manifest), dict(sums)]
    for name in sums:
        path = folder / name
        if not is_inside(folder, name):
            raise DataError(f"{name!r} in {folder / manifest} leads out of the model's folder")
        check_regular(path)
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is missing; {DAMAGED}") from error
        stamps.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    known = cache_folder() / "verified" / hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    with suppress(OSError):
        known.stat()
        return
    for name, expected in sums.items():
        if file_sum(folder / name) != expected:
            raise DataError(f"{folder / name} differs from {manifest}; {remedy}")
    # With a read-only home every start verifies.
    with suppress(DataError), atomic_file(known):
        pass


def file_sum(path: Path) -> str:
    """Return the SHA-256 sum of a file."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


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
    folders = [folder]
    if (folder / MODULES).is_file():
        modules = _read(folder / MODULES, list)
        pairs = [(m.get("path"), m.get("type")) if isinstance(m, dict) else (0, 0) for m in modules]
        folders += _inside(folder / MODULES, pairs)
    for part in folders.copy():
        if (part / ROUTER).is_file():
            types = _read(part / ROUTER, dict).get("types")
            routes = types.items() if isinstance(types, dict) else [(0, 0)]
            folders += _inside(part / ROUTER, routes)
    return list(dict.fromkeys(folders))


def _inside(file: Path, pairs: Iterable[tuple[Any, Any]]) -> list[Path]:
    folder, folders = file.parent, []
    for name, kind in pairs:
        if not isinstance(name, str) or not isinstance(kind, str):
            raise DataError(f"{file} is damaged: a module needs a path and a type; {DAMAGED}")
        if not kind.startswith(_LIBRARY):
            code = f"the code {kind[:80]!r}, which is not sentence-transformers'"
            remedy = "it is not run: load the model yourself, and pass it to TorchEncoder()"
            raise DataError(f"{file} asks for {code}; {remedy}")
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
    weights: list[Any] = [*part.glob("*.safetensors")]
    if (part / _INDEX).is_file():
        places = _read(part / _INDEX, dict).get("weight_map")
        weights = [*places.values()] if isinstance(places, dict) else [None]
        if not all(isinstance(name, str) and is_inside(part, name) for name in weights):
            raise DataError(f"{part / _INDEX} names a file outside the folder; {DAMAGED}")
    pickled = [path for path in part.glob("*") if path.suffix in _PICKLED]
    if pickled and not weights:
        remedy = "save the model with safetensors"
        raise DataError(f"{min(pickled)} is pickled and could run code; {remedy}")
    for path in part.glob("*.json"):
        _read(path, (dict, list))  # libraries may take a damaged one for none


def _read(path: Path, kind: type | tuple[type, ...]) -> Any:  # noqa: ANN401 - JSON
    check_regular(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged ({reason}); {DAMAGED}") from error
    if not isinstance(value, kind):
        expected = "a list" if kind is list else "an object"
        raise DataError(f"{path} is damaged: it holds no JSON {expected}; {DAMAGED}")
    return value
