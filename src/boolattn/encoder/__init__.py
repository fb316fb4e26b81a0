"""Bool-BERT and the two-tower retriever.

Importing this room makes ``BoolBertConfig`` and ``BoolBertModel`` known to transformers' ``Auto``
classes, and so to ``SentenceTransformer``. May import: boolattn.plugin, boolattn.attention,
boolattn.data (the cache folder), boolattn.settings, boolattn.errors.
"""

from boolattn.encoder.bool_bert import BoolBertConfig, BoolBertModel, register
from boolattn.encoder.card import Card
from boolattn.encoder.document_encoder import DocumentEncoder, encode_documents
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
    "encode_documents",
    "encode_queries",
    "query_encoder",
    "save_towers",
    "settings_of",
]
