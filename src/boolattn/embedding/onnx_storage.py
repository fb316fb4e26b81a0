"""A model folder for onnxruntime: its manifest, and the check that the folder is whole."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.calibration import Calibration
from boolattn.embedding.int8 import read_tensors
from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_file, cache_folder
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST, TOKENIZER, CALIBRATION = "model.json", "tokenizer.json", "calibration.safetensors"
FORMAT = 1
#: Tasks that a graph is for.
QUERY, OPERAND, DOCUMENT = "query", "operand", "document"
_DAMAGED = "copy the folder again, or export the model again"


@dataclass(frozen=True, kw_only=True)
class OnnxManifest:
    """What a folder for onnxruntime says of itself."""

    format: int = FORMAT
    fingerprint: str  # of the torch model; vectors of either backend may be compared
    dimension: int
    similarity: str  # ``cosine`` or ``dot``
    query_length: int  # most tokens of a query
    document_length: int
    query_prompt: str = ""
    document_prompt: str = ""
    threshold: float = 0.5  # least confidence of a parse that is used
    has_parser: bool = False
    gate: str = ""  # what opens BoolAttn's gate; empty without BoolAttn
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    graphs: Mapping[str, str] = field(default_factory=dict)  # a file for each task
    bits: int = 32  # of the weights
    needs: str = "1.23"  # oldest onnxruntime
    agreement: Mapping[str, float] = field(default_factory=dict)  # measured against torch
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file

    def write(self, folder: Path) -> None:
        """Write the manifest, with the hashes of all files that the folder holds."""
        names = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )
        sums = {name: _sha256(folder / name) for name in names if name != MANIFEST}
        values = asdict(self) | {"files": sums}
        values |= {"checksum": checksum(values)}
        with atomic_file(folder / MANIFEST) as file:
            file.write(json.dumps(values, indent=1) + "\n")


def checksum(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's values, but for the checksum itself."""
    rest = {key: value for key, value in values.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def is_onnx_folder(folder: Path) -> bool:
    """Whether a folder is a model for onnxruntime."""
    return (folder / MANIFEST).is_file()


def read_onnx_manifest(folder: Path) -> OnnxManifest:
    """Read a manifest."""
    path = folder / MANIFEST
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = values["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); {_DAMAGED}") from error
    if found != FORMAT:
        raise DataError(f"{path} has format {found}; this version reads {FORMAT}")
    if values.pop("checksum", "") != checksum(values):
        raise DataError(f"{path} was changed: its checksum differs; {_DAMAGED}")
    try:
        return build(OnnxManifest, values, source=str(path))
    except ConfigError as error:
        raise DataError(f"{error}; {_DAMAGED}") from error


def verify(folder: Path, manifest: OnnxManifest) -> None:
    """Compare every file with its hash.

    A folder that was verified is remembered by the sizes and times of its files.
    """
    stamp = _stamp(folder, manifest)
    known = cache_folder() / "verified" / hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    try:
        if known.read_text(encoding="utf-8") == stamp:
            return
    except (OSError, ValueError):
        pass
    for name, expected in manifest.files.items():
        if _sha256(folder / name) != expected:
            raise DataError(f"{folder / name} differs from {MANIFEST}; {_DAMAGED}")
    try:
        with atomic_file(known) as file:
            file.write(stamp)
    except DataError:
        # A read-only home: every start verifies.
        return


def _stamp(folder: Path, manifest: OnnxManifest) -> str:
    lines = [json.dumps(dict(manifest.files), sort_keys=True)]
    for name in manifest.files:
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{name!r} in {folder / MANIFEST} leads out of the model's folder")
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"{path} is missing; {_DAMAGED}") from error
        lines.append(f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ino}")
    return "\n".join(lines)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def calibration_tensors(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as named arrays of at least one dimension."""
    return {f.name: np.atleast_1d(getattr(calibration, f.name)) for f in fields(calibration)}


def read_calibration(folder: Path, dimension: int) -> Calibration:
    """Read a calibration."""
    path = folder / CALIBRATION
    found, expected = read_tensors([path]), Calibration.untrained(dimension)
    values = {}
    for f in fields(Calibration):
        like = np.asarray(getattr(expected, f.name))
        own = found.get(f.name)
        if own is None or own.shape != np.atleast_1d(like).shape:
            raise DataError(f"{path} does not fit {MANIFEST}: {f.name}; {_DAMAGED}")
        values[f.name] = own.astype(np.float32).reshape(like.shape)
    return Calibration(**values)
