"""Ranking documents for plans: candidates near the positive operands, then exact composition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from boolattn.query.tree import Where, atoms
from boolattn.scoring.exact import SHORTLIST, Ranked, highest, leader, top_k
from boolattn.scoring.fitted import Fitted, fit
from boolattn.search.evidence import LexicalEvidence
from boolattn.search.exclusion import Exclusion
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
#: Documents nearest to the whole query, of which some are left out.
LOOKED_AT = 200
#: Standard deviations of the shortlist that a document gains which says that it lacks something.
_CERTAIN = 1.0
NOTHING = Ranked(np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass
class Retrieval:
    """A query on its way: its plan, which documents it may find, and their ranking."""

    plan: Plan
    reader: Reader
    options: SearchOptions
    where: Filter
    conditions: Mapping[str, Condition]  # of the tree, by their text
    k: int  # results, with those that are passed over
    total: int = 0  # documents that pass the filter
    depth: int = 0  # maximum number of documents ranked
    ranked: Ranked = NOTHING
    fitted: Fitted | None = None  # the statistics that the ranking was composed with
    evidence: LexicalEvidence | None = None
    #: Of the documents compared, those nearest to the mean of the operands.
    near_whole: Keys = field(default_factory=NOTHING.rows.copy)
    #: The document that a long text describes: NOT does not lower it.
    lifted: frozenset[int] = frozenset()
    #: Negated operands, each with the documents that deny it and the least similarity to it.
    denials: tuple[tuple[int, Keys, np.float32], ...] = ()

    @cached_property
    def exclusion(self) -> Exclusion:
        """Tests documents for the negated operands."""
        options = self.options
        return Exclusion(self.plan.tree, self.reader, kinds=options.kinds, allow=options.allow)

    @property
    def is_strict(self) -> bool:
        """Whether NOT leaves documents out."""
        return self.options.strict_not is not False and self.plan.has_negation

    def keeps(self, keys: Keys) -> Mask:
        """Return which documents NOT does not leave out."""
        return np.isin(keys, [*self.lifted]) | self.exclusion.keeps(keys)

    def similarities(self, keys: Keys) -> Array:
        """Compare documents as the ranking did, words and conditions included."""
        values = self.reader.similarities(self.plan.vectors, keys)
        if self.evidence is not None:
            values = self.evidence.add(keys, values)
        return self._with_denials(keys, self._with_conditions(keys, values))

    def nearest_whole(self, n: int) -> Keys:
        """Return the best documents of the whole query, with what NOT excludes, best first."""
        # The mean of the operands: the text as typed would have to be encoded for this alone.
        mean, keys = self.plan.vectors[: len(self.plan.atoms)].mean(0), self.near_whole
        text = " ".join(atom.words for atom in atoms(self.plan.tree))
        evidence = self._lexical_evidence([operand_terms(text)])
        for rows, scores in evidence.answers if evidence else ():
            keys = np.union1d(keys, rows[np.argsort(-scores)[:n]])
        values = self._compare_whole(mean, keys, evidence)
        return keys[np.argsort(-values, kind="stable")][:n]

    def probes(self) -> list[tuple[Array, Filter]]:
        """Return the vectors whose neighbours are candidates, each with its filter.

        For each clause its conjunction, or its one positive operand. With negated operands also
        that less half their mean, without the documents that will be left out, so that not all
        candidates are near them. Each probe costs a search.
        """
        plan, operands = self.plan, list(atoms(self.plan.tree))
        leaves_out = self.is_strict and self.reader.has_words
        probes = [(plan.plain, self.where)] if plan.is_long and plan.has_negation else []
        for clause, vector in zip(plan.clauses, plan.clause_vectors, strict=True):
            where = self.where
            if clause.conditions:
                conditions = clause_conditions(clause, operands, self.conditions)
                where = replace(where, alternatives=(conditions,))
            if clause.positive or not clause.negated:
                probes.append((vector, where))
            if clause.negated:
                # Where nothing is positive, these are all candidates, and how much a document
                # matches what is negated is measured among them.
                is_less = leaves_out and clause.positive
                lacking = self.exclusion.lacking(clause) if is_less else ()
                away = vector - 0.5 * plan.vectors[list(clause.negated)].mean(0)
                probes.append((away, replace(where, lacking=lacking)))
        different = {(vector.tobytes(), where): (vector, where) for vector, where in probes}
        return list(different.values())

    def rank_candidates(self, near: Sequence[Keys], n: int) -> None:
        """Rank the ``n`` neighbours of each probe, and the best documents by words."""
        keys = np.unique(np.concatenate(near))
        # Of few documents all are found; else these are the best of more than there are.
        size = SHORTLIST if max(map(len, near)) >= n else None
        evidence = self._lexical_evidence(self.exclusion.terms())
        if evidence is not None:
            keys = np.union1d(keys, evidence.best(self.plan, n))
        self._compose(keys, self.reader.similarities(self.plan.vectors, keys), evidence, size)

    def rank_all(self, keys: Keys, values: Array) -> None:
        """Rank all documents: of many only those near a vector or with words, if that is proved.

        The others have lower similarities and no words, and composition is monotone in both.
        """
        plan, evidence = self.plan, self._lexical_evidence(self.exclusion.terms())
        is_monotone = all(c.positive for c in plan.clauses) and not self.conditions
        is_monotone &= all(atom.weight == 1 for atom in atoms(plan.tree)) and not plan.is_long
        if plan.is_composed and is_monotone and self.reader.compares_all and len(keys) > _MANY:
            is_near, limits = np.zeros(len(keys), bool), np.zeros((len(values), 1), np.float32)
            for row, limit in zip(values, limits, strict=True):
                nearest = highest(row, _NEAR)
                is_near[nearest], limit[:] = True, row[nearest].min()
            for answer in evidence.answers if evidence else ():
                is_near[np.searchsorted(keys, answer.rows)] = True
            rows = np.flatnonzero(is_near)
            compared = self._compose(keys[rows], values[:, rows], evidence, SHORTLIST)
            fitted, n = self.fitted, max(self.depth, SHORTLIST)
            if fitted and fitted.is_complete(compared, limits, n):
                self.fitted = replace(fitted, n_documents=len(keys))
                return
        self._compose(keys, values, evidence)

    def _lexical_evidence(self, terms: Iterable[Sequence[str]]) -> LexicalEvidence | None:
        """Search the terms of each vector, if words count."""
        return LexicalEvidence.of(self.reader, terms, self.where) if self.options.hybrid else None

    def _compose(
        self, keys: Keys, values: Array, evidence: LexicalEvidence | None, size: int | None = None
    ) -> Array:
        """Rank documents by their similarities; return these with words and conditions."""
        if self.is_strict and self.options.verdicts:
            near = values[: len(self.plan.atoms)].mean(0)
            self.near_whole = keys[highest(near, LOOKED_AT)] if len(keys) > LOOKED_AT else keys
        if evidence is not None:
            evidence, values = evidence.fit(keys, values)
        values = self._with_conditions(keys, values)
        is_fitted = self.plan.is_composed and len(keys)
        fitted = fit(self.plan.tree, values, size) if is_fitted else None
        scores = np.array(values[0], np.float32)
        if fitted is not None:
            is_certain = self._find_denials(keys, values, fitted, evidence)
            scores = fitted.score(self._with_denials(keys, values.copy()))
            scores[is_certain] += _CERTAIN
        if self.plan.is_long and self.plan.has_negation and len(keys):
            # The document that a long text describes may well mention what is negated: a detail.
            of_text = self._lexical_evidence([operand_terms(self.plan.text)])
            if (row := leader(self._compare_whole(self.plan.plain, keys, of_text))) is not None:
                self.lifted, scores[row] = frozenset([int(keys[row])]), scores.max() + 1
        [rows], [best] = top_k(scores[None], self.depth)
        self.ranked, self.fitted, self.evidence = Ranked(keys[rows], best), fitted, evidence
        return values

    def _find_denials(
        self, keys: Keys, values: Array, fitted: Fitted, evidence: LexicalEvidence | None
    ) -> Mask:
        """Find the documents that deny a negated operand; return which say so themselves."""
        is_certain, self.denials = np.zeros(len(keys), bool), ()
        if evidence is not None and self.is_strict:
            positive = fitted.positive(values)
            for operand in np.flatnonzero(self.plan.is_negated).tolist():
                rows = np.flatnonzero(np.isin(keys, evidence.answers[operand].rows))
                rows = rows[np.argsort(-positive[rows], kind="stable")[:LOOKED_AT]]
                has_denied, says_so = self.exclusion.denials(operand, keys[rows])
                self.denials += ((operand, keys[rows[has_denied]], values[operand].min()),)
                is_certain[rows] |= says_so
        return is_certain

    def _with_denials(self, keys: Keys, values: Array) -> Array:
        """Return similarities as if documents had nothing of an operand that they deny."""
        for operand, denying, least in self.denials:
            values[operand, np.isin(keys, denying)] = least
        return values

    def _compare_whole(self, vector: Array, keys: Keys, evidence: LexicalEvidence | None) -> Array:
        """Return the similarity of documents to a query's one vector, words included."""
        values = self.reader.similarities(vector[None], keys)
        return np.asarray((evidence.fit(keys, values)[1] if evidence else values)[0], np.float32)

    def _with_conditions(self, keys: Keys, values: Array) -> Array:
        """Return similarities with those of conditions: 1 for documents that meet them, else 0."""
        if self.conditions and self.plan.is_composed:
            for row, atom in enumerate(atoms(self.plan.tree)):
                if isinstance(atom, Where):
                    values[row] = self.reader.matching(self.conditions[atom.text], keys)
        return values


def rank(reader: Reader, queries: Sequence[Retrieval], depth: int) -> None:
    """Rank documents for queries, at most ``depth`` of them."""
    single, composed = list[Retrieval](), list[Retrieval]()
    for query in queries:
        query.depth = depth
        (composed if query.plan.is_composed or query.options.hybrid else single).append(query)
    if reader.compares_all or any(query.options.exhaustive for query in queries):
        _scan(reader, queries)
        return
    # Apart: a single-vector query needs few neighbours, a composed one many candidates.
    probes = [(query.plan.vectors[0], query.where) for query in single]
    for query, ranked in zip(single, _nearest(reader, probes, depth), strict=True):
        query.ranked = ranked
    n = max((reader.n_candidates(query.k) for query in composed), default=0)
    groups = [query.probes() for query in composed]
    answers = iter(_nearest(reader, [*chain.from_iterable(groups)], n))
    for query, group in zip(composed, groups, strict=True):
        query.rank_candidates([next(answers).rows for _ in group], n)


def _nearest(reader: Reader, probes: Sequence[tuple[Array, Filter]], n: int) -> list[Ranked]:
    """Search neighbours, those with the same filter in one call."""
    answers = [NOTHING] * len(probes)
    for where, numbers in _groups(where for _, where in probes):
        vectors = np.stack([probes[number][0] for number in numbers])
        for number, answer in zip(numbers, reader.nearest(vectors, n, where), strict=True):
            answers[number] = answer
    return answers


def _scan(reader: Reader, queries: Sequence[Retrieval]) -> None:
    for where, numbers in _groups(query.where for query in queries):
        n_vectors = max(len(queries[number].plan.vectors) for number in numbers)
        n_documents = max(1, reader.count(Filter()))
        size = max(1, _MAX_SCORES // (n_documents * n_vectors))
        for start in range(0, len(numbers), size):
            chosen = [queries[number] for number in numbers[start : start + size]]
            keys, values = reader.scan(np.concatenate([q.plan.vectors for q in chosen]), where)
            ends = np.cumsum([len(query.plan.vectors) for query in chosen])
            for query, rows in zip(chosen, np.split(values, ends[:-1]), strict=True):
                query.rank_all(keys, rows)


def _groups(filters: Iterable[Filter]) -> Iterable[tuple[Filter, list[int]]]:
    """Return each filter once, with its positions."""
    groups: dict[Filter, list[int]] = {}
    for number, where in enumerate(filters):
        groups.setdefault(where, []).append(number)
    return groups.items()
