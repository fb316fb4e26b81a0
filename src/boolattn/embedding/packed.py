"""A model small enough for a repository: 8-bit matrices with scales, hashed, in small files.

A packed folder holds ``manifest.json`` and safetensors parts. A matrix is stored as int8 with
one fp16 scale for each 64 values of a row; every other tensor as it is; every other file as its
compressed bytes, once however often it occurs. No pickle.
May import: boolattn.plugin.folder, boolattn.data (the cache folder), boolattn.errors.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from boolattn.data.download import cache_folder
from boolattn.errors import DataError, MissingDataError
from boolattn.plugin.folder import whole_folder

FORMAT = 1
MANIFEST = "manifest.json"
BLOCK = 64
#: Smaller matrices are kept as they are: nothing is won, and some are delicate.
MIN_VALUES = 4096
#: Below 25 MB with room for a part's header.
MAX_PART = 24_500_000
SHIPPED = "bge-small-taxa"


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    r"""Round a matrix to 8 bits, ``matrix ≈ values * scale``.

    .. math:: s = \max_{i \in block} |x_i| / 127, \quad q_i = round(x_i / s)

    Args:
        matrix: Any float type. Shape ``(rows, columns)``.

    Returns:
        int8 values, shape ``(rows, columns)``, and fp16 scales, shape ``(rows, blocks)``.
    """
    rows, columns = matrix.shape
    blocks = torch.nn.functional.pad(matrix.float(), (0, -columns % BLOCK)).view(rows, -1, BLOCK)
    # Rounded to fp16 first, so that the values are the best ones for the scale that is stored.
    scale = (blocks.abs().amax(-1) / 127).to(torch.float16)
    divisor = torch.where(scale == 0, 1, scale.float())[..., None]
    values = (blocks / divisor).round().clamp(-127, 127).to(torch.int8)
    return values.view(rows, -1)[:, :columns].contiguous(), scale


def dequantise(values: Tensor, scale: Tensor) -> Tensor:
    """Undo :func:`quantise`, in fp32. Shapes as there."""
    columns = values.shape[1]
    return values.float() * scale.float().repeat_interleave(BLOCK, 1)[:, :columns]


def pack(folder: str | Path, target: str | Path, *, max_part: int = MAX_PART) -> None:
    """Write a saved model in the packed form, whole or not at all.

    Args:
        folder: A folder that :func:`save_towers` wrote.
        target: The packed folder; one that is there is replaced.
        max_part: Bytes of tensors in one file.
    """
    folder, target = Path(folder), Path(target)
    if not (folder / "modules.json").is_file():
        raise MissingDataError(f"{folder} holds no modules.json; name a folder of a saved model")
    with whole_folder(target, mark=MANIFEST) as draft:
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
                packed = bytearray(lzma.compress(raw))
                parts.add(files[name], {"": torch.frombuffer(packed, dtype=torch.uint8)})
        parts.flush()
        manifest = {"format": FORMAT, "parts": parts.sums, "files": files, "weights": weights}
        text = json.dumps(manifest, indent=1, sort_keys=True)
        (draft / MANIFEST).write_text(text, encoding="utf-8")


def unpack(target: str | Path, folder: str | Path) -> None:
    """Write a packed model as an ordinary folder, whole or not at all.

    Args:
        target: The packed folder.
        folder: Where the model goes; one that is there is replaced.
    """
    target, folder = Path(target), Path(folder)
    manifest = _manifest(target)
    try:
        tensors = _tensors(target, manifest["parts"])
        with whole_folder(folder) as draft:
            for name, key in manifest["files"].items():
                raw = lzma.decompress(tensors[key].numpy().tobytes())
                _inside(draft, name).write_bytes(raw)
            for name, entries in manifest["weights"].items():
                made = {k: _restore(v, tensors) for k, v in entries.items()}
                save_file(made, _inside(draft, name), metadata={"format": "pt"})
    except (KeyError, TypeError, AttributeError, RuntimeError, lzma.LZMAError) as error:
        raise DataError(f"{target} does not fit its own {MANIFEST}: {error}") from error


def shipped_model(name: str = SHIPPED) -> Path:
    """Return the folder of the model this package brings, unpacked once into the user's cache.

    Args:
        name: Which, where there are several.
    """
    source = Path(__file__).parents[1] / "models" / name
    if not (source / MANIFEST).is_file():
        raise MissingDataError(f"this build brings no model {name!r}; train one: boolattn train")
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
            # Another process was faster; what it wrote is the same.
            if not folder.is_dir():
                raise
    return folder


@dataclass
class _Parts:
    """Files that are filled one after another."""

    folder: Path
    max_bytes: int
    sums: dict[str, str] = field(default_factory=dict)
    _held: dict[str, Tensor] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def add(self, key: str, tensors: dict[str, Tensor]) -> None:
        """Put tensors that belong together into one file; a known key is there already."""
        if key in self._known:
            return
        size = sum(t.nbytes for t in tensors.values())
        if self._held and sum(t.nbytes for t in self._held.values()) + size > self.max_bytes:
            self.flush()
        self._known.add(key)
        self._held |= {key + suffix: tensor for suffix, tensor in tensors.items()}

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            path = self.folder / f"part-{len(self.sums)}.safetensors"
            save_file(self._held, path)
            self.sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
            self._held = {}


def _pack_weights(path: Path, name: str, parts: _Parts) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    with safe_open(path, framework="pt") as file:
        for key in sorted(file.keys()):
            tensor = file.get_tensor(key)
            whole = f"{name}:{key}"
            if not (
                tensor.is_floating_point() and tensor.dim() > 1 and tensor.numel() > MIN_VALUES
            ):
                parts.add(whole, {"": tensor})
                entries[key] = {"pieces": [whole]}
                continue
            # A row's own scales stay beside it, so a matrix may be cut between rows.
            rows = tensor.reshape(len(tensor), -1)
            n_rows = max(1, parts.max_bytes // (rows.shape[1] + 2 * -(-rows.shape[1] // BLOCK)))
            pieces = []
            for number, piece in enumerate(rows.split(n_rows)):
                values, scale = quantise(piece)
                pieces.append(f"{whole}:{number}")
                parts.add(pieces[-1], {"": values, ".scale": scale})
            dtype = str(tensor.dtype).removeprefix("torch.")
            entries[key] = {"pieces": pieces, "shape": list(tensor.shape), "dtype": dtype}
    return entries


def _restore(entry: dict[str, Any], tensors: dict[str, Tensor]) -> Tensor:
    if "dtype" not in entry:
        [piece] = entry["pieces"]
        return tensors[piece]
    rows = [dequantise(tensors[piece], tensors[f"{piece}.scale"]) for piece in entry["pieces"]]
    dtype: torch.dtype = getattr(torch, entry["dtype"])
    return torch.cat(rows).reshape(entry["shape"]).to(dtype)


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


def _tensors(target: Path, sums: dict[str, str]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, expected in sums.items():
        path = target / name
        if not path.is_file():
            raise DataError(f"{path} is missing; install the package or fetch the files again")
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise DataError(f"{path} is damaged: its hash differs from the one in {MANIFEST}")
        try:
            with safe_open(path, framework="pt") as file:
                tensors |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise DataError(f"{path} is damaged: {error}") from error
    return tensors


def _inside(folder: Path, name: str) -> Path:
    """A file's place in a folder, which a damaged manifest must not lead out of."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{name!r} in {MANIFEST} leads out of the model's folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
