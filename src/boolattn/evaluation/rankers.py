"""What can be evaluated: anything that ranks the documents of a corpus for queries.

Torch and tantivy are imported by the rankers that use them, when they are made. May import:
boolattn.composition, boolattn.encoder, boolattn.evaluation, boolattn.errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, DataError, GateError, MissingDataError
from boolattn.evaluation.ranking import PADDING, Ranking

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.encoder.retriever import Retriever
    from boolattn.logic.tree import QueryTree

    Tell = Callable[[str, int, int], None]
    Keeps = Callable[[QueryTree], Callable[[int], bool]]
    Rows = NDArray[np.int32]
    Scores = NDArray[np.float32]
    Mask = NDArray[np.bool_]

# Documents encoded between two calls of `tell`.
_CHUNK = 4096
# Scores held at once: 64 x 65,536 float32 are 16 MiB.
_QUERIES, _DOCUMENTS = 64, 65_536
# What tantivy keeps in memory before it writes a segment, in bytes.
_HEAP = 128 << 20


class TowersRanker:
    """Ranks by the similarity of one vector a text, exactly.

    Args:
        model: Any sentence-transformers model.
        documents: Texts of the corpus; they are encoded here, once.
        batch_size: Texts encoded at once, by models that are not ours.
        tell: Called with what is done, how much of it, and of how much.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        documents: Sequence[str],
        *,
        batch_size: int = 32,
        tell: Tell | None = None,
    ) -> None:
        self.model = model.eval()
        self.batch_size = batch_size
        self._documents = self._comparable(_encode_documents(model, documents, batch_size, tell))

    def rank(
        self,
        texts: Sequence[str],
        depth: int,
        *,
        operators: Sequence[Sequence[str]] | None = None,
    ) -> Ranking:
        """Rank the corpus.

        Args:
            texts: The queries.
            depth: How many documents are wanted.
            operators: Names of each query's operators, which then open the gate. Left out, the
                model reads the text by itself.
        """
        queries = self._comparable(self._encode(texts, operators))
        return exact_search(queries, self._documents, depth, self._similarity())

    def _encode(self, texts: Sequence[str], operators: Sequence[Sequence[str]] | None) -> Tensor:
        if operators is not None:
            from boolattn.encoder import encode_queries

            open_ = _known_operators(self.model, operators)
            return encode_queries(self.model, texts, operators=open_, batch_size=self.batch_size)
        return self.model.encode_query(
            list(texts),
            batch_size=self.batch_size,
            convert_to_tensor=True,
            show_progress_bar=False,
        )

    def _comparable(self, vectors: Tensor) -> Tensor:
        """Make cosine a plain product, once for all."""
        from torch.nn import functional as F

        vectors = vectors.float()
        is_cosine = self.model.similarity_fn_name == "cosine"
        return F.normalize(vectors, dim=-1) if is_cosine else vectors

    def _similarity(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        is_product = self.model.similarity_fn_name in ("cosine", "dot")
        similarity: Callable[[Tensor, Tensor], Tensor] = self.model.similarity
        return None if is_product else similarity


class RetrieverRanker:
    """Ranks by composed scores: operands are read, compared with every document, and composed.

    Args:
        retriever: Reads queries and composes scores.
        documents: Texts of the corpus; they are encoded here, once.
        batch_size: Texts encoded at once.
        tell: Called with what is done, how much of it, and of how much.
        keeps: Returns for a query that excludes something what says of a document's row whether
            it may be returned. Left out, all may.
    """

    def __init__(
        self,
        retriever: Retriever,
        documents: Sequence[str],
        *,
        batch_size: int = 32,
        tell: Tell | None = None,
        keeps: Keeps | None = None,
    ) -> None:
        self.retriever = retriever
        self._keeps = keeps
        encoded = _encode_documents(retriever.towers, documents, batch_size, tell)
        self._documents = self._comparable(encoded)

    def rank(self, texts: Sequence[str], depth: int) -> Ranking:
        """Rank the corpus; every document gets its exact score."""
        from boolattn.composition import exact as ranking

        depth = min(depth, len(self._documents))
        # What is dropped leaves room for others, up to as many again.
        width = depth if self._keeps is None else min(2 * depth, len(self._documents))
        rows = np.zeros((len(texts), width), dtype=np.int32)
        scores = np.zeros((len(texts), width), dtype=np.float32)
        for start in range(0, len(texts), _QUERIES):
            plans = self.retriever.plan(list(texts[start : start + _QUERIES]))
            end = start + len(plans)
            rows[start:end], scores[start:end] = ranking.rank(
                self.retriever, plans, self._documents, width
            )
            for place, plan in enumerate(plans, start):
                if self._keeps is not None and plan.is_composed and any(plan.is_negated):
                    kept = map(self._keeps(plan.tree), rows[place].tolist())
                    _only(rows[place], scores[place], np.array(list(kept), bool))
        _refuse_nan(bool(np.isnan(scores).any()))
        return Ranking(rows[:, :depth], scores[:, :depth])

    def _comparable(self, vectors: Tensor) -> Tensor:
        from torch.nn import functional as F

        vectors = vectors.float()
        return F.normalize(vectors, dim=-1) if self.retriever.similarity == "cosine" else vectors


def _only(rows: Rows, scores: Scores, kept: Mask) -> None:
    """Move what is kept of one query's results to the front, in place; the rest is padding."""
    n_kept = int(kept.sum())
    rows[:n_kept], scores[:n_kept] = rows[kept], scores[kept]
    rows[n_kept:], scores[n_kept:] = PADDING, -np.inf


class Bm25Ranker:
    """Ranks by BM25 over stemmed English words; a query is a bag of words, any of which may fit.

    Args:
        documents: Texts of the corpus; they are indexed here, in memory.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        try:
            import tantivy
        except ImportError as error:
            raise MissingDataError("BM25 needs tantivy: pip install 'boolattn[search]'") from error
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", tokenizer_name="en_stem", index_option="freq")
        builder.add_integer_field("row", fast=True)
        self._index = tantivy.Index(builder.build())
        # One thread, so that documents of one score come in the same order every time.
        writer = self._index.writer(_HEAP, 1)
        for row, text in enumerate(documents):
            writer.add_document(tantivy.Document(text=text, row=row))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def rank(self, texts: Sequence[str], depth: int) -> Ranking:
        """Rank the documents that hold a word of the query; the others are not returned."""
        depth = min(depth, self._searcher.num_docs)
        rows = np.full((len(texts), depth), PADDING, dtype=np.int32)
        scores = np.full((len(texts), depth), -np.inf, dtype=np.float32)
        for place, text in enumerate(texts):
            # In lower case nothing is an operator of the index's own query language.
            words = " ".join(re.findall(r"[^\W_]+", text.lower()))
            if not words or not depth:
                continue
            query = self._index.parse_query(words, ["text"])
            hits = self._searcher.search(query, depth, count=False).hits
            found = self._searcher.fast_field_values("row", [address for _, address in hits])
            own = np.array([score for score, _ in hits], dtype=np.float32)
            order = np.lexsort((np.array(found, dtype=np.int32), -own))
            rows[place, : len(hits)] = np.array(found, dtype=np.int32)[order]
            scores[place, : len(hits)] = own[order]
        return Ranking(rows, scores)


def exact_search(
    queries: Tensor,
    documents: Tensor,
    depth: int,
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Ranking:
    """Find the best documents of each query among all, block by block.

    Args:
        queries: Shape ``(queries, dim)``.
        documents: Shape ``(documents, dim)``.
        depth: How many are wanted; never more than there are come back.
        similarity: From both to scores; left out, the inner product.
    """
    import torch

    similarity = similarity or _product
    parts = []
    with torch.inference_mode():
        for some in queries.to(documents.device).split(_QUERIES):
            values, rows = [], []
            for start in range(0, len(documents), _DOCUMENTS):
                scores = similarity(some, documents[start : start + _DOCUMENTS])
                best, places = scores.topk(min(depth, scores.shape[1]))
                values.append(best)
                rows.append(places + start)
            parts.append(_best(torch.cat(values, 1), torch.cat(rows, 1), depth))
    return _ranking(parts, depth, len(documents))


def _product(queries: Tensor, documents: Tensor) -> Tensor:
    return queries @ documents.T


def _best(scores: Tensor, rows: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Keep the best of some scores, those of one score by row. Shape ``(queries, depth)``."""
    depth = min(depth, scores.shape[1])
    values, places = scores.topk(depth)
    _refuse_nan(bool(values.isnan().any()))
    found, order = rows.gather(1, places).sort(1)
    values, by_score = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return found.gather(1, by_score).cpu(), values.cpu()


def _refuse_nan(has_nan: bool) -> None:
    if has_nan:
        raise DataError("the model gives scores that are no numbers; are its weights whole?")


def _ranking(parts: Sequence[tuple[Tensor, Tensor]], depth: int, n_documents: int) -> Ranking:
    import torch

    if not parts:
        width = min(depth, n_documents)
        return Ranking(np.zeros((0, width), dtype=np.int32), np.zeros((0, width), dtype=np.float32))
    rows, scores = (torch.cat([part[i] for part in parts]) for i in range(2))
    return Ranking(rows.numpy().astype(np.int32), scores.numpy().astype(np.float32))


def _encode_documents(
    model: SentenceTransformer, texts: Sequence[str], batch_size: int, tell: Tell | None
) -> Tensor:
    import torch

    from boolattn.encoder import DocumentEncoder

    if not texts:
        raise DataError("there are no documents to rank")
    encode: Any
    try:
        encode = DocumentEncoder(model)
    except ConfigError:
        # Not two towers of ours: the library's own way fits every model.
        def encode(some: Sequence[str]) -> Tensor:
            return model.encode_document(
                list(some), batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
            )

    parts = []
    for start in range(0, len(texts), _CHUNK):
        parts.append(encode(texts[start : start + _CHUNK]))
        if tell:
            tell("documents", min(start + _CHUNK, len(texts)), len(texts))
    return torch.cat(parts)


def _known_operators(
    model: SentenceTransformer, operators: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Leave out operators for which the model has no expert."""
    from boolattn.encoder import BoolBertModel, query_encoder

    try:
        encoder = query_encoder(model)
    except ConfigError:
        encoder = None
    if not isinstance(encoder, BoolBertModel):
        raise GateError("this model carries no BoolAttn, so there is no gate that labels open")
    known = encoder.config.boolattn_config.operators
    return [[name for name in one if name in known] for one in operators]
