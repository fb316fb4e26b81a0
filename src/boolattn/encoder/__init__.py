"""Bool-BERT and the two-tower retriever.

Importing this room makes ``BoolBertConfig`` and ``BoolBertModel`` known to transformers' ``Auto``
classes, and so to ``SentenceTransformer``. May import: boolattn.plugin, boolattn.attention,
boolattn.data (the cache folder), boolattn.settings, boolattn.errors.
"""

from boolattn.encoder.bool_bert import BoolBertConfig, BoolBertModel, register
from boolattn.encoder.towers import TowerConfig, build_towers, encode_queries, query_encoder

register()

__all__ = [
    "BoolBertConfig",
    "BoolBertModel",
    "TowerConfig",
    "build_towers",
    "encode_queries",
    "query_encoder",
]
