"""Settings of two towers."""

from __future__ import annotations

from dataclasses import dataclass

from boolattn.settings import check_types, limited


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """Settings of two towers."""

    #: ``mean`` over a text's tokens, or its first token (``cls``)
    pooling: str = limited("mean", choices=("mean", "cls"))
    is_shared: bool = True  # whether both towers use the same weights
    #: ``cosine``, with vectors of length 1, or ``dot``
    similarity: str = limited("cosine", choices=("cosine", "dot"))
    query_length: int = limited(64, least=3)  # most tokens of a query
    document_length: int = limited(256, least=3)  # most tokens of a document

    def __post_init__(self) -> None:
        check_types(self, least=0)
