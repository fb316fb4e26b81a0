"""The protocol of an encoder: texts in, vectors out. It knows nothing of queries or stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]


class Encoder(ABC):
    """Encodes queries and documents."""

    dimension: int  # length of a vector
    similarity: str  # ``cosine`` or ``dot``
    fingerprint: str  # identifies what made a document's vector; a store is bound to it
    max_tokens: int  # most tokens of a document that are read
    block_size: int = 256  # documents of a block
    gate: str = ""  # what opens BoolAttn's gate without labels; empty without BoolAttn

    @property
    def digests(self) -> dict[str, str]:
        """Hashes of what else decides over vectors, by name; a store remembers them."""
        return {}

    @abstractmethod
    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries. Shape ``(texts, dim)``."""

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands, as queries without an operator. Shape ``(texts, dim)``."""
        return self.encode_queries(texts)

    @abstractmethod
    def encode_documents(self, texts: Sequence[str], *, batch_size: int | None = None) -> Array:
        """Encode documents. Shape ``(texts, dim)``."""

    def encode_blocks(self, texts: Sequence[str], batch_size: int | None) -> Iterator[Array]:
        """Encode documents some at a time, so that a caller can tell how many are done."""
        for start in range(0, len(texts), self.block_size):
            block = texts[start : start + self.block_size]
            yield self.encode_documents(block, batch_size=batch_size)
