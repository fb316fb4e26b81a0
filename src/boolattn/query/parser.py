"""The query parser in onnxruntime; needs no torch, and serves any encoder.

A folder holds the graph ``parser.onnx``, a table of word vectors, a tokenizer and
``parser.json``. The graph starts at the word vectors, so that table and tokenizer can be those of
an encoder in another folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from boolattn.budget import check_budget
from boolattn.checksums import DAMAGED, check_sums, read_manifest, read_typed_manifest, verify
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.query.parsed_query import ParserLogits, ParserOutput, decode, mark_operators
from boolattn.query.runtime import (
    MAX_CHARACTERS,
    MAX_REMEMBERED,
    check_runtime,
    open_graph,
    open_tokenizer,
    run_graph,
)
from boolattn.settings import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MANIFEST, GRAPH = "parser.json", "parser.onnx"
#: Manifest of an encoder's folder.
ENCODER = "model.json"
FORMAT = 1
SHIPPED = "shipped"
_SHIPPED = Path(__file__).parents[1] / "models" / "parser"
OUTPUTS = ["tags", "roles", "gaps"]


@dataclass(frozen=True, kw_only=True)
class ParserManifest:
    """What a parser folder says of itself; names of files are relative to the folder."""

    format: int = FORMAT
    tokenizer: str = "tokenizer.json"
    table: str = "words.safetensors"  # file with the word vectors
    values: str = "values"  # name of the rounded word vectors in it
    scales: str = "scales"  # name of their scales
    max_tokens: int = 128  # of a query
    threshold: float = 0.5  # least confidence of a parse that is used
    needs: str = "1.23"  # oldest onnxruntime
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each
    report: Mapping[str, Any] = field(default_factory=dict)  # accuracy on held-out queries


class Parser:
    """Parses queries in plain language."""

    @checked
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_typed_manifest(ParserManifest, self.folder / MANIFEST)
        check_runtime(self.folder, self.manifest.needs)
        check_sums(self.folder)
        verify(self.folder, self.manifest.files, MANIFEST)
        self._verify_encoder()
        self.threshold = self.manifest.threshold
        self._lock = Lock()
        self._recent = lru_cache(MAX_REMEMBERED)(self._decode)
        self._opened: tuple[Any, Any, NDArray[np.int8], NDArray[np.float32]] | None = None

    def parse(self, texts: Sequence[str]) -> list[ParserOutput]:
        """Parse queries, whatever the confidence."""
        if isinstance(texts, str):
            raise ConfigError("texts must be a list of texts, got one text")
        return [
            (self._recent if len(text) <= MAX_CHARACTERS else self._decode)(text) for text in texts
        ]

    def is_word(self, text: str) -> bool:
        """Tell whether a word is one of the tokenizer's vocabulary."""
        return self._open()[1].token_to_id(text) is not None

    def _verify_encoder(self) -> None:
        """Verify the folder of the encoder that tokenizer and word vectors are of."""
        for name in {self.manifest.tokenizer, self.manifest.table}:
            manifest = (self.folder / name).resolve().with_name(ENCODER)
            if manifest.parent != self.folder.resolve() and manifest.is_file():
                verify(manifest.parent, read_manifest(manifest)["files"], ENCODER)

    def _decode(self, text: str) -> ParserOutput:
        """Run the graph."""
        session, tokenizer, values, scales = self._open()
        encoding = tokenizer.encode(mark_operators(text))
        ids = np.array(encoding.ids, np.int64)
        if not ids.size:
            return ParserOutput()
        words = values[ids].astype(np.float32) * scales[ids]
        check_budget()
        outputs = run_graph(session, OUTPUTS, {"words": words[None]}, self.folder / GRAPH)
        logits = ParserLogits(*outputs)
        return decode(logits, text, encoding.offsets, 0)

    def _open(self) -> tuple[Any, Any, NDArray[np.int8], NDArray[np.float32]]:
        """Open graph, tokenizer and word vectors on first use."""
        with self._lock:
            if self._opened is None:
                manifest = self.manifest
                path = self.folder / manifest.table
                try:
                    with safe_open(path, "np") as file:
                        values, scales = (
                            file.get_tensor(n) for n in (manifest.values, manifest.scales)
                        )
                except (OSError, SafetensorError) as error:
                    raise DataError(f"{path} cannot be read: {error}; {DAMAGED}") from error
                tokenizer = open_tokenizer(self.folder / manifest.tokenizer, manifest.max_tokens)
                if (n := tokenizer.get_vocab_size()) > min(len(values), len(scales)):
                    raise DataError(
                        f"{path} has {len(values)} word vectors for {n} words; {DAMAGED}"
                    )
                graph = open_graph(self.folder / GRAPH, reuses_memory=False)
                self._opened = graph, tokenizer, values, scales
            return self._opened


@checked
@lru_cache(maxsize=4)
def load_parser(name: str | Path = SHIPPED) -> Parser:
    """Load the shipped parser, or one from a folder."""
    folder = _SHIPPED if name == SHIPPED else Path(name)
    if not (folder / MANIFEST).is_file():
        raise MissingDataError(f"there is no parser at {folder}: it has no {MANIFEST}")
    return Parser(folder)
