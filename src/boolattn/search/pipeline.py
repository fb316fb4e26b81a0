"""From queries to results: read, plan, rank, leave out by words, look up documents."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import QueryError
from boolattn.query.plan import IS_OFF, Plan, plan_queries
from boolattn.query.syntax import parse_entry
from boolattn.query.tree import Everything, Where, atoms, negate, signed_atoms
from boolattn.scoring.exact import Ranked
from boolattn.search.candidates import LOOKED_AT, Retrieval, rank
from boolattn.search.inputs import SearchOptions, StoreQueryReader
from boolattn.search.overview import Facet, absent_values, count_facets
from boolattn.search.result import SHORTENED, Hit, LeftOut, SearchResult, judge
from boolattn.stores.filters import Condition, Filter, alternatives, condition_of, read_filters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.encoders.callables import Encoder
    from boolattn.query.parser import Parser
    from boolattn.stores.base import Array, Keys, Reader

_MORE = 100  # documents ranked beyond twice the results, where words leave some out
OTHER_LEXICON = (
    "NOT left out words only, not things of a kind: the index was written with another lexicon of "
    "kinds; index again"
)
NOTHING_FITS = "nothing fits well: no result has a word of the query, or is near to it in meaning"
FAR = "nothing fits well once the exclusions apply"
_FACETED = 500  # best documents among which values of the metadata are counted
#: Documents looked at for what is left out, without an index of words; how many are named, and the
#: characters of a text that stands for a title.
_READ, _LEFT_OUT, _TITLE = 50, 10, 60
#: Results without a word of the query fit badly below this similarity: 1 in 100 of people's
#: queries has such results, and two thirds of the queries that were written for other documents.
_LOW = 0.3


def search_store(
    queries: Sequence[str],
    reader: Reader,
    encoder: Encoder,
    parser: Parser | None,
    options: SearchOptions,
    k: int,
) -> list[SearchResult]:
    """Search queries for ``k`` results, with those that are passed over; in their order."""
    times = [time.perf_counter()]
    added = [*map(parse_entry, options.positive)]
    added += [negate(parse_entry(entry)) for entry in options.negative]
    query_reader = StoreQueryReader(
        parser, reader, mode=options.mode, compose=options.compose, added=tuple(added)
    )
    readings = [*map(query_reader.read, queries)]
    documents = dict.fromkeys(name for reading in readings for name in reading.documents)
    plans = plan_queries(readings, encoder, reader.known_vectors(list(documents)))
    times.append(time.perf_counter())
    base = tuple(map(reader.resolve, read_filters(options.filters)))
    retrievals = [_select(plan, reader, options, base, k) for plan in plans]
    times.append(time.perf_counter())
    # Some of the ranked documents are left out.
    n = 2 * k + _MORE if any(query.is_strict for query in retrievals) else k
    possible = [q for q in retrievals if (q.total or not reader.counts) and not q.plan.is_empty]
    rank(reader, possible, max(n, _FACETED if options.facets else 0))
    times.append(time.perf_counter())
    results = [_result(query) for query in retrievals]
    times.append(time.perf_counter())
    names = ("read", "filter", "vectors", "documents", "total")
    spans = zip(names, [*pairwise(times), (times[0], times[-1])], strict=True)
    took = {name: round(1000 * (end - start), 3) for name, (start, end) in spans}
    return [replace(result, took=took) for result in results]


def _select(
    plan: Plan, reader: Reader, options: SearchOptions, base: tuple[Condition, ...], k: int
) -> Retrieval:
    """Find out which documents a plan may find: by conditions, and without its operands."""
    tree, conditions = plan.parsed, {}
    for atom in (atom for atom in atoms(tree) if isinstance(atom, Where)):
        try:
            conditions[atom.text] = reader.resolve(condition_of(atom))
        except QueryError as error:
            raise QueryError(f"{error}; between quotes {atom.text!r} is text") from error
    without = tuple(reader.find(plan.documents).values())
    where = Filter(base, alternatives(tree, conditions), without)
    reader.check_conditions(list(conditions), where)
    return Retrieval(plan, reader, options, where, conditions, k, reader.count(where))


def _result(query: Retrieval) -> SearchResult:
    plan, fitted, options = query.plan, query.fitted, query.options
    facets = _facets(query) if options.facets else ()
    left_out = _left_out(query) if query.is_strict else ()
    shortage = _leave_out(query) if query.is_strict else []
    ranked = _first(query)
    hits = tuple(_hits(query, ranked))
    result = SearchResult(
        query=plan.text,
        tree=plan.tree,
        parsed=plan.parsed if plan.fallback != IS_OFF else plan.tree,
        operands=plan.atoms,
        is_negated=plan.is_negated,
        spans=plan.operand_spans,
        confidence=float(plan.confidence),
        is_composed=plan.is_composed,
        why_one_vector="" if plan.is_composed else plan.fallback or "no and / or / not found",
        hybrid=bool(options.hybrid),
        strict_not=query.is_strict,
        n_compared=fitted.n_documents if fitted else 0,
        hits=hits[options.offset :],
        left_out=left_out,
        facets=facets,
        notes=plan.notes,
        total=query.total,
        offset=options.offset,
    )
    warnings = (*_warnings(query, shortage), *_doubts(query, ranked.rows, result))
    return replace(result, warnings=(*plan.warnings, *warnings))


def _warnings(query: Retrieval, shortage: list[str]) -> Iterator[str]:
    """Yield what a user may not expect of conditions and exclusions."""
    settings, options = query.reader.settings, query.options
    if query.total == 0 and query.reader.counts:
        yield from absent_values(query.reader, query.where)
        if query.conditions:
            yield f"no document meets the conditions: {', '.join(query.conditions)}"
    for operand in query.fitted.skipped if query.fitted else ():
        yield (
            f"the negated operand {query.plan.atoms[operand]!r} was ignored: its vector cannot "
            "tell the best documents apart"
        )
    yield from shortage
    if options.strict_not and not query.is_strict:
        yield "nothing was left out: the query excludes nothing"
    if query.is_strict and options.kinds and settings.lexicon and not settings.known_kinds:
        yield OTHER_LEXICON


def _doubts(query: Retrieval, keys: Keys, result: SearchResult) -> Iterator[str]:
    """Say what the store cannot do, and whether results are far from the query."""
    options, least = query.options, query.options.min_score
    if options.hybrid and query.reader.words_note:
        yield query.reader.words_note
    if not result.hits:
        if least is not None and result.total:
            yield f"nothing fits well: no document has a similarity of {least}"
        return
    is_wordless = options.verdicts and not any(map(result.has_words, result.hits))
    is_wordless &= not any(isinstance(atom, Where) for atom in atoms(query.plan.tree))  # these hold
    if is_wordless and _positive_similarities(query, keys).max(initial=0) < _LOW:
        yield NOTHING_FITS
    elif not any(hit.fits for hit in result.hits):
        yield FAR


def _first(query: Retrieval) -> Ranked:
    """Return the first documents, without those that are not similar enough."""
    keys, scores = query.ranked.rows[: query.k], query.ranked.scores[: query.k]
    if (least := query.options.min_score) is None:
        return Ranked(keys, scores)
    is_near = _positive_similarities(query, keys) >= least
    return Ranked(keys[is_near], scores[is_near])


def _positive_similarities(query: Retrieval, keys: Keys) -> Array:
    """Return similarities to the positive part of a query; infinite if it has none."""
    positive = [atom for atom, sign in signed_atoms(query.plan.tree) if sign > 0]
    if any(isinstance(atom, Everything) for atom in positive) or not positive:
        return np.full(len(keys), np.inf, np.float32)
    vectors = query.plan.clause_vectors
    return np.asarray(query.reader.similarities(vectors, keys).max(0, initial=-1), np.float32)


def _facets(query: Retrieval) -> tuple[Facet, ...]:
    """Count values among the best documents that pass filters and exclusions."""
    reader, keys = query.reader, query.ranked.rows[:_FACETED]
    is_exact = reader.counts and query.total <= min(_FACETED, len(query.ranked.rows))
    if query.is_strict:
        keys = keys[query.exclusion.keeps(keys)]
    documents = [document for document in reader.documents(keys) if document]
    return count_facets(documents, reader.fields(), is_exact=is_exact)


def _leave_out(query: Retrieval) -> list[str]:
    """Apply strict NOT; return a warning where others that fit may not be found."""
    keys, scores = query.ranked
    is_kept, size = np.zeros(len(keys), bool), 2 * query.k
    for start in range(0, len(keys), size):
        if is_kept.sum() >= query.k:
            break
        page = slice(start, start + size)
        is_kept[page] = query.keeps(keys[page])
    chosen = np.flatnonzero(is_kept)[: query.k]
    query.ranked = Ranked(keys[chosen], scores[chosen])
    is_short = len(chosen) < min(query.k, len(keys))
    if is_short and (len(keys) < query.total or not query.reader.counts):
        shown = f"{SHORTENED} {len(chosen)} results of {query.k}: of the {len(keys)} best"
        return [f"{shown} documents the others have what is excluded"]
    return []


def _left_out(query: Retrieval) -> tuple[LeftOut, ...]:
    """Name what NOT leaves out of the documents that fit the rest; the same for every k."""
    if query.fitted is None or not query.options.verdicts:
        return ()
    # Without an index of words their texts are read.
    keys = query.nearest_whole(LOOKED_AT if query.reader.has_words else _READ)
    keys = keys[~query.keeps(keys)]
    fits = query.fitted.fits(query.similarities(keys))
    keys = keys[fits][:_LEFT_OUT]
    documents = query.reader.documents(keys)
    return tuple(
        LeftOut(d.id, d.title or shorten(d.text, _TITLE, placeholder="…"), *reason)
        for d, reason in zip(documents, query.exclusion.why(keys, documents), strict=True)
        if d is not None and reason
    )


def _hits(query: Retrieval, ranked: Ranked) -> Iterator[Hit]:
    """Yield a hit for each document that is still there."""
    plan, (keys, scores), fitted = query.plan, ranked, query.fitted
    ranks: Keys = np.zeros((0, len(keys)), np.int64)
    exceeds: Array = np.zeros((0, len(keys)), np.float32)
    fits = np.ones(len(keys), bool)
    if fitted is not None and query.options.verdicts and len(keys):
        similarities = query.similarities(keys)
        ranks, fits = fitted.ranks(similarities), fitted.fits(similarities)
        exceeds = fitted.exceeds(similarities).round(3)
        exceeds[:, np.isin(keys, [*query.lifted])] = 0
    passages = query.reader.best_passages(plan.clause_vectors.mean(0), keys)
    for row, document in enumerate(query.reader.documents(keys)):
        if document is None:
            continue
        shares = tuple(exceeds[:, row].tolist())
        why = judge(plan.atoms, shares, fits=bool(fits[row]))
        yield Hit(
            document.id,
            document.title,
            document.text,
            document.metadata,
            score=float(scores[row]),
            ranks=tuple(ranks[:, row].tolist()),
            exceeds=shares,
            fits=bool(fits[row]),
            verdict="doubtful" if why else "kept",
            why=why,
            passage=passages[row],
        )
