"""Weights in 7 bits, shared by onnxruntime's graphs and by torch; numpy only.

A model folder for onnxruntime holds its weights in safetensors files. ``weights.json`` says which
tensors of the torch model they are, so either form can be made from the other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from boolattn.errors import DataError

Array = NDArray[Any]

#: Largest absolute value. Processors without VNNI add pairs of products in 16 bits, and two
#: products of an 8-bit activation and an 8-bit weight overflow them.
LEVELS = 64
WEIGHTS_MAP = "weights.json"
#: Folder of the torch model's small files.
TORCH = "torch"
#: Bytes of a file, at most.
MAX_PART = 24_000_000


def quantise(matrix: Array, axis: int) -> tuple[Array, Array]:
    r"""Round a matrix to 7 bits, with one scale for each index of an axis.

    .. math:: s = \max |x| / 64, \quad q = round(x / s)

    Returns int8 values of the same shape, and float32 scales by which they are multiplied, of the
    shape ``(rows, 1)`` or ``(columns,)``.
    """
    top = np.abs(matrix).max(axis=1 - axis).astype(np.float32)
    # A power of two: rounding a matrix that was rounded before changes nothing.
    scale = np.where(top > 0, top / np.float32(LEVELS), np.float32(1))
    scale = scale[:, None] if axis == 0 else scale
    return np.rint(matrix / scale).astype(np.int8), scale


def dequantise(values: Array, scale: Array) -> Array:
    """Return the matrix that values and scales stand for."""
    return values.astype(np.float32) * scale


def read_tensors(paths: Iterable[Path]) -> dict[str, Array]:
    """Read all tensors of some safetensors files."""
    tensors: dict[str, Array] = {}
    for path in paths:
        try:
            tensors |= load_file(path)
        except (OSError, SafetensorError, KeyError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
    return tensors


def write_parts(tensors: dict[str, Array], folder: Path) -> dict[str, tuple[str, int, int]]:
    """Write tensors into files of limited size; return each one's file, offset and bytes."""
    shards: list[dict[str, Array]] = [{}]
    for name, tensor in sorted(tensors.items()):
        size = sum(other.nbytes for other in shards[-1].values())
        if shards[-1] and size + tensor.nbytes > MAX_PART:
            shards.append({})
        shards[-1][name] = np.ascontiguousarray(tensor)
    places = {}
    for number, part in enumerate(shards):
        path = folder / f"weights-{number}.safetensors"
        save_file(part, path)
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        for name in part:
            start, end = header[name]["data_offsets"]
            places[name] = (path.name, 8 + length + start, end - start)
    return places


def read_map(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Read ``weights.json``: for each file of the torch model, where each tensor is."""
    path = folder / WEIGHTS_MAP
    try:
        entries: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    return entries


def write_torch(source: Path, target: Path) -> None:
    """Write the torch model of an onnxruntime folder, with float32 weights."""
    shutil.copytree(source / TORCH, target, dirs_exist_ok=True)
    for path in list(target.rglob("tokenizer_config.json")):
        shutil.copyfile(source / "tokenizer.json", path.with_name("tokenizer.json"))
    tensors = read_tensors(sorted(source.glob("weights-*.safetensors")))
    for file, entries in read_map(source).items():
        restored = {}
        for name, entry in entries.items():
            value = tensors[entry["key"]]
            if "scale" in entry:
                value = dequantise(value, tensors[entry["scale"]])
            restored[name] = np.ascontiguousarray(value.T if entry["is_transposed"] else value)
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        save_file(restored, target / file, metadata={"format": "pt"})


def fill_weights(template: Path, torch_folder: Path, target: Path) -> None:
    """Write the weight files of a folder without them, from those of its torch model."""
    tensors: dict[str, Array] = {}
    for file, entries in read_map(template).items():
        torch_tensors = read_tensors([torch_folder / file])
        for name, entry in entries.items():
            value = torch_tensors[name].T if entry["is_transposed"] else torch_tensors[name]
            if "scale" in entry:
                tensors[entry["key"]], tensors[entry["scale"]] = quantise(value, entry["axis"])
            else:
                tensors[entry["key"]] = value
    write_parts(tensors, target)
