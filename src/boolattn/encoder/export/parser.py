"""Export of a trained query parser for onnxruntime, with a check against torch."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from boolattn.checksums import file_sum, write_manifest
from boolattn.encoder.export.graphs import TEXTS, finish_graph, trace
from boolattn.encoder.parser import MAX_TOKENS, SETTINGS, TOKENIZER, ParserModel
from boolattn.encoders.int8 import quantise, read_tensors
from boolattn.errors import DataError
from boolattn.files import atomic_folder, scratch_folder
from boolattn.query.parsed_query import decode, mark_operators
from boolattn.query.parser import GRAPH, MANIFEST, OUTPUTS, Parser, ParserManifest, open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.encoders.int8 import Array

#: Least share of texts of equal structure in both backends.
LEAST_AGREEMENT = 0.8


class ParserGraph(nn.Module):
    """A parser from word vectors to logits, for one text without padding."""

    input_names = ("words",)
    output_names = OUTPUTS

    def __init__(self, model: ParserModel) -> None:
        super().__init__()
        self.model = model
        positions = model.encoder.embeddings.position_embeddings
        positions.weight = nn.Parameter(positions.weight[:MAX_TOKENS].clone())

    def forward(self, words: Tensor) -> tuple[Tensor, ...]:
        """Return the logits; the shape of the vectors is ``(1, tokens, hidden)``."""
        return tuple(self.model.parse_words(words, torch.ones_like(words[..., 0]).long()))


def export_parser(
    source: str | Path,
    target: str | Path,
    *,
    encoder: str | Path | None = None,
    texts: Sequence[str] = TEXTS,
) -> ParserManifest:
    """Write a parser folder for onnxruntime, complete or not at all, and compare it with torch.

    Args:
        source: Folder of a trained parser.
        target: The new folder.
        encoder: Folder of an encoder for onnxruntime; where it holds the same word vectors and
            the same tokenizer, they are not stored again.
        texts: Compared in both backends.
    """
    source, target = Path(source), Path(target)
    model = ParserModel.load(source)
    settings = json.loads((source / SETTINGS).read_text(encoding="utf-8"))
    table = model.encoder.embeddings.word_embeddings.weight.detach().numpy()
    values, scales = quantise(table, 0)
    shared = stored_words(Path(encoder), target, values, source) if encoder else {}
    with (
        atomic_folder(target, replace=True, marker=MANIFEST) as draft,
        scratch_folder() as scratch,
    ):
        example = (torch.zeros(1, 8, table.shape[1]),)
        trace(ParserGraph(model), example, (1,), scratch / GRAPH)
        finish_graph(scratch / GRAPH, draft / GRAPH)
        if "table" not in shared:
            save_file({"values": values, "scales": scales}, draft / ParserManifest.table)
        if "tokenizer" not in shared:
            shutil.copyfile(source / TOKENIZER, draft / TOKENIZER)
        manifest = replace(
            ParserManifest(),
            **shared,  # type: ignore[arg-type]  # names of texts
            max_tokens=MAX_TOKENS,
            threshold=settings["threshold"],
            files={path.name: file_sum(path) for path in sorted(draft.iterdir())},
            report=settings["report"],
        )
        write_manifest(draft / MANIFEST, asdict(manifest))
    check_agreement(model, Parser(target), texts)
    return manifest


def stored_words(encoder: Path, target: Path, values: Array, source: Path) -> dict[str, str]:
    """Return where an encoder's folder has the same word vectors and the same tokenizer.

    The names are those of a parser's manifest, the files relative to its folder.
    """
    shared = {}
    for path in sorted(encoder.glob("weights-*.safetensors")):
        for name, tensor in read_tensors([path]).items():
            scale = name.removesuffix("_quantized") + "_scale"
            if tensor.dtype == values.dtype and np.array_equal(tensor, values):
                shared = {"table": _relative(path, target), "values": name, "scales": scale}
    if (encoder / TOKENIZER).read_bytes() == (source / TOKENIZER).read_bytes():
        shared["tokenizer"] = _relative(encoder / TOKENIZER, target)
    return shared


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def check_agreement(model: ParserModel, parser: Parser, texts: Sequence[str]) -> None:
    """Raise if onnxruntime parses texts otherwise than torch."""
    tokenizer = open_tokenizer(
        parser.folder / parser.manifest.tokenizer, parser.manifest.max_tokens
    )
    same = []
    for text, output in zip(texts, parser.parse(texts), strict=True):
        encoding = tokenizer.encode(mark_operators(text))
        ids = torch.tensor([encoding.ids])
        with torch.no_grad():
            expected = decode(model(ids, torch.ones_like(ids)), text, encoding.offsets, 0)
        same.append(expected.parsed == output.parsed)
    if sum(same) < LEAST_AGREEMENT * len(texts):
        raise DataError(
            f"onnxruntime parses {len(texts) - sum(same)} of {len(texts)} texts otherwise than "
            "torch; export with other texts if these are too uncertain"
        )
