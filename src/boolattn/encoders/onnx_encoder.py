"""The encoder that runs in onnxruntime; needs no torch.

A text runs alone: nothing is padded, and its vector does not depend on other texts, although
activations are rounded to 8 bits with one scale for each run. Several texts run in several threads.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.budget import check_budget
from boolattn.checksums import verify
from boolattn.encoders.base import Encoder, ignore
from boolattn.encoders.onnx_storage import (
    DOCUMENT,
    MANIFEST,
    OPERAND,
    QUERY,
    TOKENIZER,
    OnnxManifest,
    read_onnx_manifest,
)
from boolattn.errors import ConfigError, DataError
from boolattn.query.runtime import (
    MAX_CHARACTERS,
    MAX_REMEMBERED,
    check_runtime,
    default_threads,
    open_graph,
    open_tokenizer,
    run_graph,
    vocabulary_sum,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

VECTORS = "vectors"
#: Values of a manifest that change vectors, and are in no graph.
_PREPARATION = ("query_prompt", "document_prompt", "query_length", "document_length", "similarity")
#: Texts tokenised at once.
_CHUNK = 256


class OnnxEncoder(Encoder):
    """A saved model for onnxruntime."""

    def __init__(
        self,
        folder: Path,
        manifest: OnnxManifest,
        *,
        threads: int | None = None,
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self.threads = threads or default_threads()
        self._sessions: dict[str, Any] = {}
        self._lock = Lock()
        self._recent: dict[tuple[str, str], Array] = {}  # by graph and text, the oldest first

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        threads: int | None = None,
    ) -> OnnxEncoder:
        """Open a folder, after comparing its files with their hashes."""
        folder = Path(folder)
        manifest = read_onnx_manifest(folder)
        check_runtime(folder, manifest.needs)
        verify(folder, manifest.files, MANIFEST)
        return cls(folder, manifest, threads=threads)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.manifest.dimension

    @property
    def similarity(self) -> str:
        """``cosine`` or ``dot``."""
        return self.manifest.similarity

    @property
    def fingerprint(self) -> str:
        """That of the torch model: vectors of both backends may be compared."""
        return self.manifest.fingerprint

    @property
    def digests(self) -> dict[str, str]:
        """The tokenizer, and how texts are prepared; the graphs hold the configuration."""
        tokenizer = open_tokenizer(self.folder / TOKENIZER).tokenizer
        prepared = [getattr(self.manifest, name) for name in _PREPARATION]
        digest = hashlib.sha256(repr(prepared).encode()).hexdigest()
        return {"tokenizer": vocabulary_sum(tokenizer), "prompt or length": digest}

    @property
    def gate(self) -> str:
        """What opens BoolAttn's gate; empty without BoolAttn."""
        return self.manifest.gate

    @property
    def encodes_alike(self) -> bool:
        """Whether one graph encodes queries and operands."""
        return self.manifest.graphs.get(QUERY) == self.manifest.graphs.get(OPERAND)

    @property
    def max_tokens(self) -> int:
        """Most tokens of a document."""
        return self.manifest.document_length

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries, with BoolAttn if the model has it."""
        return self._remembered(QUERY, texts)

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands: queries with every gate closed."""
        return self._remembered(OPERAND, texts)

    def encode_documents(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        progress: Callable[[int], None] = ignore,
    ) -> Array:
        """Encode documents; ``progress`` is called with the number of those just encoded."""
        prompt, length = self.manifest.document_prompt, self.manifest.document_length
        return self._vectors(DOCUMENT, texts, prompt, length, progress)

    def _remembered(self, task: str, texts: Sequence[str]) -> Array:
        """Encode queries or operands; people repeat them, so the last vectors are remembered."""
        _check_list(texts)
        graph = self.manifest.graphs.get(task, "")
        vectors = {text: self._recent.get((graph, text)) for text in texts}
        new = [text for text, vector in vectors.items() if vector is None]
        prompt, length = self.manifest.query_prompt, self.manifest.query_length
        vectors.update(zip(new, self._vectors(task, new, prompt, length), strict=True))
        with self._lock:
            for text, vector in vectors.items():
                self._recent.pop((graph, text), None)
                if vector is not None and len(text) <= MAX_CHARACTERS:
                    self._recent[graph, text] = vector
            while len(self._recent) > MAX_REMEMBERED:
                del self._recent[next(iter(self._recent))]
        rows = [vectors[text] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), self.dimension)

    def _vectors(
        self,
        task: str,
        texts: Sequence[str],
        prompt: str,
        length: int,
        progress: Callable[[int], None] = ignore,
    ) -> Array:
        _check_list(texts)
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        worded = [prompt + text for text in texts] if prompt else texts
        for row, vector in enumerate(self._run(task, worded, length)):
            check_budget()
            if vector.shape != vectors[row].shape:
                stated = f"{self.folder / MANIFEST} says {self.dimension} dimensions"
                raise DataError(
                    f"{stated}, and the graph has {vector.shape}; export the model again"
                )
            vectors[row] = vector
            progress(1)
        return vectors

    def _run(self, task: str, texts: Sequence[str], length: int) -> Iterator[Array]:
        """Run texts, each alone; yield each one's vector, in order."""
        session, tokenizer = self._session(task), open_tokenizer(self.folder / TOKENIZER)
        path = self.folder / self.manifest.graphs[task]

        def vector_of(encoding: Any) -> Array:  # noqa: ANN401 - an Encoding
            ids = np.array([encoding.ids], np.int64)
            if not ids.size:
                # A tokenizer without special tokens, and an empty text.
                return np.zeros(self.dimension, np.float32)
            filled = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            filled["token_type_ids"] = np.zeros_like(ids)
            inputs = {name: filled.get(name) for name in self.manifest.inputs}
            vector: Array = run_graph(session, [VECTORS], inputs, path)[0][0]
            return vector

        threads = min(self.threads, len(texts))
        pool = ThreadPoolExecutor(threads) if threads > 1 else None
        try:
            for start in range(0, len(texts), _CHUNK):
                encodings = tokenizer.encode(texts[start : start + _CHUNK], length)
                yield from (pool.map(vector_of, encodings) if pool else map(vector_of, encodings))
        finally:
            if pool:
                pool.shutdown(cancel_futures=True)

    def _session(self, task: str) -> Any:  # noqa: ANN401 - an InferenceSession
        """Open a graph on first use."""
        try:
            path = self.folder / self.manifest.graphs[task]
        except KeyError as error:
            raise DataError(f"{self.folder / MANIFEST} names no graph for {task!r}") from error
        with self._lock:
            if path.name not in self._sessions:
                # Planning the reuse of memory takes half a second for a graph with BoolAttn.
                is_bulk = path.name == self.manifest.graphs.get(DOCUMENT)
                self._sessions[path.name] = open_graph(path, reuses_memory=is_bulk)
            return self._sessions[path.name]


def _check_list(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise ConfigError("texts must be a list of texts, got one text")
