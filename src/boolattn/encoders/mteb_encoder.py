"""A model as MTEB's evaluator takes it (its ``EncoderProtocol``, versions 1 and 2)."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.encoders.models import load_model
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.encoders.base import Encoder

    Array = NDArray[np.float32]

_QUERY, _DOCUMENT = "query", ("", "document", "passage")


class MtebEncoder:
    """Encodes texts as queries or as documents, each as one vector; nothing is composed.

    Args:
        model_name: ``shipped``, ``minilm`` or a model's folder.
        revision: What MTEB records as such; not used otherwise.
        device: As in :func:`~boolattn.encoders.models.load_model`.
        retriever: A model that is loaded already.
    """

    def __init__(
        self,
        model_name: str = "shipped",
        revision: str | None = None,
        *,
        device: str | None = None,
        retriever: Encoder | None = None,
    ) -> None:
        self.model_name, self.revision = model_name, revision or "none"
        self.retriever = retriever or load_model(model_name, device=device)

    @property
    def mteb_model_meta(self) -> Any:  # noqa: ANN401 - a ModelMeta of MTEB's
        """What MTEB records of a model; without it the evaluator takes no object for one."""
        from mteb.models.model_meta import ModelMeta

        known = {"embed_dim": self.retriever.dimension, "revision": self.revision}
        name = f"boolattn/{PurePath(self.model_name).name}"
        return ModelMeta.create_empty(known | {"name": name})

    def encode(
        self,
        sentences: Sequence[str] | Iterable[Mapping[str, Sequence[str]]],
        *,
        prompt_name: str | None = None,
        task_name: str | None = None,
        prompt_type: str | None = None,
        batch_size: int = 32,
        **kwargs: Any,
    ) -> Array:
        """Encode texts, or batches of them under ``text``. Shape ``(texts, dim)``.

        They are queries where ``prompt_type``, or else ``prompt_name``, says so; else documents.
        """
        kind = str(getattr(prompt_type, "value", prompt_type) or prompt_name or "")
        if kind != _QUERY and kind not in _DOCUMENT:
            raise ConfigError(f"no prompt {kind!r}; there are query, document and passage")
        texts: list[str] = []
        for item in sentences:
            texts += [item] if isinstance(item, str) else item["text"]
        if not texts:
            return np.zeros((0, self.retriever.dimension), np.float32)
        if kind != _QUERY:
            return self.retriever.encode_documents(texts, batch_size=batch_size)
        starts = range(0, len(texts), batch_size)
        vectors = [self.retriever.encode_queries(texts[i : i + batch_size]) for i in starts]
        return np.concatenate(vectors)

    def similarity(self, first: Array, second: Array) -> Array:
        """Return the similarities of all pairs. Shape ``(first, second)``."""
        left, right = (self._scaled(np.atleast_2d(vectors)) for vectors in (first, second))
        return np.asarray(left @ right.T, np.float32)

    def similarity_pairwise(self, first: Array, second: Array) -> Array:
        """Return the similarity of each pair. Shape ``(pairs,)``."""
        left, right = (self._scaled(np.atleast_2d(vectors)) for vectors in (first, second))
        return np.asarray((left * right).sum(1), np.float32)

    def _scaled(self, vectors: Array) -> Array:
        if self.retriever.similarity == "dot":
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)
