"""onnxruntime sessions and tokenizers, as the query parser and the encoder use them."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import check_regular

if TYPE_CHECKING:
    from pathlib import Path

#: Number of threads; by default as many as there are processors.
THREADS_VARIABLE = "BOOLATTN_THREADS"
#: Parses, and vectors of queries and operands, that are remembered; longer texts are not.
MAX_REMEMBERED, MAX_CHARACTERS = 2048, 256
_PROBE = "Moths AND bees of São-Tomé's 2 isles, 蛾"


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


def run_graph(session: Any, outputs: list[str], inputs: dict[str, Any], path: Path) -> list[Any]:  # noqa: ANN401
    """Run a graph; errors of onnxruntime become one line that names the graph's file."""
    try:
        values: list[Any] = session.run(outputs, inputs)
    except Exception as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"{path} cannot run: {reason}; export the model again") from error
    return values


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


def check_runtime(folder: Path, needs: str) -> None:
    """Raise if onnxruntime is older than a folder needs."""
    from onnxruntime import __version__ as installed

    if _numbers(installed) < _numbers(needs):
        raise MissingDataError(
            f"{folder} needs onnxruntime {needs} or newer, not {installed}; "
            "pip install --upgrade onnxruntime"
        )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
