"""From queries to results, step by step: read, rank, join, drop, look up.

May import: boolattn.search, boolattn.composition, boolattn.logic.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.search.candidates import Ranked, fuse, rank
from boolattn.search.lexical import terms_of
from boolattn.search.lexical_exclusion import keeps_by_vectors, kept_by_words
from boolattn.search.queries import read_queries
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
    from boolattn.search.queries import Question
    from boolattn.search.searcher import Searcher

#: Results of a branch that are joined in hybrid search, at least.
_BRANCH = 100
#: First results with which a later one is compared.
_COMPARED = 10


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search.

    Attributes:
        mode: ``plain`` language, ``explicit`` syntax, or ``auto``.
        filters: Conditions on metadata; see ``boolattn.search.filters``.
        hybrid: Whether the words count beside the vectors.
        compose: Whether operands are scored apart; if not, by the query's one vector.
        strict_not: Whether a document that holds the distinguishing words of an excluded operand
            is left out, whatever its vector says.
        exhaustive: Whether every document is composed, instead of candidates.
        explain: Whether to show what composing put down.
    """

    mode: str = "auto"
    filters: Mapping[str, Any] | None = None
    hybrid: bool = False
    compose: bool = True
    strict_not: bool = False
    exhaustive: bool = False
    explain: bool = False


@dataclass
class Answering:
    """One call of ``search_many``."""

    searcher: Searcher
    options: SearchOptions
    k: int

    def __post_init__(self) -> None:
        self.took: dict[str, float] = {}

    def run(self, queries: Sequence[str]) -> list[SearchResult]:
        """Answer the queries, in their order."""
        start = time.perf_counter()
        with self._timed("read"):
            questions = read_queries(
                self.searcher.retriever, queries, self.options.mode, compose=self.options.compose
            )
        with self._timed("filter"):
            self.selection = self.searcher.selection(self.options.filters)
        with self._timed("vectors"):
            ranked = self._rank(questions)
        results = [
            self._result(question, own) for question, own in zip(questions, ranked, strict=True)
        ]
        took = {name: round(value, 3) for name, value in self.took.items()}
        took["total"] = round(1000 * (time.perf_counter() - start), 3)
        return [replace(result, took=took) for result in results]

    @property
    def depth(self) -> int:
        """Results that are needed of the vectors before others are dropped or joined."""
        depth = max(2 * self.k, _BRANCH) if self.options.hybrid else self.k
        return 2 * depth + _BRANCH if self.options.strict_not else depth

    def _rank(self, questions: Sequence[Question]) -> list[Ranked]:
        searcher = self.searcher
        nothing = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))
        if not len(searcher):
            return [nothing] * len(questions)
        plans = [question.plan for question in questions if not question.is_empty]
        # Composing everything needs the exact engine, which every index has.
        engine = searcher.flat if self.options.exhaustive else searcher.engine
        found = rank(engine, searcher.retriever, plans, self.depth, self.selection)
        rest = iter(found)
        return [nothing if question.is_empty else next(rest) for question in questions]

    def _result(self, question: Question, dense: Ranked) -> SearchResult:
        plan = question.plan
        branches: dict[str, NDArray[np.int64]] = {}
        ranked = dense
        if self.options.hybrid and not question.is_empty:
            with self._timed("words"):
                branches = {"dense": dense.rows, "lexical": self._words(plan)}
                ranked = fuse(list(branches.values()), self.depth)
        with self._timed("documents"):
            warnings = question.warnings
            if self.options.strict_not:
                n_looked = len(ranked.rows)
                ranked = self._strict(plan, ranked)
                warnings += _strictly(plan, len(ranked.rows), n_looked, self.k)
            rows, scores = ranked.rows[: self.k], ranked.scores[: self.k]
            hits = tuple(self._hits(plan, rows, scores, branches))
            ranked_lower = self._ranked_lower(plan, rows, hits) if self.options.explain else ()
        return SearchResult(
            query=question.text,
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

    def _words(self, plan: Plan) -> NDArray[np.int64]:
        """Return the lexical branch; what the vectors say is excluded stays out of it too."""
        lexical = self.searcher.lexical
        rows = (
            np.zeros(0, np.int64)
            if lexical is None
            else lexical.search(plan.tree, self.depth, self.selection.mask)
        )
        if not plan.is_composed or not any(plan.is_negated) or not len(rows):
            return rows
        composed, _ = self._chances(plan, rows)
        return rows[keeps_by_vectors(plan.tree, composed)]

    def _strict(self, plan: Plan, ranked: Ranked) -> Ranked:
        if not plan.is_composed or not any(plan.is_negated):
            return ranked
        is_kept = kept_by_words(plan.tree)
        kept: list[int] = []
        for place, row in enumerate(ranked.rows.tolist()):
            if len(kept) == self.k:
                break
            document = self.searcher.rows.document(row)
            if is_kept(frozenset(terms_of(f"{document.title}\n{document.text}"))):
                kept.append(place)
        return Ranked(ranked.rows[kept], ranked.scores[kept])

    def _hits(
        self,
        plan: Plan,
        rows: NDArray[np.int64],
        scores: NDArray[np.float32],
        branches: Mapping[str, NDArray[np.int64]],
    ) -> Iterator[Hit]:
        composed, shown = self._chances(plan, rows)
        places = {
            name: {row: place for place, row in enumerate(own.tolist(), start=1)}
            for name, own in branches.items()
        }
        before: list[Probabilities] = []
        for place, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True)):
            document = self.searcher.rows.document(row)
            own = Probabilities(tuple(composed[:, place].tolist()), tuple(shown[:, place].tolist()))
            verdict, why = judge(plan.tree, own, before) if plan.is_composed else (KEPT, "")
            if len(before) < _COMPARED:
                before.append(own)
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
                branches={name: own[row] for name, own in places.items() if row in own},
            )

    def _chances(
        self, plan: Plan, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return probabilities as they are composed, and as they are shown.

        Both shapes ``(operands, documents)``.
        """
        if not plan.is_composed or not len(rows):
            nothing = np.zeros((len(plan.atoms), len(rows)), np.float32)
            return nothing, nothing
        similarities = plan.vectors @ self.searcher.engine.vectors(rows).T
        return self.searcher.retriever.chances(plan, similarities)

    def _ranked_lower(
        self, plan: Plan, shown: NDArray[np.int64], hits: Sequence[Hit]
    ) -> tuple[Hit, ...]:
        """Return what one vector would have found among the first, and the result does not show."""
        if not plan.is_composed or not len(shown):
            return ()
        one = plan.plain[None]
        rows = self.searcher.engine.search(one, self.k, self.selection).rows[0]
        rows = rows[(rows >= 0) & ~np.isin(rows, shown)]
        if not len(rows):
            return ()
        similarities = plan.vectors @ self.searcher.engine.vectors(rows).T
        scores = self.searcher.retriever.score(plan, similarities)
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
        self.took[name] = self.took.get(name, 0.0) + 1000 * (time.perf_counter() - start)


def _strictly(plan: Plan, n_kept: int, n_looked: int, k: int) -> tuple[str, ...]:
    """Say what strict NOT did that a caller would not expect."""
    if not plan.is_composed or not any(plan.is_negated):
        return ("strict NOT dropped nothing: no excluded operand was read in the query",)
    if n_kept < min(k, n_looked):
        return (
            f"strict NOT left {n_kept} results of {k}: of the {n_looked} best documents the "
            "others hold an excluded operand's words",
        )
    return ()
