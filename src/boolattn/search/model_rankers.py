"""Rankers over the vectors of a model, for evaluation; torch is imported only for torch models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, DataError, GateError
from boolattn.evaluation.ranking import Ranking
from boolattn.scoring.exact import exact_search, rank_plans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.encoders.base import BaseRetriever

    #: Called with what is done, how much of it is done, and of how much.
    Progress = Callable[[str, int, int], None]

_CHUNK = 4096  # documents encoded between two calls of ``progress``
_STEP = 64  # the same, where each is encoded alone
_QUERIES = 64  # planned at once


class VectorRanker:
    """Ranks exactly by the similarity of one vector per text.

    The documents are encoded on construction.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        documents: Sequence[str],
        *,
        progress: Progress | None = None,
    ) -> None:
        self.retriever = retriever
        self._documents = _encode_documents(retriever, documents, progress)

    def rank(self, texts: Sequence[str], depth: int) -> Ranking:
        """Rank the corpus."""
        queries = _comparable(self.retriever.encode_queries(texts), self.retriever.similarity)
        return Ranking(*exact_search(queries, self._documents, depth))


class TowersRanker:
    """Ranks exactly by the similarity of one vector per text, of any sentence-transformers model.

    The documents are encoded on construction.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        documents: Sequence[str],
        *,
        progress: Progress | None = None,
    ) -> None:
        self.model = model.eval()
        encoded = _encode_in_torch(model, documents, progress)
        self._documents = _comparable(encoded, model.similarity_fn_name)

    def rank(
        self, texts: Sequence[str], depth: int, *, operators: Sequence[Sequence[str]] | None = None
    ) -> Ranking:
        """Rank the corpus.

        With ``operators``, the names of each query's operators as oracle labels, these open the
        gate; else the model's own gate decides.
        """
        if operators is None:
            queries = self.model.encode_query(
                list(texts), convert_to_tensor=True, show_progress_bar=False
            )
        else:
            from boolattn.encoder import encode_queries

            known = _known_operators(self.model, operators)
            queries = encode_queries(self.model, texts, operators=known)
        name = self.model.similarity_fn_name
        similarity = None if name in ("cosine", "dot") else self.model.similarity
        found = exact_search(_comparable(queries, name), self._documents, depth, similarity)
        return Ranking(*found)


class RetrieverRanker:
    """Ranks exactly by composed scores; the documents are encoded on construction."""

    def __init__(
        self,
        retriever: BaseRetriever,
        documents: Sequence[str],
        *,
        progress: Progress | None = None,
    ) -> None:
        self.retriever = retriever
        self._documents = _encode_documents(retriever, documents, progress)

    def rank(self, texts: Sequence[str], depth: int) -> Ranking:
        """Rank the corpus; every document is scored exactly."""
        depth = min(depth, len(self._documents))
        rows = np.zeros((len(texts), depth), dtype=np.int32)
        scores = np.zeros((len(texts), depth), dtype=np.float32)
        for start in range(0, len(texts), _QUERIES):
            plans = self.retriever.plan(list(texts[start : start + _QUERIES]))
            end = start + len(plans)
            rows[start:end], scores[start:end] = rank_plans(plans, self._documents, depth)
        return Ranking(rows, scores)


def _comparable(vectors: Any, similarity: str | None) -> Any:  # noqa: ANN401 - numpy or torch
    """Normalise vectors for cosine similarity, so that it is a product."""
    if isinstance(vectors, np.ndarray):
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / np.maximum(norms, 1e-12) if similarity == "cosine" else vectors
    from torch.nn import functional as F

    vectors = vectors.float()
    return F.normalize(vectors, dim=-1) if similarity == "cosine" else vectors


def _encode_documents(
    retriever: BaseRetriever, texts: Sequence[str], progress: Progress | None
) -> Any:  # noqa: ANN401 - numpy or torch
    """Encode documents; those of a torch model stay on its device."""
    if not texts:
        raise DataError("there are no documents to rank")
    if (towers := getattr(retriever, "towers", None)) is not None:
        return _comparable(_encode_in_torch(towers, texts, progress), retriever.similarity)
    done = 0

    def count(n: int) -> None:
        nonlocal done
        done += n
        if progress and (done % _STEP == 0 or done == len(texts)):
            progress("documents", done, len(texts))

    return _comparable(retriever.encode_documents(texts, progress=count), retriever.similarity)


def _encode_in_torch(
    model: SentenceTransformer, texts: Sequence[str], progress: Progress | None
) -> Tensor:
    import torch

    from boolattn.encoder.document_encoder import document_encoder

    if not texts:
        raise DataError("there are no documents to rank")
    encode = document_encoder(model)
    parts = []
    for start in range(0, len(texts), _CHUNK):
        parts.append(encode(texts[start : start + _CHUNK]))
        if progress:
            progress("documents", min(start + _CHUNK, len(texts)), len(texts))
    return torch.cat(parts)


def boolattn_config(model: SentenceTransformer) -> BoolAttnConfig | None:
    """Return the settings of a model's BoolAttn, if it has one."""
    from boolattn.encoder import BoolBertModel, query_encoder

    try:
        encoder = query_encoder(model)
    except ConfigError:
        # Not two towers.
        return None
    return encoder.config.boolattn_config if isinstance(encoder, BoolBertModel) else None


def _known_operators(
    model: SentenceTransformer, operators: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Leave out operators for which the model has no expert."""
    if (config := boolattn_config(model)) is None:
        raise GateError("this model has no BoolAttn, so labels can open no gate")
    return [[name for name in one if name in config.operators] for one in operators]
