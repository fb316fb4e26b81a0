"""The query parser in onnxruntime, which needs no torch and serves any encoder; graphs, tokenizers.

A folder holds the graph ``parser.onnx``, a table of word vectors, a tokenizer and
``parser.json``. The graph starts at the word vectors, so that table and tokenizer can be those of
an encoder in another folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from boolattn.checksums import DAMAGED, check_sums, read_manifest, read_typed_manifest, verify
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import check_regular
from boolattn.query.parsed_query import ParserLogits, ParserOutput, decode, mark_operators
from boolattn.query.plan import check_budget
from boolattn.settings import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

MANIFEST, GRAPH = "parser.json", "parser.onnx"
#: Manifest of an encoder's folder.
ENCODER = "model.json"
FORMAT = 1
SHIPPED = "shipped"
_SHIPPED = Path(__file__).parents[1] / "models" / "parser"
OUTPUTS = ["tags", "roles", "gaps"]
#: Number of threads; by default as many as there are processors.
THREADS_VARIABLE = "BOOLATTN_THREADS"
#: Parses, and vectors of queries and operands, that are remembered; longer texts are not.
MAX_REMEMBERED, MAX_CHARACTERS = 2048, 256
_PROBE = "Moths AND bees of São-Tomé's 2 isles, 蛾"


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
    needs: str = "1.23"  # oldest onnxruntime that is known to run it
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each
    report: Mapping[str, Any] = field(default_factory=dict)  # accuracy on held-out queries


class Parser:
    """Parses queries in plain language."""

    @checked
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_typed_manifest(ParserManifest, self.folder / MANIFEST)
        check_sums(self.folder)
        verify(self.folder, self.manifest.files, MANIFEST)
        # The folder of the encoder that tokenizer and word vectors are of.
        for name in {self.manifest.tokenizer, self.manifest.table}:
            manifest = (self.folder / name).resolve().with_name(ENCODER)
            if manifest.parent != self.folder.resolve() and manifest.is_file():
                verify(manifest.parent, read_manifest(manifest)["files"], ENCODER)
        self.threshold = self.manifest.threshold
        self._recent = lru_cache(MAX_REMEMBERED)(self._decode)

    def parse(self, texts: Sequence[str]) -> list[ParserOutput]:
        """Parse queries, whatever the confidence."""
        if isinstance(texts, str):
            raise ConfigError("texts must be a list of texts, got one text")
        return [
            (self._recent if len(text) <= MAX_CHARACTERS else self._decode)(text) for text in texts
        ]

    def is_word(self, text: str) -> bool:
        """Tell whether a word is one of the tokenizer's vocabulary."""
        return self._opened[1].token_to_id(text) is not None

    def _decode(self, text: str) -> ParserOutput:
        session, tokenizer, values, scales = self._opened
        encoding = tokenizer.encode(mark_operators(text))
        ids = np.array(encoding.ids, np.int64)
        if not ids.size:
            return ParserOutput()
        words = values[ids].astype(np.float32) * scales[ids]
        check_budget()
        outputs = run_graph(session, OUTPUTS, {"words": words[None]}, self.folder / GRAPH)
        return decode(ParserLogits(*outputs), text, encoding.offsets, 0)

    @cached_property
    def _opened(self) -> tuple[Any, Any, NDArray[np.int8], NDArray[np.float32]]:
        """Graph, tokenizer and word vectors, opened on first use."""
        manifest, path = self.manifest, self.folder / self.manifest.table
        try:
            with safe_open(path, "np") as file:
                values, scales = (file.get_tensor(n) for n in (manifest.values, manifest.scales))
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} cannot be read: {error}; {DAMAGED}") from error
        tokenizer = open_tokenizer(self.folder / manifest.tokenizer, manifest.max_tokens)
        if (n := tokenizer.get_vocab_size()) > min(len(values), len(scales)):
            raise DataError(f"{path} has {len(values)} word vectors for {n} words; {DAMAGED}")
        graph = open_graph(self.folder / GRAPH, reuses_memory=False)
        return graph, tokenizer, values, scales


@checked
@lru_cache(maxsize=4)
def load_parser(name: str | Path = SHIPPED) -> Parser:
    """Load the shipped parser, or one from a folder."""
    folder = _SHIPPED if name == SHIPPED else Path(name)
    if not (folder / MANIFEST).is_file():
        raise MissingDataError(f"there is no parser at {folder}: it has no {MANIFEST}")
    return Parser(folder)


def default_threads() -> int:
    """Return the number of threads: :data:`THREADS_VARIABLE`, or one for each processor."""
    named = os.environ.get(THREADS_VARIABLE)
    if named is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if not named.isdecimal() or not int(named):
        raise ConfigError(f"{THREADS_VARIABLE} must be a number of threads; got {named!r}")
    return int(named)


def open_graph(path: Path, *, reuses_memory: bool = True) -> Any:  # noqa: ANN401 - an InferenceSession
    """Open a graph for one thread; errors of onnxruntime become one line."""
    import onnxruntime as ort

    check_regular(path)
    options = ort.SessionOptions()
    # A text is too short for several threads; several texts run at once instead.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # The graph was optimised when it was exported.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_reuse = reuses_memory
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"onnxruntime {ort.__version__} cannot open {path}: {reason}") from error


def run_graph(session: Any, outputs: list[str], inputs: dict[str, Any], path: Path) -> Any:  # noqa: ANN401
    """Run a graph; errors of onnxruntime become one line that names the graph's file."""
    try:
        return session.run(outputs, inputs)
    except Exception as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"{path} cannot run: {reason}; export the model again") from error


def open_tokenizer(path: Path, length: int) -> Tokenizer:
    """Open a tokenizer that cuts texts after some tokens.

    Those of one file share its vocabulary: parser and encoder have the same one.
    """
    check_regular(path)
    try:
        status = path.stat()
        original = _read_tokenizer(path.resolve(), status.st_mtime_ns, status.st_ino)
        tokenizer = Tokenizer(original.model)
        for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            if (step := getattr(original, name)) is not None:
                setattr(tokenizer, name, step)
        added = original.get_added_tokens_decoder()
        tokenizer.add_tokens([added[number] for number in sorted(added)])
        tokenizer.enable_truncation(length)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be opened: {reason}; copy it again") from error
    return tokenizer


@lru_cache(maxsize=4)
def _read_tokenizer(path: Path, _changed: int, _number: int) -> Tokenizer:
    return Tokenizer.from_file(str(path))


def vocabulary_sum(tokenizer: Tokenizer) -> str:
    """Hash a tokenizer: its words in order, and how it takes a text apart."""
    words = tokenizer.get_vocab()
    ids = tokenizer.encode(_PROBE).ids
    text = "\n".join((*sorted(words, key=words.__getitem__), str(ids)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
