"""Bool-BERT and the two-tower retriever.

Importing this package registers Bool-BERT with transformers' ``Auto`` classes, and so with
``SentenceTransformer``.
"""

from boolattn.encoder.bool_bert import BoolBertConfig, BoolBertModel, register
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

register()

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
