"""The protocol of an encoder: texts in, vectors out. It knows nothing of queries or stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]


def ignore(_: int) -> None:
    """Report no progress."""


class Encoder(ABC):
    """Encodes queries and documents."""

    dimension: int  # length of a vector
    similarity: str  # ``cosine`` or ``dot``
    fingerprint: str  # identifies what made a document's vector; a store is bound to it
    max_tokens: int  # most tokens of a document that are read
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
    def encode_documents(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        progress: Callable[[int], None] = ignore,
    ) -> Array:
        """Encode documents; ``progress`` gets the number just encoded. Shape ``(texts, dim)``."""
