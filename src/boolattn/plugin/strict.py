"""Strict loading of torch folders: every tensor fits, and every error is one line.

transformers only warns of missing and superfluous tensors, and makes up what is missing.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import transformers
from transformers.utils import logging

from boolattn.checksums import CONFIG, check_folder, parts_of
from boolattn.errors import BoolattnError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_REMEDY = "save the model again, or copy its folder again"
#: Heads of tasks that an encoder was trained for, and that a retriever does not use.
_HEADS = re.compile(
    r"(cls|lm_head|vocab_\w+|(pre_)?classifier|qa_outputs|score|head|decoder|pooler"
    r"|(generator|discriminator)_\w+)\."
)


@contextmanager
def strict_loading(folder: Path) -> Iterator[None]:
    """Check a folder, its weights too; what a library raises inside becomes one line."""
    is_whole = check_folder(folder)
    try:
        if not is_whole:
            for part in parts_of(folder):
                _check_weights(part)
        yield
    except BoolattnError:
        raise
    except Exception as error:
        raise DataError(f"{folder} cannot be loaded: {_reason(error)}; {_REMEDY}") from error


def check_loaded(info: Mapping[str, Any], folder: Path) -> None:
    """Raise if the loading info of transformers names a tensor that does not fit."""
    for kind, problem in (
        ("mismatched_keys", "has another shape than its settings say"),
        ("missing_keys", "is missing"),
        ("unexpected_keys", "has no place in the model"),
    ):
        names = [key if isinstance(key, str) else str(key[0]) for key in info[kind]]
        if names := sorted(name for name in names if not _HEADS.match(name)):
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise DataError(f"{folder}: the tensor {names[0]!r}{more} {problem}; {_REMEDY}")


def _check_weights(part: Path) -> None:
    """Compare the names and shapes of an encoder's tensors with its settings; reads no weights."""
    path = part / CONFIG
    if not path.is_file() or "model_type" not in json.loads(path.read_text(encoding="utf-8")):
        return
    config = transformers.AutoConfig.from_pretrained(part, local_files_only=True)
    if getattr(config, "is_encoder_decoder", False):
        # sentence-transformers loads the encoder alone.
        return
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        _, info = transformers.AutoModel.from_pretrained(
            part,
            config=config,
            device_map="meta",
            ignore_mismatched_sizes=True,
            local_files_only=True,
            output_loading_info=True,
        )
    finally:
        logging.set_verbosity(level)
    check_loaded(info, part)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()]
    return f"{type(error).__name__}: {next((line for line in lines if line), '')}"[:250]
