"""The encoder with BoolAttn of a model or of a pretraining."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import AutoTokenizer

from boolattn.encoder.tower_storage import load_towers
from boolattn.encoder.towers import query_encoder
from boolattn.plugin import attach, load

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_query_encoder(home: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the encoder and its tokenizer; one without BoolAttn gets the shipped plug-in."""
    is_towers = (home / "modules.json").is_file()
    encoder = query_encoder(load_towers(home)) if is_towers else load(home)
    if not hasattr(encoder.base_model, "boolattn"):
        attach(encoder, "shipped")
    return encoder, AutoTokenizer.from_pretrained(home, local_files_only=True)
