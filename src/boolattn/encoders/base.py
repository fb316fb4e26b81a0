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

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    @abstractmethod
    def similarity(self) -> str:
        """``cosine`` or ``dot``."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies what made a document's vector; a store is bound to it."""

    @property
    def digests(self) -> dict[str, str]:
        """Hashes of what else decides over vectors, by name; a store remembers them."""
        return {}

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Maximum number of tokens of a document that are read."""

    @property
    def gate(self) -> str:
        """What opens BoolAttn's gate without labels; empty without BoolAttn."""
        return ""

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
