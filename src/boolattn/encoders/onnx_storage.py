"""A model folder for onnxruntime: its manifest, and the check that the folder is whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from boolattn.checksums import DAMAGED, file_sum, read_typed_manifest, write_manifest
from boolattn.errors import DataError
from boolattn.query.runtime import open_tokenizer, vocabulary_sum

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST, TOKENIZER = "model.json", "tokenizer.json"
FORMAT = 1
#: Tasks that a graph is for.
QUERY, OPERAND, DOCUMENT = "query", "operand", "document"


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
    gate: str = ""  # what opens BoolAttn's gate; empty without BoolAttn
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    graphs: Mapping[str, str] = field(default_factory=dict)  # a file for each task
    bits: int = 32  # of the weights
    needs: str = "1.23"  # oldest onnxruntime
    agreement: Mapping[str, float] = field(default_factory=dict)  # measured against torch
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file
    # Of the tokenizer with a SHA-256 its ``vocabulary_sum``, which takes long.
    vocabulary: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the manifest, with the hashes of all files that the folder holds."""
        names = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )
        sums = {name: file_sum(folder / name) for name in names if name != MANIFEST}
        vocabulary = {}
        if TOKENIZER in sums:
            tokenizer = open_tokenizer(folder / TOKENIZER, self.query_length)
            vocabulary[sums[TOKENIZER]] = vocabulary_sum(tokenizer)
        values = asdict(self) | {"files": sums, "vocabulary": vocabulary}
        write_manifest(folder / MANIFEST, values)


def is_onnx_folder(folder: Path) -> bool:
    """Whether a folder is a model for onnxruntime."""
    return (folder / MANIFEST).is_file()


def read_onnx_manifest(folder: Path) -> OnnxManifest:
    """Read a manifest."""
    path = folder / MANIFEST
    manifest = read_typed_manifest(OnnxManifest, path)
    if min(manifest.dimension, manifest.query_length, manifest.document_length) < 1:
        raise DataError(f"{path} is damaged: a length is less than 1; {DAMAGED}")
    return manifest
