"""The encoder that runs in onnxruntime, and its folder; needs no torch.

A text runs alone: nothing is padded, and its vector does not depend on other texts, although
activations are rounded to 8 bits with one scale for each run. Several texts run in several threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from boolattn.checksums import DAMAGED, file_sum, read_typed_manifest, verify, write_manifest
from boolattn.encoders.callables import Array, Encoder
from boolattn.errors import ConfigError, DataError
from boolattn.query.parser import (
    MAX_CHARACTERS,
    MAX_REMEMBERED,
    default_threads,
    open_graph,
    open_tokenizer,
    run_graph,
    vocabulary_sum,
)
from boolattn.query.plan import check_budget

VECTORS = "vectors"
#: Values of a manifest that change vectors, and are in no graph.
_PREPARATION = ("query_prompt", "document_prompt", "query_length", "document_length", "similarity")
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
    needs: str = "1.23"  # oldest onnxruntime that is known to run it
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
        write_manifest(folder / MANIFEST, asdict(self) | {"files": sums, "vocabulary": vocabulary})


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


class OnnxEncoder(Encoder):
    """A saved model for onnxruntime."""

    def __init__(self, folder: Path, manifest: OnnxManifest, *, threads: int | None = None) -> None:
        self.folder, self.manifest = folder, manifest
        self.dimension, self.similarity = manifest.dimension, manifest.similarity
        # That of the torch model: vectors of both backends may be compared.
        self.fingerprint = manifest.fingerprint
        self.max_tokens, self.gate = manifest.document_length, manifest.gate
        self.threads = threads or default_threads()
        self._session = cache(self._open_graph)
        self._tokenizer = cache(partial(open_tokenizer, folder / TOKENIZER))
        self._recent = lru_cache(MAX_REMEMBERED)(self._vector)

    @classmethod
    def load(cls, folder: str | Path, *, threads: int | None = None) -> OnnxEncoder:
        """Open a folder, after comparing its files with their hashes."""
        folder = Path(folder)
        manifest = read_onnx_manifest(folder)
        verify(folder, manifest.files, MANIFEST)
        return cls(folder, manifest, threads=threads)

    @property
    def digests(self) -> dict[str, str]:
        """The tokenizer, and how texts are prepared; the graphs hold the configuration."""
        known = self.manifest.vocabulary.get(self.manifest.files.get(TOKENIZER, ""))
        vocabulary = known or vocabulary_sum(self._tokenizer(self.manifest.query_length))
        prepared = [getattr(self.manifest, name) for name in _PREPARATION]
        digest = hashlib.sha256(repr(prepared).encode()).hexdigest()
        return {"tokenizer": vocabulary, "prompt or length": digest}

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries, with BoolAttn if the model has it."""
        return self._vectors(QUERY, texts)

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands: queries with every gate closed."""
        return self._vectors(OPERAND, texts)

    def encode_documents(self, texts: Sequence[str], *, batch_size: int | None = None) -> Array:
        """Encode documents, one by one."""
        return self._vectors(DOCUMENT, texts)

    def _vectors(self, task: str, texts: Sequence[str]) -> Array:
        """Encode texts, each alone, several at once."""
        if isinstance(texts, str):
            raise ConfigError("texts must be a list of texts, got one text")
        manifest, is_query = self.manifest, task != DOCUMENT
        if task not in manifest.graphs:
            raise DataError(f"{self.folder / MANIFEST} names no graph for {task!r}")
        path = self.folder / manifest.graphs[task]
        prompt = manifest.query_prompt if is_query else manifest.document_prompt
        length = manifest.query_length if is_query else manifest.document_length

        def encode(text: str) -> Array:
            # People repeat queries and operands, so the last ones are remembered.
            is_remembered = is_query and len(text) <= MAX_CHARACTERS
            return (self._recent if is_remembered else self._vector)(path, prompt + text, length)

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        threads = max(1, min(self.threads, len(texts)))
        pool = ThreadPoolExecutor(threads)  # starts no thread for a single text
        if threads > 1:  # opened once
            self._session(path), self._tokenizer(length)
        try:
            for row, vector in enumerate((pool.map if threads > 1 else map)(encode, texts)):
                check_budget()
                vectors[row] = vector
        finally:
            pool.shutdown(cancel_futures=True)
        return vectors

    def _vector(self, path: Path, text: str, length: int) -> Array:
        """Run one text."""
        ids = np.array([self._tokenizer(length).encode(text).ids], np.int64)
        if not ids.size:
            # A tokenizer without special tokens, and an empty text.
            return np.zeros(self.dimension, np.float32)
        ones, zeros = np.ones_like(ids), np.zeros_like(ids)
        filled = {"input_ids": ids, "attention_mask": ones, "token_type_ids": zeros}
        inputs = {name: filled.get(name) for name in self.manifest.inputs}
        vector: Array = run_graph(self._session(path), [VECTORS], inputs, path)[0][0]
        if vector.shape != (self.dimension,):
            stated = f"{self.folder / MANIFEST} says {self.dimension} dimensions"
            raise DataError(f"{stated}, and the graph has {vector.shape}; export the model again")
        return vector

    def _open_graph(self, path: Path) -> Any:  # noqa: ANN401 - an InferenceSession
        # Planning the reuse of memory takes half a second for a graph with BoolAttn.
        return open_graph(path, reuses_memory=path.name == self.manifest.graphs.get(DOCUMENT))
