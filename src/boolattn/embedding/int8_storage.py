"""Saved models with 8-bit matrices, in small hashed files; needs no torch.

A packed folder holds ``manifest.json`` and safetensors parts. A matrix is stored as int8 with
one fp16 scale for each 64 values of a row; every other tensor as it is; every other file as its
compressed bytes, once however often it occurs. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from boolattn.errors import DataError, MissingDataError
from boolattn.files import atomic_folder, cache_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

FORMAT = 1
MANIFEST = "manifest.json"
BLOCK = 64
#: Smaller matrices are stored as they are: they save nothing, and some are sensitive.
MIN_VALUES = 4096
#: Below 25 MB with a part's header.
MAX_PART = 24_500_000
SHIPPED = "bge-small-taxa"


def quantise(matrix: Array) -> tuple[Array, Array]:
    r"""Round a matrix to 8 bits, ``matrix ≈ values * scale``.

    .. math:: s = \max_{i \in block} |x_i| / 127, \quad q_i = round(x_i / s)

    Returns int8 values, shape ``(rows, columns)``, and fp16 scales, shape ``(rows, blocks)``.
    """
    rows, columns = matrix.shape
    padded = np.pad(matrix.astype(np.float32), ((0, 0), (0, -columns % BLOCK)))
    blocks = padded.reshape(rows, -1, BLOCK)
    # Rounded to fp16 first, so that the values are the best ones for the scale that is stored.
    scale = (np.abs(blocks).max(-1) / np.float32(127)).astype(np.float16)
    divisor = np.where(scale == 0, 1, scale.astype(np.float32))[..., None]
    values = np.clip(np.round(blocks / divisor), -127, 127).astype(np.int8)
    return np.ascontiguousarray(values.reshape(rows, -1)[:, :columns]), scale


def dequantise(values: Array, scale: Array) -> Array:
    """Undo :func:`quantise`, in fp32. Shapes as there."""
    scales = np.repeat(scale.astype(np.float32), BLOCK, axis=1)[:, : values.shape[1]]
    return values.astype(np.float32) * scales


def pack(folder: str | Path, target: str | Path, *, max_part: int = MAX_PART) -> None:
    """Write a saved model in the packed form, completely or not at all; a packed one is replaced.

    ``max_part`` is the number of bytes of tensors in one file.
    """
    folder, target = Path(folder), Path(target)
    if not (folder / "modules.json").is_file():
        raise MissingDataError(f"{folder} holds no modules.json; name a folder of a saved model")
    with atomic_folder(target, replace=True, marker=MANIFEST) as draft:
        parts = _Parts(draft, max_part)
        files: dict[str, str] = {}
        weights: dict[str, dict[str, Any]] = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".safetensors":
                weights[name] = _pack_weights(path, name, parts)
            else:
                raw = path.read_bytes()
                files[name] = hashlib.sha256(raw).hexdigest()
                parts.add(files[name], {"": np.frombuffer(lzma.compress(raw), np.uint8)})
        parts.flush()
        manifest = {"format": FORMAT, "parts": parts.sums, "files": files, "weights": weights}
        text = json.dumps(manifest, indent=1, sort_keys=True)
        (draft / MANIFEST).write_text(text, encoding="utf-8")


def unpack(target: str | Path, folder: str | Path) -> None:
    """Write a packed model as an ordinary folder, completely or not at all, in place of another."""
    target, folder = Path(target), Path(folder)
    manifest = _manifest(target)
    try:
        tensors = _tensors(target, manifest["parts"])
        with atomic_folder(folder, replace=True) as draft:
            for name, key in manifest["files"].items():
                raw = lzma.decompress(tensors[key].tobytes())
                _inside(draft, name).write_bytes(raw)
            for name, entries in manifest["weights"].items():
                made = {k: _restore(v, tensors) for k, v in entries.items()}
                save_file(made, _inside(draft, name), metadata={"format": "pt"})
    except (KeyError, TypeError, AttributeError, ValueError, lzma.LZMAError) as error:
        raise DataError(f"{target} does not fit its own {MANIFEST}: {error}") from error


def shipped_model(name: str = SHIPPED) -> Path:
    """Return the folder of the model in this package, unpacked once into the user's cache."""
    source = Path(__file__).parents[1] / "models" / name
    if not (source / MANIFEST).is_file():
        raise MissingDataError(f"this build contains no model {name!r}; train one: boolattn train")
    key = hashlib.sha256((source / MANIFEST).read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "models" / f"{name}-{key}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as draft:
        unpack(source, Path(draft) / "model")
        try:
            (Path(draft) / "model").rename(folder)
        except OSError:
            # Another process was faster, and wrote the same.
            if not folder.is_dir():
                raise
    return folder


@dataclass
class _Parts:
    """Files that are filled one after another."""

    folder: Path
    max_bytes: int
    sums: dict[str, str] = field(default_factory=dict)
    _waiting: dict[str, Array] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def add(self, key: str, tensors: dict[str, Array]) -> None:
        """Write tensors into one file, once for each key."""
        if key in self._known:
            return
        size = sum(t.nbytes for t in tensors.values())
        if self._waiting and sum(t.nbytes for t in self._waiting.values()) + size > self.max_bytes:
            self.flush()
        self._known.add(key)
        self._waiting |= {key + suffix: tensor for suffix, tensor in tensors.items()}

    def flush(self) -> None:
        """Write the tensors that wait."""
        if self._waiting:
            path = self.folder / f"part-{len(self.sums)}.safetensors"
            save_file(self._waiting, path)
            self.sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
            self._waiting = {}


def _pack_weights(path: Path, name: str, parts: _Parts) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, tensor in sorted(_load(path).items()):
        whole = f"{name}:{key}"
        if tensor.dtype.kind != "f" or tensor.ndim < 2 or tensor.size <= MIN_VALUES:
            parts.add(whole, {"": tensor})
            entries[key] = {"pieces": [whole]}
            continue
        # Scales are stored beside their rows, so a matrix may be cut between rows.
        rows = tensor.reshape(len(tensor), -1)
        n_rows = max(1, parts.max_bytes // (rows.shape[1] + 2 * -(-rows.shape[1] // BLOCK)))
        pieces = []
        for number, start in enumerate(range(0, len(rows), n_rows)):
            values, scale = quantise(rows[start : start + n_rows])
            pieces.append(f"{whole}:{number}")
            parts.add(pieces[-1], {"": values, ".scale": scale})
        dtype = tensor.dtype.name
        entries[key] = {"pieces": pieces, "shape": list(tensor.shape), "dtype": dtype}
    return entries


def _restore(entry: dict[str, Any], tensors: dict[str, Array]) -> Array:
    if "dtype" not in entry:
        [piece] = entry["pieces"]
        return tensors[piece]
    rows = [dequantise(tensors[piece], tensors[f"{piece}.scale"]) for piece in entry["pieces"]]
    return np.concatenate(rows).reshape(entry["shape"]).astype(entry["dtype"])


def _manifest(target: Path) -> dict[str, Any]:
    path = target / MANIFEST
    if not path.is_file():
        raise MissingDataError(f"{target} holds no {MANIFEST}; name a folder that pack() wrote")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        found = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if found != FORMAT:
        raise DataError(f"{path} has format {found}; this version reads {FORMAT}")
    return dict(manifest)


def _tensors(target: Path, sums: dict[str, str]) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    for name, expected in sums.items():
        path = target / name
        if not path.is_file():
            raise DataError(f"{path} is missing; install the package or fetch the files again")
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise DataError(f"{path} is damaged: its hash differs from the one in {MANIFEST}")
        tensors |= _load(path)
    return tensors


def _load(path: Path) -> dict[str, Array]:
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    except KeyError as error:
        raise DataError(f"{path} holds {error}; only numpy's types can be packed") from error


def _inside(folder: Path, name: str) -> Path:
    """Return a file's path in a folder; a damaged manifest must not lead out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{name!r} in {MANIFEST} leads out of the model's folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
