"""Ranking documents for plans: candidates near the positive operands, then exact composition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.query.tree import Where, atoms
from boolattn.scoring.exact import Ranked
from boolattn.scoring.fitted import fit
from boolattn.scoring.shortlist import SHORTLIST
from boolattn.search.engines.base import best
from boolattn.search.engines.flat import Flat
from boolattn.search.lexical_evidence import LexicalEvidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from boolattn.query.plan import Plan
    from boolattn.scoring.fitted import Fitted
    from boolattn.search.engines.base import Searchable, Selection
    from boolattn.search.lexical import Lexical
    from boolattn.search.storage.segments import Array, RowNumbers

#: Documents with words of an operand whose score is known; those of the others count as 0.
MOST_LEXICAL = 10_000


def probes(plan: Plan) -> Array:
    """Return the vectors whose neighbours are candidates. Shape ``(probes, dim)``.

    For each clause its conjunction, or its one positive operand. With negated operands also that
    less half their mean, so that not all candidates are near them. Each probe costs a search.
    """
    found = []
    for (positive, negated, _), own in zip(plan.clauses, plan.clause_vectors, strict=True):
        if positive:
            found.append(own)
        if negated:
            found.append(own - 0.5 * plan.vectors[list(negated)].mean(0))
    return np.stack(list({vector.tobytes(): vector for vector in found}.values()))


class PlanRanking(NamedTuple):
    """The ranking of one plan, and the statistics that it was composed with."""

    ranked: Ranked
    fitted: Fitted | None = None
    evidence: LexicalEvidence | None = None
    lifted: frozenset[int] = frozenset()  # rows that say themselves that they lack what is negated


def rank(
    engine: Searchable,
    plans: Sequence[Plan],
    depth: int,
    selection: Selection,
    lexical: Lexical | None = None,
) -> list[PlanRanking]:
    """Rank documents for each plan, at most ``depth``: their numbers and scores.

    With ``lexical``, the words of operands count as much as their vectors.
    """
    if isinstance(engine, Flat):
        # It compares every row anyway, and composing all costs less than choosing candidates.
        return list(_rank_all(engine, plans, depth, selection, lexical))
    # Apart: a single-vector query needs few neighbours, a composed one many candidates.
    single = [plan for plan in plans if not plan.is_composed and lexical is None]
    ranks = map(PlanRanking, _nearest(engine, single, depth, selection))
    others = [plan for plan in plans if plan.is_composed or lexical is not None]
    composed = iter(_rank_candidates(engine, others, depth, selection, lexical))
    return [next(composed if plan.is_composed or lexical else ranks) for plan in plans]


def _nearest(
    engine: Searchable, plans: Sequence[Plan], depth: int, selection: Selection
) -> Iterable[Ranked]:
    if not plans:
        return ()
    return engine.nearest(np.stack([plan.vectors[0] for plan in plans]), depth, selection)


def _rank_candidates(
    engine: Searchable,
    plans: Sequence[Plan],
    depth: int,
    selection: Selection,
    lexical: Lexical | None,
) -> Iterator[PlanRanking]:
    if not plans:
        return
    n = engine.n_candidates(depth)
    every = [probes(plan) for plan in plans]
    found = iter(engine.nearest(np.concatenate(every), n, selection))
    for plan, probed in zip(plans, every, strict=True):
        near = [next(found).rows for _ in probed]
        candidates = np.unique(np.concatenate(near))
        # Of few rows all are found; else these are the best of more than there are of them.
        size = SHORTLIST if max(map(len, near)) >= n else None
        evidence = None
        if lexical is not None:
            evidence = LexicalEvidence.of(lexical, plan, MOST_LEXICAL, selection.documents)
            candidates = np.union1d(candidates, evidence.rows(plan, n))
        own = engine.similarities(plan.vectors, candidates)
        yield _compose(plan, candidates, own, depth, selection, evidence, size)


def _rank_all(
    flat: Flat,
    plans: Sequence[Plan],
    depth: int,
    selection: Selection,
    lexical: Lexical | None,
) -> Iterator[PlanRanking]:
    """Score every selected document for each plan."""
    allowed = selection.documents
    size = max(1, flat.n_queries // max((len(plan.vectors) for plan in plans), default=1))
    for start in range(0, len(plans), size):
        group = plans[start : start + size]
        found = flat.document_scores(np.concatenate([plan.vectors for plan in group]))
        rows = np.arange(found.shape[1]) if allowed is None else np.flatnonzero(allowed)
        ends = np.cumsum([len(plan.vectors) for plan in group])
        for plan, own in zip(group, np.split(found, ends[:-1]), strict=True):
            evidence = None
            if lexical is not None:
                evidence = LexicalEvidence.of(lexical, plan, MOST_LEXICAL, allowed)
            # Statistics are of the selected documents.
            chosen = own if allowed is None else own[:, rows]
            yield _compose(plan, rows, chosen, depth, selection, evidence)


def _compose(  # noqa: PLR0913 - what a ranking rests on
    plan: Plan,
    rows: RowNumbers,
    own: Array,
    depth: int,
    selection: Selection,
    evidence: LexicalEvidence | None,
    size: int | None = None,
) -> PlanRanking:
    """Rank documents by the similarities of a plan's vectors to them."""
    if evidence is not None:
        evidence = evidence.fit(rows, own)
        own = evidence.add(rows, own)
    own = add_conditions(plan, rows, own, selection)
    fitted = fit(plan.tree, own, size) if plan.is_composed and len(rows) else None
    found = _best(own[0] if fitted is None else fitted.score(own), depth)
    return PlanRanking(Ranked(rows[found.rows], found.scores), fitted, evidence)


def add_conditions(plan: Plan, rows: RowNumbers, own: Array, selection: Selection) -> Array:
    """Return similarities with those of conditions: 1 for documents that meet them, else 0."""
    for place, atom in enumerate(atoms(plan.tree)):
        if isinstance(atom, Where):
            own[place] = selection.met[atom.text][rows]
    return own


def _best(scores: Array, depth: int) -> Ranked:
    rows, own = (part[0] for part in best(np.asarray(scores, np.float32)[None], depth))
    return Ranked(rows[rows >= 0], own[rows >= 0])
