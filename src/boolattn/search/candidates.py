"""Ranking documents for plans: candidates near the positive operands, then exact composition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.query.tree import Where, atoms
from boolattn.scoring.exact import Ranked, top_k
from boolattn.scoring.fitted import fit
from boolattn.scoring.shortlist import SHORTLIST, highest, leader
from boolattn.search.evidence import LexicalEvidence
from boolattn.stores.analysis import operand_terms
from boolattn.stores.filters import Filter, clause_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from boolattn.query.plan import Plan
    from boolattn.query.structure import Clause
    from boolattn.scoring.fitted import Fitted
    from boolattn.search.exclusion import Exclusion
    from boolattn.search.options import SearchOptions
    from boolattn.stores.base import Array, Keys, Reader
    from boolattn.stores.filters import Condition

#: Scores of one scan: vectors times documents (256 MB).
_MAX_SCORES = 1 << 26
#: Of so many documents first those near a vector are composed, so many for each vector.
_MANY, _NEAR = 20_000, 1000
NOTHING = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True)
class Selected:
    """A plan, and which documents it may find."""

    plan: Plan
    exclusion: Exclusion
    where: Filter = field(default_factory=Filter)
    conditions: Mapping[str, Condition] = field(default_factory=dict)  # of the tree, by their text
    is_strict: bool = False  # whether NOT leaves documents out

    def clause_filter(self, clause: Clause) -> Filter:
        """Return the filter for candidates of one alternative."""
        if not clause.conditions:
            return self.where
        conditions = clause_conditions(clause, list(atoms(self.plan.tree)), self.conditions)
        return replace(self.where, alternatives=(conditions,))


class PlanRanking(NamedTuple):
    """The ranking of one plan, and the statistics that it was composed with."""

    ranked: Ranked
    fitted: Fitted | None = None
    evidence: LexicalEvidence | None = None
    #: Documents that NOT does not lower: those that say themselves that they lack what is negated,
    #: and the one that a long text describes.
    lifted: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Ranker:
    """Ranks the documents of a store for plans."""

    reader: Reader
    options: SearchOptions
    k: int  # results, which the number of candidates depends on
    depth: int  # maximum number of documents ranked

    def rank(self, queries: Sequence[Selected]) -> list[PlanRanking]:
        """Rank documents for each plan."""
        if self.options.exhaustive or self.reader.scans:
            return self._scan(queries)
        # Apart: a single-vector query needs few neighbours, a composed one many candidates.
        is_single = [not query.plan.is_composed and not self.options.hybrid for query in queries]
        single = [query for query, alone in zip(queries, is_single, strict=True) if alone]
        others = [query for query, alone in zip(queries, is_single, strict=True) if not alone]
        probes = [(query.plan.vectors[0], query.where) for query in single]
        ranks = map(PlanRanking, self._nearest(probes, self.depth))
        composed = self._rank_candidates(others)
        return [next(ranks if alone else composed) for alone in is_single]

    def similarities(self, query: Selected, ranking: PlanRanking, keys: Keys) -> Array:
        """Compare documents as a ranking did, words and conditions included."""
        values = self.reader.similarities(query.plan.vectors, keys)
        return self._compared(query, ranking, keys, values)

    def _compared(self, query: Selected, ranking: PlanRanking, keys: Keys, values: Array) -> Array:
        if ranking.evidence is not None:
            values = ranking.evidence.add(keys, values)
        return self._with_conditions(query, keys, values)

    def _nearest(self, probes: Sequence[tuple[Array, Filter]], n: int) -> list[Ranked]:
        """Search neighbours, those with the same filter in one call."""
        answers = [NOTHING] * len(probes)
        for where, numbers in _groups(where for _, where in probes):
            vectors = np.stack([probes[number][0] for number in numbers])
            nearest = self.reader.nearest(vectors, n, where)
            for number, answer in zip(numbers, nearest, strict=True):
                answers[number] = answer
        return answers

    def _rank_candidates(self, queries: Sequence[Selected]) -> Iterator[PlanRanking]:
        n = self.reader.n_candidates(self.k)
        probes = [list(self._probes(query)) for query in queries]
        answers = iter(self._nearest([probe for group in probes for probe in group], n))
        for query, group in zip(queries, probes, strict=True):
            near = [next(answers).rows for _ in group]
            keys = np.unique(np.concatenate(near))
            # Of few documents all are found; else these are the best of more than there are.
            size = SHORTLIST if max(map(len, near)) >= n else None
            evidence = self._evidence(query)
            if evidence is not None:
                keys = np.union1d(keys, evidence.best(query.plan, n))
            values = self.reader.similarities(query.plan.vectors, keys)
            yield self._compose(query, keys, values, evidence, size)

    def _probes(self, query: Selected) -> Iterator[tuple[Array, Filter]]:
        """Yield the vectors whose neighbours are candidates, each with its filter.

        For each clause its conjunction, or its one positive operand. With negated operands also
        that less half their mean, without the documents that will be left out, so that not all
        candidates are near them. Each probe costs a search.
        """
        plan = query.plan
        exclusion = query.exclusion if query.is_strict and self.reader.has_words else None
        seen = set()
        if plan.is_long and plan.has_negation:
            yield plan.plain, query.where
        for clause, vector in zip(plan.clauses, plan.clause_vectors, strict=True):
            where = query.clause_filter(clause)
            probes = [(vector, where)] if clause.positive else []
            if clause.negated:
                # Where nothing is positive, these are all candidates, and how much a document
                # matches what is negated is measured among them.
                lacking = exclusion.lacking(clause) if exclusion and clause.positive else ()
                away = vector - 0.5 * plan.vectors[list(clause.negated)].mean(0)
                probes.append((away, replace(where, lacking=lacking)))
            if not probes:
                probes.append((vector, where))
            for probe, probe_filter in probes:
                if (name := (probe.tobytes(), probe_filter)) not in seen:
                    seen.add(name)
                    yield probe, probe_filter

    def _scan(self, queries: Sequence[Selected]) -> list[PlanRanking]:
        """Score every selected document for each plan."""
        rankings = [PlanRanking(NOTHING)] * len(queries)
        for where, numbers in _groups(query.where for query in queries):
            n_vectors = max(len(queries[number].plan.vectors) for number in numbers)
            n_documents = max(1, self.reader.count(Filter()))
            size = max(1, _MAX_SCORES // (n_documents * n_vectors))
            for start in range(0, len(numbers), size):
                chosen = numbers[start : start + size]
                vectors = [queries[number].plan.vectors for number in chosen]
                keys, values = self.reader.scan(np.concatenate(vectors), where)
                ends = np.cumsum([len(part) for part in vectors])
                for number, part in zip(chosen, np.split(values, ends[:-1]), strict=True):
                    rankings[number] = self._compose_all(queries[number], keys, part)
        return rankings

    def _compose_all(self, query: Selected, keys: Keys, values: Array) -> PlanRanking:
        """Rank all documents: of many only those near a vector or with words, if that is proved.

        The others have lower similarities and no words, and composition is monotone in both.
        """
        plan, evidence = query.plan, self._evidence(query)
        is_monotone = all(c.positive for c in plan.clauses) and not query.conditions
        is_monotone &= all(atom.weight == 1 for atom in atoms(plan.tree)) and not plan.is_long
        if plan.is_composed and is_monotone and self.reader.scans and len(keys) > _MANY:
            is_near, limits = np.zeros(len(keys), bool), np.zeros((len(values), 1), np.float32)
            for row, limit in zip(values, limits, strict=True):
                nearest = highest(row, _NEAR)
                is_near[nearest], limit[:] = True, row[nearest].min()
            for answer in evidence.answers if evidence else ():
                is_near[np.searchsorted(keys, answer.rows)] = True
            rows = np.flatnonzero(is_near)
            near, near_values = keys[rows], values[:, rows]
            ranking = self._compose(query, near, near_values, evidence, SHORTLIST)
            compared = self._compared(query, ranking, near, near_values)
            fitted, n = ranking.fitted, max(self.depth, SHORTLIST)
            if fitted and fitted.is_complete(compared, limits, n):
                return ranking._replace(fitted=replace(fitted, n_documents=len(keys)))
        return self._compose(query, keys, values, evidence)

    def _evidence(self, query: Selected) -> LexicalEvidence | None:
        if not self.options.hybrid:
            return None
        return LexicalEvidence.of(self.reader, query.plan, query.where, query.exclusion.tags())

    def _compose(
        self,
        query: Selected,
        keys: Keys,
        values: Array,
        evidence: LexicalEvidence | None,
        size: int | None = None,
    ) -> PlanRanking:
        """Rank documents by the similarities of a plan's vectors to them."""
        if evidence is not None:
            evidence, values = evidence.fit(keys, values)
        values = self._with_conditions(query, keys, values)
        is_fitted = query.plan.is_composed and len(keys)
        fitted = fit(query.plan.tree, values, size) if is_fitted else None
        scores = np.array(values[0] if fitted is None else fitted.score(values), np.float32)
        lifted = frozenset[int]()
        if (row := self._described(query, keys)) is not None:
            lifted, scores[row] = frozenset([int(keys[row])]), scores.max() + 1
        return PlanRanking(_best(keys, scores, self.depth), fitted, evidence, lifted)

    def _described(self, query: Selected, keys: Keys) -> int | None:
        """Return the row of the document that a long text with a NOT describes, if there is one.

        Such a document may well mention what is negated, which is a detail of the text.
        """
        plan = query.plan
        if not (plan.is_long and plan.has_negation and len(keys)):
            return None
        return leader(self._compare_whole(query, plan.plain, keys, operand_terms(plan.text)))

    def nearest_whole(self, query: Selected, n: int) -> Keys:
        """Return the best documents of the whole query, with what NOT excludes, best first."""
        # The mean of the operands: the text as typed would have to be encoded for this alone.
        whole = query.plan.vectors[: len(query.plan.atoms)].mean(0)
        keys = self.reader.nearest(whole[None], n, query.where)[0].rows
        terms = operand_terms(" ".join(atom.words for atom in atoms(query.plan.tree)))
        if self.options.hybrid:
            words = self.reader.words([terms], n, query.where)[0].rows
            keys = np.sort(np.concatenate([keys, words]))
            keys = keys[np.diff(keys, prepend=-1) > 0]
        values = self._compare_whole(query, whole, keys, terms)
        return keys[np.argsort(-values, kind="stable")][:n]

    def _compare_whole(
        self, query: Selected, vector: Array, keys: Keys, terms: Sequence[str]
    ) -> Array:
        """Return the similarity of documents to a query's one vector, words included."""
        values = self.reader.similarities(vector[None], keys)
        if self.options.hybrid:
            whole = LexicalEvidence.of_terms(self.reader, [terms], query.where)
            _, values = whole.fit(keys, values)
        row: Array = values[0]
        return row

    def _with_conditions(self, query: Selected, keys: Keys, values: Array) -> Array:
        """Return similarities with those of conditions: 1 for documents that meet them, else 0."""
        if query.conditions and query.plan.is_composed:
            for row, atom in enumerate(atoms(query.plan.tree)):
                if isinstance(atom, Where):
                    values[row] = self.reader.matching(query.conditions[atom.text], keys)
        return values


def _groups(filters: Iterable[Filter]) -> Iterable[tuple[Filter, list[int]]]:
    """Return each filter once, with its positions."""
    groups: dict[Filter, list[int]] = {}
    for number, where in enumerate(filters):
        groups.setdefault(where, []).append(number)
    return groups.items()


def _best(keys: Keys, scores: Array, depth: int) -> Ranked:
    """Return the documents of highest scores; equal ones by their keys."""
    if len(scores) and scores.max() == scores.min():  # on every page the same order
        return Ranked(keys[:depth], scores[:depth])
    best = top_k(scores[None], depth)
    is_real = best.scores[0] > -np.inf
    return Ranked(keys[best.rows[0][is_real]], best.scores[0][is_real])
