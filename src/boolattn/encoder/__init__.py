"""Bool-BERT and the two-tower model; names load on first use.

``import boolattn`` registers Bool-BERT with transformers' ``Auto`` classes as soon as those are
imported, and sentence-transformers may be what imports them: this package must not need it then.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "bool_bert": ("BoolBertConfig", "BoolBertModel"),
    "card": ("Card",),
    "document_encoder": ("DocumentEncoder",),
    "tower_storage": ("save_towers",),
    "towers": ("TowerConfig", "build_towers", "encode_queries", "query_encoder", "settings_of"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of these
    """Import a name from the module that owns it."""
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"boolattn.encoder.{module}"), name)
    raise AttributeError(f"module 'boolattn.encoder' has no attribute {name!r}")
