"""From queries to results: parse, rank, filter by words, look up documents."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from boolattn.errors import QueryError
from boolattn.query.tree import Like, atoms
from boolattn.scoring.exact import Ranked
from boolattn.search.candidates import PlanRanking, add_conditions, rank
from boolattn.search.lexical_exclusion import allowed_by_terms, denies, is_kept
from boolattn.search.queries import QueryOptions, added_operands, prepare_queries
from boolattn.search.result import RANKED_LOWER, Hit, SearchResult
from boolattn.search.verdicts import explain_lower_rank, judge
from boolattn.settings import build, check_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.encoders.base import BaseRetriever
    from boolattn.query.plan import Plan
    from boolattn.query.tree import QueryTree
    from boolattn.search.engines.base import Searchable, Selection
    from boolattn.search.lexical import Lexical
    from boolattn.search.lexical_exclusion import IsAllowed
    from boolattn.search.queries import PreparedQuery
    from boolattn.search.storage.segments import Array, RowNumbers

_MORE = 100  # documents ranked beyond twice the results, where words leave some out
#: How the warning begins that there are too few results.
SHORTENED = "strict NOT left"
FAR = "all results are less than half as close to the rest of the query as what NOT excludes"
_COMPARED = 10  # first results with which a later one is compared
_NO_OPERATOR = "no operator was found in it"


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    mode: str = "auto"  # or plain language, or explicit syntax
    positive: Sequence[str] = ()  # operands that every query has besides; ``like:ID`` is a document
    negative: Sequence[str] = ()  # negated ones
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


def read_options(options: Mapping[str, Any], k: int, limit: int | None, what: str) -> SearchOptions:
    """Return the options of a search for ``k`` results; refuse what cannot be."""
    how = build(SearchOptions, options, source="search")
    check_types(how)
    if not isinstance(k, Integral) or isinstance(k, bool):
        raise QueryError(f"k is a whole number, not {type(k).__name__}")
    for name, least, value in (("k", 1, k), ("offset", 0, how.offset)):
        if value < least:
            raise QueryError(f"{name} must be at least {least}, got {value}")
    if limit is not None and (asked := k + how.offset) > limit:
        raise QueryError(f"{what} gives at most {limit} results, and {asked} were asked for")
    return how


class Source(Protocol):
    """What is searched: an index of ours, or a store that somebody else filled."""

    @property
    def engine(self) -> Searchable:
        """What finds the nearest documents."""

    @property
    def exact(self) -> Searchable:
        """What compares every document."""

    @property
    def lexical(self) -> Lexical | None:
        """The words, if they are indexed."""

    def has_title(self, text: str) -> bool:
        """Whether a document has this title."""

    def selection(self, filters: Mapping[str, Any] | None) -> Selection:
        """Return which documents pass some filters."""

    def narrowed(self, selection: Selection, tree: QueryTree) -> Selection:
        """Return a selection for a tree: by its conditions, and without its documents."""

    def document_vectors(self, ids: Sequence[str]) -> Mapping[str, Array]:
        """Return the vectors of documents that are operands."""

    def count(self, selection: Selection) -> int:
        """Return how many documents are selected; 0 where it is not known."""

    def documents(self, rows: RowNumbers) -> Iterable[Document | None]:
        """Return documents by number; ``None`` for one that is gone."""


@dataclass
class Pipeline:
    """One call of ``Searcher.search_many``."""

    index: Source
    retriever: BaseRetriever
    options: SearchOptions
    k: int
    _took: dict[str, float] = field(default_factory=dict)

    def run(self, queries: Sequence[str]) -> list[SearchResult]:
        """Search queries; results are in their order."""
        start = time.perf_counter()
        with self._timed("read"):
            how = QueryOptions(
                mode=self.options.mode,
                compose=self.options.compose,
                added=added_operands(self.options.positive, self.options.negative),
                is_title=self.index.has_title,
                find=self.index.document_vectors,
            )
            prepared = prepare_queries(self.retriever, queries, how)
        self._is_strict = self.options.strict_not is not False and any(
            _has_negation(query.plan) for query in prepared
        )
        with self._timed("filter"):
            base = self.index.selection(self.options.filters)
            selections = [self.index.narrowed(base, query.tree) for query in prepared]
        with self._timed("vectors"):
            ranked = self._rank(prepared, selections)
        parts = zip(prepared, ranked, selections, strict=True)
        results = [self._result(*own) for own in parts]
        took = {name: round(value, 3) for name, value in self._took.items()}
        took["total"] = round(1000 * (time.perf_counter() - start), 3)
        return [replace(result, took=took) for result in results]

    @property
    def _depth(self) -> int:
        """How many documents must be ranked, before some are left out."""
        return 2 * self.k + _MORE if self._is_strict else self.k

    def _engine(self, selection: Selection) -> Searchable:
        """Return the engine; one that filters by conditions alone cannot take every selection."""
        is_exact = self.options.exhaustive or selection.is_wider
        return self.index.exact if is_exact else self.index.engine

    def _rank(
        self, queries: Sequence[PreparedQuery], selections: Sequence[Selection]
    ) -> list[PlanRanking]:
        nothing = PlanRanking(Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32)))
        found = [nothing] * len(queries)
        lexical = self.index.lexical if self.options.hybrid else None
        groups: dict[int, list[int]] = {}
        for place, (query, selection) in enumerate(zip(queries, selections, strict=True)):
            if selection.n_documents != 0 and not query.is_empty:
                groups.setdefault(id(selection), []).append(place)
        for places in groups.values():
            selection, plans = selections[places[0]], [queries[place].plan for place in places]
            # Some engines find the documents that are operands, which are then left out.
            n_likes = sum(isinstance(one, Like) for one in atoms(queries[places[0]].tree))
            engine, depth = self._engine(selection), self._depth + n_likes
            ranked = rank(engine, plans, depth, selection, lexical)
            for place, own in zip(places, ranked, strict=True):
                found[place] = own
        return found

    def _result(
        self, query: PreparedQuery, found: PlanRanking, selection: Selection
    ) -> SearchResult:
        plan, warnings = query.plan, query.warnings
        if selection.met and selection.n_documents == 0:
            warnings += (f"no document meets the conditions: {', '.join(selection.met)}",)
        fitted = found.fitted
        for place in fitted.skipped if fitted else ():
            warnings += (
                f"the negated operand {plan.atoms[place]!r} was ignored: its vector cannot tell "
                "the best documents apart",
            )
        with self._timed("documents"):
            is_strict = self.options.strict_not is not False and _has_negation(plan)
            if is_strict:
                found, more = self._strict(plan, found, selection)
                warnings += more
            elif self.options.strict_not:
                warnings += ("strict NOT dropped nothing: the query has no negated operand",)
            ranked = Ranked(found.ranked.rows[: self.k], found.ranked.scores[: self.k])
            hits = tuple(self._hits(plan, found, ranked, selection))
            if hits and not any(hit.fits for hit in hits):
                warnings += (FAR,)
            ranked_lower: tuple[Hit, ...] = ()
            if self.options.explain:
                ranked_lower = self._ranked_lower(plan, found, selection, ranked.rows, hits)
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
            total=self.index.count(selection),
            offset=self.options.offset,
        )

    def _strict(
        self, plan: Plan, found: PlanRanking, selection: Selection
    ) -> tuple[PlanRanking, tuple[str, ...]]:
        """Apply strict NOT; return also what it did that a caller would not expect."""
        is_allowed = allowed_by_terms(plan.tree)
        found = self._lift(plan, found, selection, is_allowed)
        ranked = found.ranked
        chosen: list[int] = []
        for place, document in enumerate(self.index.documents(ranked.rows)):
            if len(chosen) == self.k:
                break
            if document is not None and is_kept(is_allowed, document):
                chosen.append(place)
        warnings: tuple[str, ...] = ()
        if len(chosen) < min(self.k, n_ranked := len(ranked.rows)):
            warnings = (
                f"{SHORTENED} {len(chosen)} results of {self.k}: of the {n_ranked} best "
                "documents the others hold a negated operand's words (without strict NOT they are "
                "ranked lower)",
            )
        kept = Ranked(ranked.rows[chosen], ranked.scores[chosen])
        return found._replace(ranked=kept), warnings

    def _lift(
        self, plan: Plan, found: PlanRanking, selection: Selection, is_allowed: IsAllowed
    ) -> PlanRanking:
        """Undo NOT for documents that say themselves that they lack what is negated.

        An operand's vector cannot tell "German is not required" from "German is required".
        """
        ranked, fitted, evidence, _ = found
        if fitted is None or evidence is None:
            return found
        operands = zip(evidence.found, plan.is_negated, strict=False)
        known = np.concatenate([own.rows for own, is_negated in operands if is_negated])
        places = np.flatnonzero(np.isin(ranked.rows, known))
        own = self._similarities(plan, found, ranked.rows[places], selection)
        positive = fitted.positive(own)
        # Others would not be among the first results.
        is_near = positive > ranked.scores[: 2 * self.k].min(initial=np.inf)
        places, positive = places[is_near], positive[is_near]
        documents = self.index.documents(ranked.rows[places])
        is_lifted = [one is not None and denies(is_allowed, one) for one in documents]
        places, positive = places[is_lifted], positive[is_lifted]
        rows, scores = ranked.rows[places], ranked.scores.copy()
        scores[places] = positive
        order = np.argsort(-scores, kind="stable")
        better = Ranked(ranked.rows[order], scores[order])
        return found._replace(ranked=better, lifted=frozenset(rows.tolist()))

    def _hits(
        self, plan: Plan, found: PlanRanking, ranked: Ranked, selection: Selection
    ) -> Iterator[Hit]:
        evidence = None
        if found.fitted is not None and self.options.verdicts and len(ranked.rows):
            own = self._similarities(plan, found, ranked.rows, selection)
            evidence = found.fitted.evidence(own)
        pairs = zip(ranked.rows.tolist(), ranked.scores.tolist(), strict=True)
        for place, (document, (row, score)) in enumerate(
            zip(self.index.documents(ranked.rows), pairs, strict=True)
        ):
            if document is None:
                continue
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
                    exceeds=(0.0,) * len(plan.atoms)
                    if row in found.lifted
                    else tuple(evidence.exceeds[:, place].round(3).tolist()),
                    fits=bool(evidence.fits[place]),
                )
                verdict, why = judge(plan.atoms, hit)
                hit = replace(hit, verdict=verdict, why=why)
            yield hit

    def _similarities(
        self, plan: Plan, found: PlanRanking, rows: RowNumbers, selection: Selection
    ) -> Array:
        own = self.index.engine.similarities(plan.vectors, rows)
        own = own if found.evidence is None else found.evidence.add(rows, own)
        return add_conditions(plan, rows, own, selection)

    def _ranked_lower(
        self,
        plan: Plan,
        found: PlanRanking,
        selection: Selection,
        shown: RowNumbers,
        hits: Sequence[Hit],
    ) -> tuple[Hit, ...]:
        """Return what the whole text's vector finds among the first, and the result does not."""
        if (fitted := found.fitted) is None or not len(shown):
            return ()
        rows = self._engine(selection).nearest(plan.plain[None], self.k, selection)[0].rows
        rows = rows[~np.isin(rows, shown)]
        if not len(rows):
            return ()
        scores = fitted.score(self._similarities(plan, found, rows, selection))
        is_allowed = allowed_by_terms(plan.tree)
        lower = []
        for hit in self._hits(plan, found, Ranked(rows, scores), selection):
            why = explain_lower_rank(plan.atoms, hit, hits[:_COMPARED])
            if self._is_strict and not is_kept(is_allowed, hit):
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
