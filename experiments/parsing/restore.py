"""Write the shipped parser as a folder for torch, to train it further.

    python -m experiments.parsing.restore --out FOLDER
    python -m boolattn.training.parser --base FOLDER --data queries.jsonl.xz --out OTHER

The weights are the rounded ones of the graph for onnxruntime.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import AutoConfig, AutoModel

from boolattn.encoder.export.folder import check_parser
from boolattn.encoder.export.graphs import TEXTS
from boolattn.encoder.parser import ParserModel
from boolattn.encoders.int8 import dequantise, read_tensors
from boolattn.query.parser import GRAPH, load_parser

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PREFIX, _QUANTIZED = "model.", "_quantized"
#: Matrices of a layer of the encoder and of the head, in the order of the graph's constants.
_OF_LAYER = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)
_OF_HEAD = (
    *("input", "tag", "block.inputs", "block.output", "block.grown", "block.shrunk"),
    *("role", "gap_inner", "gap"),
)


def restore(out: Path) -> None:
    """Write the folder, and compare it with the shipped parser."""
    parser = load_parser("shipped")
    table = (parser.folder / parser.manifest.table).resolve()
    config: Any = AutoConfig.from_pretrained(table.parent / "torch" / "query_0_Transformer")
    tensors = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load(parser.folder / GRAPH).graph.initializer
    }
    flat = {name for name, value in tensors.items() if value.ndim == 2}
    matrices = [_matrix(tensors, name) for _, name in sorted(map(_numbered, flat)) if name]
    config.max_position_embeddings = parser.manifest.max_tokens
    config.num_hidden_layers = (len(matrices) - len(_OF_HEAD)) // len(_OF_LAYER)
    model = ParserModel(AutoModel.from_config(config, add_pooling_layer=False))
    layers = range(config.num_hidden_layers)
    names = [f"encoder.encoder.layer.{layer}.{part}" for layer in layers for part in _OF_LAYER]
    weights = dict(zip([f"{name}.weight" for name in (*names, *_OF_HEAD)], matrices, strict=True))
    words = read_tensors([table])
    table_parts = [words[name] for name in (parser.manifest.values, parser.manifest.scales)]
    weights["encoder.embeddings.word_embeddings.weight"] = dequantise(*table_parts)
    named = {name.removeprefix(_PREFIX): value for name, value in tensors.items()}
    weights |= {name: named[name] for name in model.state_dict() if name in named}
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    check_parser(model.eval(), parser, TEXTS)
    model.save(out, parser.folder / parser.manifest.tokenizer, threshold=parser.threshold)


def _numbered(name: str) -> tuple[int, str]:
    """Return the number of a matrix's name, as of ``val_85_quantized``; else an empty name."""
    number = name.removeprefix("val_").removesuffix(_QUANTIZED)
    return (int(number), name) if name.startswith("val_") and number.isdigit() else (0, "")


def _matrix(tensors: dict[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """Return a matrix, rows of outputs."""
    value = tensors[name].astype(np.float32)
    if name.endswith(_QUANTIZED):
        stem = name.removesuffix(_QUANTIZED)
        value = (value - tensors[stem + "_zero_point"]) * tensors[stem + "_scale"]
    return value.T


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True)
    restore(arguments.parse_args().out)
