"""The model whose attention Figure 1 draws. May import: boolattn.encoder, boolattn.plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_explained(folder: Path | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder that carries BoolAttn; left out, the shipped one."""
    from transformers import AutoModel, AutoTokenizer

    import boolattn.encoder  # noqa: F401 - makes Bool-BERT known to transformers
    from boolattn.embedding.int8_storage import shipped_model
    from boolattn.plugin import load

    home = folder or shipped_model()
    is_towers = (home / "modules.json").is_file()
    encoder = AutoModel.from_pretrained(home, local_files_only=True) if is_towers else load(home)
    return encoder, AutoTokenizer.from_pretrained(home, local_files_only=True)
