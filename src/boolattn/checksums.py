"""Checksums of model folders: written when a model is saved, compared when it is loaded.

A manifest is a JSON object with ``files``, the SHA-256 of each, and ``checksum``, that of the
other values. Folders for onnxruntime have one in ``model.json``, parsers in ``parser.json``,
folders for torch in ``checksums.json``. A folder without a manifest is loaded without this check.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_file, cache_folder, check_regular
from boolattn.settings import build, check_types

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
SUMS = "checksums.json"
DAMAGED = "copy the folder again, or export the model again"
_CHANGED = "copy the folder again; after a change of your own: boolattn checksums FOLDER"
#: Files that a library may load; others, such as a README, may change.
_LOADED = (".json", ".jinja", ".model", ".onnx", ".safetensors")
_LOADED_NAMES = ("merges.txt", "vocab.txt")


def write_sums(folder: Path) -> None:
    """Write ``checksums.json`` with the sums of all files that are loaded."""
    write_manifest(
        folder / SUMS, {"files": {n: file_sum(folder / n) for n in sorted(_loaded(folder))}}
    )


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
    with atomic_file(path) as file:
        file.write(json.dumps({**values, "checksum": checksum(values)}, indent=1) + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest, compare it with its own checksum, and return it without that."""
    check_regular(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        expected = values.pop("checksum", None)
        sums = values["files"].items()
        is_right = all(isinstance(text, str) for pair in sums for text in pair)
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({_reason(error)}); {DAMAGED}") from error
    # Parsers exported before checksums existed have none.
    if not is_right or (expected is None and path.name != "parser.json"):
        raise DataError(f"{path} is damaged: it is no manifest; {DAMAGED}")
    if expected is not None and expected != checksum(values):
        raise DataError(f"{path} was changed: its checksum differs; {DAMAGED}")
    return dict(values)


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


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def verify(folder: Path, sums: Mapping[str, str], manifest: str, remedy: str = DAMAGED) -> None:
    """Compare the files of a model folder with the SHA-256 sums of its manifest.

    A folder that was verified is remembered by the sizes and times of its files.
    """
    stamp = _stamp(folder, sums, manifest)
    known = (
        cache_folder()
        / "verified"
        / hashlib.sha256(str(folder.resolve() / manifest).encode()).hexdigest()
    )
    try:
        if known.read_text(encoding="utf-8") == stamp:
            return
    except (OSError, ValueError):
        pass
    for name, expected in sums.items():
        if file_sum(folder / name) != expected:
            raise DataError(f"{folder / name} differs from {manifest}; {remedy}")
    try:
        with atomic_file(known) as file:
            file.write(stamp)
    except DataError:
        # A read-only home: every start verifies.
        return


def _stamp(folder: Path, sums: Mapping[str, str], manifest: str) -> str:
    lines = [json.dumps(dict(sums), sort_keys=True)]
    for name in sums:
        path, relative = folder / name, PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise DataError(f"{name!r} in {folder / manifest} leads out of the model's folder")
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is missing; {DAMAGED}") from error
        check_regular(path)
        lines.append(
            f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
        )
    return "\n".join(lines)


def file_sum(path: Path) -> str:
    """Return the SHA-256 sum of a file."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
