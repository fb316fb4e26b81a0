"""Ranking documents for plans: candidates near the positive operands, then exact composition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from boolattn.query.tree import Where, atoms
from boolattn.scoring.exact import SHORTLIST, Ranked, highest, leader, top_k
from boolattn.scoring.fitted import Fitted, fit
from boolattn.search.evidence import Exclusion, LexicalEvidence
from boolattn.stores.analysis import operand_terms
from boolattn.stores.filters import Condition, Filter, clause_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.query.plan import Plan
    from boolattn.search.inputs import SearchOptions
    from boolattn.stores.base import Array, Keys, Mask, Reader

#: Scores of one scan: vectors times documents (256 MB).
_MAX_SCORES = 1 << 26
#: Of so many documents first those near a vector are composed, so many for each vector.
_MANY, _NEAR = 20_000, 1000
NOTHING = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass
class Retrieval:
    """A query on its way: its plan, which documents it may find, and their ranking."""

    plan: Plan
    exclusion: Exclusion
    where: Filter
    conditions: Mapping[str, Condition]  # of the tree, by their text
    is_strict: bool  # whether NOT leaves documents out
    total: int = 0  # documents that pass the filter
    ranked: Ranked = NOTHING
    fitted: Fitted | None = None  # the statistics that the ranking was composed with
    evidence: LexicalEvidence | None = None
    #: Documents that NOT does not lower: those that say themselves that they lack what is negated,
    #: and the one that a long text describes.
    lifted: frozenset[int] = frozenset()

    def keeps(self, keys: Keys) -> Mask:
        """Return which documents NOT does not leave out."""
        is_kept: Mask = np.isin(keys, [*self.lifted]) | self.exclusion.keeps(keys)
        return is_kept


@dataclass(frozen=True)
class Ranker:
    """Ranks the documents of a store for queries."""

    reader: Reader
    options: SearchOptions
    k: int  # results, which the number of candidates depends on
    depth: int  # maximum number of documents ranked

    def rank(self, queries: Sequence[Retrieval]) -> None:
        """Rank documents for each query."""
        if self.options.exhaustive or self.reader.compares_all:
            self._scan(queries)
            return
        # Apart: a single-vector query needs few neighbours, a composed one many candidates.
        is_hybrid = self.options.hybrid
        single = [q for q in queries if not q.plan.is_composed and not is_hybrid]
        probes = [(query.plan.vectors[0], query.where) for query in single]
        for query, ranked in zip(single, self._nearest(probes, self.depth), strict=True):
            query.ranked = ranked
        self._rank_candidates([q for q in queries if q.plan.is_composed or is_hybrid])

    def similarities(self, query: Retrieval, keys: Keys) -> Array:
        """Compare documents as a ranking did, words and conditions included."""
        values = self.reader.similarities(query.plan.vectors, keys)
        if query.evidence is not None:
            values = query.evidence.add(keys, values)
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

    def _rank_candidates(self, queries: Sequence[Retrieval]) -> None:
        n = self.reader.n_candidates(self.k)
        probes = [self._probes(query) for query in queries]
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
            self._compose(query, keys, values, evidence, size)

    def _probes(self, query: Retrieval) -> list[tuple[Array, Filter]]:
        """Return the vectors whose neighbours are candidates, each with its filter.

        For each clause its conjunction, or its one positive operand. With negated operands also
        that less half their mean, without the documents that will be left out, so that not all
        candidates are near them. Each probe costs a search.
        """
        plan, operands = query.plan, list(atoms(query.plan.tree))
        leaves_out = query.is_strict and self.reader.has_words
        probes = [(plan.plain, query.where)] if plan.is_long and plan.has_negation else []
        for clause, vector in zip(plan.clauses, plan.clause_vectors, strict=True):
            where = query.where
            if clause.conditions:
                conditions = clause_conditions(clause, operands, query.conditions)
                where = replace(where, alternatives=(conditions,))
            if clause.positive or not clause.negated:
                probes.append((vector, where))
            if clause.negated:
                # Where nothing is positive, these are all candidates, and how much a document
                # matches what is negated is measured among them.
                is_less = leaves_out and clause.positive
                lacking = query.exclusion.lacking(clause) if is_less else ()
                away = vector - 0.5 * plan.vectors[list(clause.negated)].mean(0)
                probes.append((away, replace(where, lacking=lacking)))
        different = {(vector.tobytes(), where): (vector, where) for vector, where in probes}
        return list(different.values())

    def _scan(self, queries: Sequence[Retrieval]) -> None:
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
                    self._compose_all(queries[number], keys, part)

    def _compose_all(self, query: Retrieval, keys: Keys, values: Array) -> None:
        """Rank all documents: of many only those near a vector or with words, if that is proved.

        The others have lower similarities and no words, and composition is monotone in both.
        """
        plan, evidence = query.plan, self._evidence(query)
        is_monotone = all(c.positive for c in plan.clauses) and not query.conditions
        is_monotone &= all(atom.weight == 1 for atom in atoms(plan.tree)) and not plan.is_long
        if plan.is_composed and is_monotone and self.reader.compares_all and len(keys) > _MANY:
            is_near, limits = np.zeros(len(keys), bool), np.zeros((len(values), 1), np.float32)
            for row, limit in zip(values, limits, strict=True):
                nearest = highest(row, _NEAR)
                is_near[nearest], limit[:] = True, row[nearest].min()
            for answer in evidence.answers if evidence else ():
                is_near[np.searchsorted(keys, answer.rows)] = True
            rows = np.flatnonzero(is_near)
            compared = self._compose(query, keys[rows], values[:, rows], evidence, SHORTLIST)
            fitted, n = query.fitted, max(self.depth, SHORTLIST)
            if fitted and fitted.is_complete(compared, limits, n):
                query.fitted = replace(fitted, n_documents=len(keys))
                return
        self._compose(query, keys, values, evidence)

    def _evidence(self, query: Retrieval) -> LexicalEvidence | None:
        if not self.options.hybrid:
            return None
        return LexicalEvidence.of(self.reader, query.exclusion.terms(), query.where)

    def _compose(
        self,
        query: Retrieval,
        keys: Keys,
        values: Array,
        evidence: LexicalEvidence | None,
        size: int | None = None,
    ) -> Array:
        """Rank documents by their similarities; return these with words and conditions."""
        if evidence is not None:
            evidence, values = evidence.fit(keys, values)
        values = self._with_conditions(query, keys, values)
        is_fitted = query.plan.is_composed and len(keys)
        fitted = fit(query.plan.tree, values, size) if is_fitted else None
        scores = np.array(values[0] if fitted is None else fitted.score(values), np.float32)
        if (row := self._described(query, keys)) is not None:
            query.lifted, scores[row] = frozenset([int(keys[row])]), scores.max() + 1
        query.ranked, query.fitted = _best(keys, scores, self.depth), fitted
        query.evidence = evidence
        return values

    def _described(self, query: Retrieval, keys: Keys) -> int | None:
        """Return the row of the document that a long text with a NOT describes, if there is one.

        Such a document may well mention what is negated, which is a detail of the text.
        """
        plan = query.plan
        if not (plan.is_long and plan.has_negation and len(keys)):
            return None
        return leader(self._compare_whole(query, plan.plain, keys, operand_terms(plan.text)))

    def nearest_whole(self, query: Retrieval, n: int) -> Keys:
        """Return the best documents of the whole query, with what NOT excludes, best first."""
        # The mean of the operands: the text as typed would have to be encoded for this alone.
        whole = query.plan.vectors[: len(query.plan.atoms)].mean(0)
        keys = self.reader.nearest(whole[None], n, query.where)[0].rows
        terms = operand_terms(" ".join(atom.words for atom in atoms(query.plan.tree)))
        if self.options.hybrid:
            keys = np.union1d(keys, self.reader.words([terms], n, query.where)[0].rows)
        values = self._compare_whole(query, whole, keys, terms)
        return keys[np.argsort(-values, kind="stable")][:n]

    def _compare_whole(
        self, query: Retrieval, vector: Array, keys: Keys, terms: Sequence[str]
    ) -> Array:
        """Return the similarity of documents to a query's one vector, words included."""
        values = self.reader.similarities(vector[None], keys)
        if self.options.hybrid:
            whole = LexicalEvidence.of(self.reader, [terms], query.where)
            _, values = whole.fit(keys, values)
        row: Array = values[0]
        return row

    def _with_conditions(self, query: Retrieval, keys: Keys, values: Array) -> Array:
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
