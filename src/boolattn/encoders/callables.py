"""Encoders: texts in, vectors out. Any callable is one, and so is an embedding endpoint.

An encoder knows nothing of queries or stores.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boolattn.errors import ConfigError, DataError, ServerError
from boolattn.settings import checked

Array = NDArray[np.float32]

#: From texts to their vectors: an array, or lists of numbers.
Embed: TypeAlias = "Callable[[list[str]], Any]"
#: Encoded to learn the length of a vector, and to tell one encoder from another.
_PROBE = "moths of Borneo"


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


class CallableEncoder(Encoder):
    """Any function from texts to vectors; others for operands or documents, if not as queries.

    With the similarity ``cosine`` vectors are normalised; the other one is ``dot``.
    """

    max_tokens = 512

    @checked
    def __init__(
        self,
        embed: Embed,
        *,
        similarity: str = "cosine",
        embed_operands: Embed | None = None,
        embed_documents: Embed | None = None,
    ) -> None:
        self._embed, self.similarity = embed, similarity
        self._operands, self._documents = embed_operands or embed, embed_documents or embed

    @cached_property
    def _known(self) -> Array:
        """The vector of one text, encoded when its length is first asked for."""
        vector: Array = self._vectors(self._documents, [_PROBE])[0]
        return vector

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]
        """Length of a vector."""
        return len(self._known)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """A hash of one text's vector."""
        raw = f"{self.similarity} {self.dimension} {np.round(self._known, 3).tolist()}"
        return hashlib.sha256(raw.encode()).hexdigest()[:32]

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries."""
        return self._vectors(self._embed, texts)

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands."""
        return self._vectors(self._operands, texts)

    def encode_documents(self, texts: Sequence[str], *, batch_size: int | None = None) -> Array:
        """Encode documents."""
        size, vectors = batch_size or 64, [np.zeros((0, self.dimension), np.float32)]
        for start in range(0, len(texts), size):
            vectors.append(self._vectors(self._documents, texts[start : start + size]))
        return np.concatenate(vectors)

    def _vectors(self, embed: Embed, texts: Sequence[str]) -> Array:
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        try:
            vectors = np.asarray(embed(list(texts)), np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"the encoder gives no array of numbers: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            reason = f"the encoder gives shape {vectors.shape} for {len(texts)} texts"
            raise DataError(f"{reason}; it must give one finite vector for each")
        return unit(vectors) if self.similarity == "cosine" else vectors


class EmbeddingEndpoint:
    """An endpoint of the form of OpenAI's: ``POST ADDRESS/embeddings``.

    The address is as far as the version: ``https://api.openai.com/v1``. ``key_variable`` names the
    environment variable with the key, if it needs one.
    """

    @checked
    def __init__(
        self,
        address: str,
        model: str = "",
        *,
        key_variable: str = "OPENAI_API_KEY",
        timeout: float = 30.0,
    ) -> None:
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"an endpoint's address begins with http:// or https://: {address}")
        self.address, self.model = address.rstrip("/") + "/embeddings", model
        self.key_variable, self.timeout = key_variable, timeout

    def __call__(self, texts: list[str]) -> Array:
        """Encode texts in one request."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.key_variable):
            headers["Authorization"] = f"Bearer {key}"
        body = {"input": texts} | ({"model": self.model} if self.model else {})
        request = Request(self.address, json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=self.timeout) as answer:  # nosec B310
                rows = json.load(answer)["data"]
            rows.sort(key=lambda row: row.get("index", 0))
            return np.array([row["embedding"] for row in rows], np.float32)
        except HTTPError as error:
            hint = f"; is {self.key_variable} set?" if error.code in (401, 403) else ""
            status = f"{error.code} {error.reason}{hint}"
            raise ServerError(f"{self.address} answers {status}") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ServerError(f"{self.address} does not answer: {reason}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError(f"{self.address} answers, but not with embeddings") from error


def unit(vectors: Array) -> Array:
    """Normalise vectors; those of length 1 stay the same bits."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    is_unit = np.abs(lengths - 1) < 1e-3
    if is_unit.all():
        return np.asarray(vectors, np.float32)
    return np.where(is_unit, vectors, vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
