"""Bool-BERT and the two-tower model; names load on first use.

``import boolattn`` registers Bool-BERT with transformers' ``Auto`` classes as soon as those are
imported, and sentence-transformers may be what imports them: this package must not need it then.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boolattn.encoder.bool_bert import BoolBertConfig, BoolBertModel
    from boolattn.encoder.card import Card
    from boolattn.encoder.document_encoder import DocumentEncoder
    from boolattn.encoder.tower_storage import save_towers
    from boolattn.encoder.towers import (
        TowerConfig,
        build_towers,
        encode_queries,
        query_encoder,
        settings_of,
    )

_HOME = {
    "BoolBertConfig": "bool_bert",
    "BoolBertModel": "bool_bert",
    "Card": "card",
    "DocumentEncoder": "document_encoder",
    "TowerConfig": "towers",
    "build_towers": "towers",
    "encode_queries": "towers",
    "query_encoder": "towers",
    "save_towers": "tower_storage",
    "settings_of": "towers",
}

__all__ = [
    "BoolBertConfig",
    "BoolBertModel",
    "Card",
    "DocumentEncoder",
    "TowerConfig",
    "build_towers",
    "encode_queries",
    "query_encoder",
    "save_towers",
    "settings_of",
]


def __getattr__(name: str) -> object:
    """Import a name from the module that owns it."""
    if name not in _HOME:
        raise AttributeError(f"module 'boolattn.encoder' has no attribute {name!r}")
    return getattr(import_module(f"boolattn.encoder.{_HOME[name]}"), name)
