"""From queries to results: parse, rank, fuse, filter by words, look up documents."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.search.candidates import fuse, rank
from boolattn.search.engines.base import similarities
from boolattn.search.lexical import terms_of
from boolattn.search.lexical_exclusion import allowed_by_terms, allowed_by_vectors
from boolattn.search.queries import prepare_queries
from boolattn.search.result import Hit, SearchResult
from boolattn.search.verdicts import (
    KEPT,
    RANKED_LOWER,
    Probabilities,
    explain_lower_rank,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.composition.plan import Plan
    from boolattn.encoder.retriever import Retriever
    from boolattn.search.index.open_index import OpenIndex
    from boolattn.search.queries import PreparedQuery

    Rows = NDArray[np.int64]
    Array = NDArray[np.float32]

#: Fewest results of each branch that hybrid search fuses.
_BRANCH = 100
#: First results with which a later one is compared.
_COMPARED = 10


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search.

    Attributes:
        mode: ``plain`` language, ``explicit`` syntax, or ``auto``.
        filters: Conditions on metadata; see ``boolattn.search.filters``.
        hybrid: Whether BM25 results are fused with those of the vectors.
        compose: Whether operands are scored one by one and composed; if not, the query is one
            vector.
        strict_not: Whether a document that holds the distinguishing words of a negated operand
            is left out, whatever its vector says.
        exhaustive: Whether every document is scored, instead of candidates.
        explain: Whether to add the documents that composition ranks lower.
    """

    mode: str = "auto"
    filters: Mapping[str, Any] | None = None
    hybrid: bool = False
    compose: bool = True
    strict_not: bool = False
    exhaustive: bool = False
    explain: bool = False


@dataclass
class Pipeline:
    """One call of ``Searcher.search_many``."""

    index: OpenIndex
    retriever: Retriever
    options: SearchOptions
    k: int
    _took: dict[str, float] = field(default_factory=dict)

    def run(self, queries: Sequence[str]) -> list[SearchResult]:
        """Search queries; results are in their order."""
        start = time.perf_counter()
        with self._timed("read"):
            prepared = prepare_queries(
                self.retriever, queries, self.options.mode, compose=self.options.compose
            )
        with self._timed("filter"):
            self._selection = self.index.selection(self.options.filters)
        with self._timed("vectors"):
            ranked = self._rank(prepared)
        results = [self._result(query, own) for query, own in zip(prepared, ranked, strict=True)]
        took = {name: round(value, 3) for name, value in self._took.items()}
        took["total"] = round(1000 * (time.perf_counter() - start), 3)
        return [replace(result, took=took) for result in results]

    @property
    def _depth(self) -> int:
        """How many rows the vectors must rank, before some are left out or fused."""
        depth = max(2 * self.k, _BRANCH) if self.options.hybrid else self.k
        return 2 * depth + _BRANCH if self.options.strict_not else depth

    def _rank(self, queries: Sequence[PreparedQuery]) -> list[Ranked]:
        nothing = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        if not self.index.manifest.n_documents:
            return [nothing] * len(queries)
        plans = [query.plan for query in queries if not query.is_empty]
        engine = self.index.flat if self.options.exhaustive else self.index.engine
        found = iter(rank(engine, self.retriever, plans, self._depth, self._selection))
        return [nothing if query.is_empty else next(found) for query in queries]

    def _result(self, query: PreparedQuery, ranked: Ranked) -> SearchResult:
        plan, warnings = query.plan, query.warnings
        branches: dict[str, Rows] = {}
        if self.options.hybrid and not query.is_empty:
            with self._timed("words"):
                branches = {"dense": ranked.rows, "lexical": self._lexical(plan)}
                ranked = fuse(list(branches.values()), self._depth)
        with self._timed("documents"):
            if self.options.strict_not:
                n_ranked = len(ranked.rows)
                ranked = self._strict(plan, ranked)
                warnings += _strict_warnings(plan, len(ranked.rows), n_ranked, self.k)
            rows, scores = ranked.rows[: self.k], ranked.scores[: self.k]
            hits = tuple(self._hits(plan, rows, scores, branches))
            ranked_lower = self._ranked_lower(plan, rows, hits) if self.options.explain else ()
        return SearchResult(
            query=query.text,
            tree=plan.tree,
            parsed=plan.parsed,
            operands=plan.atoms,
            is_negated=plan.is_negated,
            spans=plan.spans,
            confidence=float(plan.confidence),
            is_composed=plan.is_composed,
            hits=hits,
            ranked_lower=ranked_lower,
            warnings=warnings,
        )

    def _lexical(self, plan: Plan) -> Rows:
        """Return the lexical branch, without the documents that the vectors exclude."""
        if self.index.lexical is None:
            return np.zeros(0, np.int64)
        rows = self.index.lexical.search(plan.tree, self._depth, self._selection.mask)
        if not _has_negation(plan) or not len(rows):
            return rows
        composed, _ = self._probabilities(plan, rows)
        return rows[allowed_by_vectors(plan.tree, composed)]

    def _strict(self, plan: Plan, ranked: Ranked) -> Ranked:
        if not _has_negation(plan):
            return ranked
        is_allowed = allowed_by_terms(plan.tree)
        chosen: list[int] = []
        for place, row in enumerate(ranked.rows.tolist()):
            if len(chosen) == self.k:
                break
            document = self.index.rows.document(row)
            if is_allowed(frozenset(terms_of(f"{document.title}\n{document.text}"))):
                chosen.append(place)
        return Ranked(ranked.rows[chosen], ranked.scores[chosen])

    def _hits(
        self, plan: Plan, rows: Rows, scores: Array, branches: Mapping[str, Rows]
    ) -> Iterator[Hit]:
        composed, displayed = self._probabilities(plan, rows)
        ranks = {
            name: {row: place for place, row in enumerate(own.tolist(), start=1)}
            for name, own in branches.items()
        }
        above: list[Probabilities] = []
        for place, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True)):
            document = self.index.rows.document(row)
            own = Probabilities(*(tuple(p[:, place].tolist()) for p in (composed, displayed)))
            verdict, why = judge(plan.tree, own, above) if plan.is_composed else (KEPT, "")
            if len(above) < _COMPARED:
                above.append(own)
            yield Hit(
                id=document.id,
                title=document.title,
                text=document.text,
                metadata=document.metadata,
                score=score,
                probabilities=tuple(own.displayed) if plan.is_composed else (),
                composed=tuple(own.composed) if plan.is_composed else (),
                verdict=verdict,
                why=why,
                branches={name: own[row] for name, own in ranks.items() if row in own},
            )

    def _probabilities(self, plan: Plan, rows: Rows) -> tuple[Array, Array]:
        """Return composed and displayed probabilities. Both shapes ``(operands, documents)``."""
        if not plan.is_composed or not len(rows):
            nothing = np.zeros((len(plan.atoms), len(rows)), np.float32)
            return nothing, nothing
        found = self.retriever.operand_probabilities(plan, self._similarities(plan, rows))
        return found.composed, found.displayed

    def _similarities(self, plan: Plan, rows: Rows) -> Array:
        return similarities(plan.vectors, self.index.engine.vectors(rows))

    def _ranked_lower(self, plan: Plan, shown: Rows, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Return what the whole text's vector finds among the first, and the result does not."""
        if not plan.is_composed or not len(shown):
            return ()
        rows = self.index.engine.search(plan.plain[None], self.k, self._selection).rows[0]
        rows = rows[(rows >= 0) & ~np.isin(rows, shown)]
        if not len(rows):
            return ()
        scores = self.retriever.score(plan, self._similarities(plan, rows))
        results = [hit.all_probabilities for hit in hits[:_COMPARED]]
        return tuple(
            replace(
                hit,
                verdict=RANKED_LOWER,
                why=explain_lower_rank(plan.tree, hit.all_probabilities, results),
            )
            for hit in self._hits(plan, rows, scores, {})
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._took[name] = self._took.get(name, 0.0) + 1000 * (time.perf_counter() - start)


def _has_negation(plan: Plan) -> bool:
    return plan.is_composed and any(plan.is_negated)


def _strict_warnings(plan: Plan, n_left: int, n_ranked: int, k: int) -> tuple[str, ...]:
    """Return what strict NOT did that a caller would not expect."""
    if not _has_negation(plan):
        return ("strict NOT dropped nothing: the query has no negated operand",)
    if n_left < min(k, n_ranked):
        return (
            f"strict NOT left {n_left} results of {k}: of the {n_ranked} best documents the "
            "others hold a negated operand's words",
        )
    return ()
