"""From queries to results: parse, rank, filter by words, look up documents."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.composition.exact import Ranked
from boolattn.search.candidates import PlanRanking, rank
from boolattn.search.lexical import terms_of
from boolattn.search.lexical_exclusion import allowed_by_terms, asserted_terms
from boolattn.search.queries import prepare_queries
from boolattn.search.result import RANKED_LOWER, Hit, SearchResult
from boolattn.search.verdicts import explain_lower_rank, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set

    from boolattn.composition.plan import Plan
    from boolattn.embedding.base import BaseRetriever
    from boolattn.search.index.open_index import OpenIndex
    from boolattn.search.queries import PreparedQuery
    from boolattn.search.storage.segments import Array, RowNumbers

_MORE = 100  # documents ranked beyond twice the results, where words leave some out
_COMPARED = 10  # first results with which a later one is compared
_NO_OPERATOR = "no operator was found in it"


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    mode: str = "auto"  # or plain language, or explicit syntax
    filters: Mapping[str, Any] | None = None  # on metadata; see ``boolattn.search.filters``
    #: Whether the words of operands count as much as their vectors. By default they do where the
    #: index has words and ``compose`` is on: the best setting for each kind of query.
    hybrid: bool | None = None
    compose: bool = True  # whether operands are scored one by one; if not, a query is one vector
    #: Whether a document that holds the distinguishing words of a negated operand is left out,
    #: whatever its vector says. It is by default; ``True`` also warns where nothing is negated.
    strict_not: bool | None = None
    exhaustive: bool = False  # whether every document is scored, instead of candidates
    verdicts: bool = True  # whether each result is explained; costs time in long rankings
    offset: int = 0  # better documents to pass over, for the next page
    explain: bool = False  # whether to add the documents that composition ranks lower


@dataclass
class Pipeline:
    """One call of ``Searcher.search_many``."""

    index: OpenIndex
    retriever: BaseRetriever
    options: SearchOptions
    k: int
    _took: dict[str, float] = field(default_factory=dict)

    def run(self, queries: Sequence[str]) -> list[SearchResult]:
        """Search queries; results are in their order."""
        start = time.perf_counter()
        with self._timed("read"):
            prepared = prepare_queries(
                self.retriever,
                queries,
                self.options.mode,
                compose=self.options.compose,
                is_title=self.index.has_title,
            )
        self._is_strict = self.options.strict_not is not False and any(
            _has_negation(query.plan) for query in prepared
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
        """How many documents must be ranked, before some are left out."""
        return 2 * self.k + _MORE if self._is_strict else self.k

    @property
    def _total(self) -> int:
        allowed = self._selection.documents
        return self.index.rows.n_documents if allowed is None else int(allowed.sum())

    def _rank(self, queries: Sequence[PreparedQuery]) -> list[PlanRanking]:
        nothing = PlanRanking(Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32)))
        if not self.index.manifest.n_documents:
            return [nothing] * len(queries)
        plans = [query.plan for query in queries if not query.is_empty]
        engine = self.index.flat if self.options.exhaustive else self.index.engine
        lexical = self.index.lexical if self.options.hybrid else None
        found = iter(rank(engine, plans, self._depth, self._selection, lexical))
        return [nothing if query.is_empty else next(found) for query in queries]

    def _result(self, query: PreparedQuery, found: PlanRanking) -> SearchResult:
        plan, warnings = query.plan, query.warnings
        ranked, fitted, _ = found
        for place in fitted.skipped if fitted else ():
            warnings += (
                f"the negated operand {plan.atoms[place]!r} was ignored: its vector cannot tell "
                "the best documents apart",
            )
        with self._timed("documents"):
            is_strict = self.options.strict_not is not False and _has_negation(plan)
            if is_strict:
                ranked, more = self._strict(plan, ranked)
                warnings += more
            elif self.options.strict_not:
                warnings += ("strict NOT dropped nothing: the query has no negated operand",)
            ranked = Ranked(ranked.rows[: self.k], ranked.scores[: self.k])
            hits = tuple(self._hits(plan, found, ranked))
            ranked_lower: tuple[Hit, ...] = ()
            if self.options.explain:
                ranked_lower = self._ranked_lower(plan, found, ranked.rows, hits)
        return SearchResult(
            query=query.text,
            tree=plan.tree,
            parsed=plan.parsed,
            operands=plan.atoms,
            is_negated=plan.is_negated,
            spans=plan.spans,
            confidence=float(plan.confidence),
            is_composed=plan.is_composed,
            why_one_vector="" if plan.is_composed else plan.fallback or _NO_OPERATOR,
            hybrid=bool(self.options.hybrid),
            strict_not=is_strict,
            n_compared=fitted.n_documents if fitted else 0,
            hits=hits[self.options.offset :],
            ranked_lower=ranked_lower,
            warnings=warnings,
            total=self._total,
            offset=self.options.offset,
        )

    def _strict(self, plan: Plan, ranked: Ranked) -> tuple[Ranked, tuple[str, ...]]:
        """Apply strict NOT; return also what it did that a caller would not expect."""
        is_allowed = allowed_by_terms(plan.tree)
        chosen: list[int] = []
        for place, row in enumerate(ranked.rows.tolist()):
            if len(chosen) == self.k:
                break
            if self._is_kept(is_allowed, row):
                chosen.append(place)
        warnings: tuple[str, ...] = ()
        if len(chosen) < min(self.k, n_ranked := len(ranked.rows)):
            warnings = (
                f"strict NOT left {len(chosen)} results of {self.k}: of the {n_ranked} best "
                "documents the others hold a negated operand's words (without strict NOT they are "
                "ranked lower)",
            )
        return Ranked(ranked.rows[chosen], ranked.scores[chosen]), warnings

    def _is_kept(self, is_allowed: Callable[[Set[str]], bool], row: int) -> bool:
        document = self.index.rows.document(row)
        text = f"{document.title}\n{document.text}"
        # Looking for negations takes longer, and can only allow more.
        return is_allowed(frozenset(terms_of(text))) or is_allowed(asserted_terms(text))

    def _hits(
        self,
        plan: Plan,
        found: PlanRanking,
        ranked: Ranked,
    ) -> Iterator[Hit]:
        evidence = None
        if found.fitted is not None and self.options.verdicts and len(ranked.rows):
            evidence = found.fitted.evidence(self._similarities(plan, found, ranked.rows))
        pairs = zip(ranked.rows.tolist(), ranked.scores.tolist(), strict=True)
        for place, (row, score) in enumerate(pairs):
            document = self.index.rows.document(row)
            hit = Hit(
                id=document.id,
                title=document.title,
                text=document.text,
                metadata=document.metadata,
                score=score,
                passage=self.index.engine.best_passage(plan.positive_vector, row),
            )
            if evidence is not None:
                hit = replace(
                    hit,
                    ranks=tuple(evidence.ranks[:, place].tolist()),
                    exceeds=tuple(evidence.exceeds[:, place].round(3).tolist()),
                    fits=bool(evidence.fits[place]),
                )
                verdict, why = judge(plan.atoms, hit)
                hit = replace(hit, verdict=verdict, why=why)
            yield hit

    def _similarities(self, plan: Plan, found: PlanRanking, rows: RowNumbers) -> Array:
        own = self.index.engine.similarities(plan.vectors, rows)
        return own if found.evidence is None else found.evidence.add(rows, own)

    def _ranked_lower(
        self, plan: Plan, found: PlanRanking, shown: RowNumbers, hits: Sequence[Hit]
    ) -> tuple[Hit, ...]:
        """Return what the whole text's vector finds among the first, and the result does not."""
        if (fitted := found.fitted) is None or not len(shown):
            return ()
        rows = self.index.engine.nearest(plan.plain[None], self.k, self._selection)[0].rows
        rows = rows[~np.isin(rows, shown)]
        if not len(rows):
            return ()
        scores = fitted.score(self._similarities(plan, found, rows))
        is_allowed = allowed_by_terms(plan.tree)
        lower = []
        for row, hit in zip(rows, self._hits(plan, found, Ranked(rows, scores)), strict=True):
            why = explain_lower_rank(plan.atoms, hit, hits[:_COMPARED])
            if self._is_strict and not self._is_kept(is_allowed, row):
                why = "has the words of a negated operand: strict NOT leaves it out"
            lower.append(replace(hit, verdict=RANKED_LOWER, why=why))
        return tuple(lower)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._took[name] = self._took.get(name, 0.0) + 1000 * (time.perf_counter() - start)


def _has_negation(plan: Plan) -> bool:
    return plan.is_composed and any(plan.is_negated)
