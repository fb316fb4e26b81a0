"""Reranking: a second model reads each positive operand beside each of the first results.

NOT stays the search's: what it left out does not come back, and negated operands are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.query.structure import clauses
from boolattn.query.tree import atoms
from boolattn.search.pipeline import SHORTENED

if TYPE_CHECKING:
    from boolattn.search.result import Hit, SearchResult

#: From pairs of an operand and a text to scores, higher for a better match.
Reranker = Callable[[list[tuple[str, str]]], Sequence[float]]


def as_reranker(reranker: Any) -> Reranker | None:  # noqa: ANN401 - a function or a CrossEncoder
    """Return a function of pairs; a sentence-transformers ``CrossEncoder`` predicts them."""
    function: Reranker | None = getattr(reranker, "predict", reranker)
    if function is None or callable(function):
        return function
    raise ConfigError(
        "reranker must be a function from pairs of an operand and a text to scores, or a "
        f"CrossEncoder, got {type(reranker).__name__}"
    )


def rerank(result: SearchResult, reranker: Reranker, k: int, offset: int) -> SearchResult:
    """Sort a long result by what a reranker says of the query's positive operands, and cut it.

    A document's score is that of its best alternative ("A or B"), and that of an alternative the
    mean over its operands. A query without words in an alternative keeps its order, and so does one
    with NOT where strict NOT is off.
    """
    is_ranked_by_not = any(result.is_negated) and not result.strict_not
    hits = result.hits if is_ranked_by_not else _sorted(result, reranker)
    warnings = result.warnings
    if len(hits) >= k + offset:
        warnings = tuple(line for line in warnings if not line.startswith(SHORTENED))
    return replace(result, hits=hits[offset : offset + k], offset=offset, warnings=warnings)


def _sorted(result: SearchResult, reranker: Reranker) -> tuple[Hit, ...]:
    words = [atom.words for atom in atoms(result.tree)]
    alternatives = [
        [row for row in clause.positive if words[row]] for clause in clauses(result.tree)
    ]
    if not result.hits or not all(alternatives):
        return result.hits
    rows = sorted({row for alternative in alternatives for row in alternative})
    pairs = [(words[row], _text(hit)) for row, hit in product(rows, result.hits)]
    scores = np.asarray(reranker(pairs), np.float64)
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        raise ConfigError(
            f"the reranker must give {len(pairs)} finite scores for {len(pairs)} pairs, got "
            f"{'other values' if scores.shape == (len(pairs),) else f'the shape {scores.shape}'}"
        )
    by_operand = dict(zip(rows, scores.reshape(len(rows), -1), strict=True))
    best = np.max([np.mean([by_operand[row] for row in a], axis=0) for a in alternatives], axis=0)
    order = np.argsort(-best, kind="stable")
    return tuple(replace(result.hits[row], score=float(best[row])) for row in order)


def _text(hit: Hit) -> str:
    """Return what is read of a document: its title, and its best passage if it has several."""
    text = hit.text[slice(*hit.passage)] if hit.passage else hit.text
    return text if not hit.title or text.startswith(hit.title) else f"{hit.title}\n{text}"
