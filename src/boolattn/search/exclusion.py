"""Exclusion: which documents a NOT leaves out, by words and by kinds.

Positive operands count as true, so only negated ones can exclude a document: in "(A NOT B) OR C"
B alone excludes nothing. A document is of a negated operand if it asserts the operand's words, or
names things of the kind that these words name: cream is dairy. What the document itself negates
does not count: an advertisement that says "no driving licence needed" is not one for people with a
driving licence.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from itertools import compress, product
from typing import TYPE_CHECKING

import numpy as np

from boolattn.kinds.lexicon import is_tag, related
from boolattn.query.structure import operand_signs, truth
from boolattn.query.tree import atoms
from boolattn.stores.analysis import indexed_text, matched_words, operand_terms
from boolattn.stores.base import Claim

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from boolattn.data.records import Document
    from boolattn.query.clauses import Clause
    from boolattn.query.tree import QueryTree
    from boolattn.stores.base import Keys, Mask, Reader

    Groups = tuple[tuple[str, ...], ...]

#: Classes whose kinds exclude, but add no evidence: parts of bodies, and substances. In the life
#: sciences most documents name some of them.
_NO_EVIDENCE = frozenset((5, 24))
#: The class of food, and the least share of a corpus' things of a kind that are food for all to be.
_FOOD, _IS_FOOD = 10, 0.2
#: Maximum number of alternatives of an operand.
_MAX_GROUPS = 16


class Exclusion:
    """Tests documents for a query's negated operands.

    An operand has groups of terms, and a document that asserts every term of a group is excluded.
    Words that a positive operand has too do not count: in "moths of Borneo NOT moths of Sumatra"
    Sumatra distinguishes the second operand.

    Args:
        tree: The query.
        reader: The store.
        kinds: Whether kinds of things count.
        allow: Words that name nothing of a negated kind, whatever the lexicon says.
    """

    def __init__(
        self, tree: QueryTree, reader: Reader, *, kinds: bool = True, allow: Sequence[str] = ()
    ) -> None:
        self._tree, self._reader = tree, reader
        self._kinds = reader.settings.known_kinds if kinds else None
        self._allowed_words = frozenset(word.casefold() for word in allow)

    @cached_property
    def _groups(self) -> list[Groups | None]:
        """For each operand its groups; ``None`` for a positive one."""
        operands = self._operands
        is_positive = [sign > 0 for sign in operand_signs(self._tree)]
        shared = frozenset().union(*map(operand_terms, compress(operands, is_positive)))
        return [
            None if positive else self._alternatives(words, shared)
            for words, positive in zip(operands, is_positive, strict=True)
        ]

    def _alternatives(self, words: str, shared: Set[str]) -> Groups:
        """Return the groups of an operand: each of its phrases by its words or by its kind."""
        choices: list[list[tuple[str, ...]]] = []
        wanted = frozenset(operand_terms(words)) - shared
        for phrase, senses in self._kinds.phrases(words) if self._kinds else [(words, [])]:
            if terms := tuple(term for term in operand_terms(phrase) if term in wanted):
                choices.append([terms, *((tag,) for tag in self._sense(senses))])
        groups = [sum(chosen, ()) for chosen in product(*choices)] if choices else []
        return tuple(groups[:_MAX_GROUPS])

    @property
    def _operands(self) -> list[str]:
        return [atom.words for atom in atoms(self._tree)]

    def tags(self) -> list[list[str]]:
        """Return, for each operand, the tags of the kinds that its phrases name."""
        if self._kinds is None:
            return [[] for _ in self._operands]
        return [
            [
                term
                for _, senses in self._kinds.phrases(words)
                for tag in self._sense(senses)
                if self._kinds.class_of(tag) not in _NO_EVIDENCE
                for term in (tag, related(tag))
            ]
            for words in self._operands
        ]

    @cached_property
    def _positive_classes(self) -> Counter[int]:
        """The classes of things that the positive operands name, and how many may be of each."""
        pairs = zip(self._operands, operand_signs(self._tree), strict=True)
        return Counter(
            self._kinds.class_of(tags[0])
            for words, sign in pairs
            if sign > 0 and self._kinds
            for _, senses in self._kinds.phrases(words)
            for tags in senses
        )

    def _sense(self, senses: list[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the sense that fits the positive operands best, then what the corpus has most of.

        Beside dishes, herbs are food: as plants they would be most vegetables. Where the corpus has
        it as food, a thing that is food too is not meant as a plant.
        """
        if len(senses) < 2 or not self._reader.has_words or self._kinds is None:
            return senses[0] if senses else ()
        counts = [max(self._reader.frequencies(tags)) for tags in senses]
        classes = [self._kinds.class_of(tags[0]) for tags in senses]
        votes = [
            self._positive_classes[name] if n else 0
            for name, n in zip(classes, counts, strict=True)
        ]
        best = max(range(len(senses)), key=lambda row: (votes[row], counts[row], -row))
        for row, (name, n) in enumerate(zip(classes, counts, strict=True)):
            if name == _FOOD and votes[row] == votes[best] and n >= _IS_FOOD * counts[best]:
                return senses[row]
        return senses[best]

    def lacking(self, clause: Clause) -> Groups:
        """Return the groups of terms that a document of a clause must not assert."""
        return tuple(group for operand in clause.negated for group in self._groups[operand] or ())

    def keeps(self, keys: Keys) -> Mask:
        """Return which documents are not excluded."""
        is_kept = self._allowed(keys, Claim.ASSERTED)
        if self._allowed_words and not is_kept.all():
            rows = np.flatnonzero(~is_kept)
            documents = self._reader.documents(keys[rows])
            reasons = zip(documents, self.why(keys[rows], documents), strict=True)
            is_kept[rows] = [document is not None and not reason for document, reason in reasons]
        return is_kept

    def denies(self, keys: Keys) -> Mask:
        """Return which documents are kept only because they negate the words themselves."""
        return self.keeps(keys) & ~self._allowed(keys, Claim.DENIED)

    def why(self, keys: Keys, documents: Sequence[Document | None]) -> list[tuple[str, str] | None]:
        """Say why documents are left out, and which word of each is of a negated kind."""
        reasons: dict[int, tuple[str, str]] = {}
        for words, groups in zip(self._operands, self._groups, strict=True):
            for group in groups or ():
                is_asserted = self._reader.claims(group, keys) == Claim.ASSERTED
                for row in np.flatnonzero(is_asserted).tolist():
                    document = documents[row]
                    if row in reasons or document is None:
                        continue
                    if reason := self._reason(words, group, document):
                        reasons[row] = reason
        return [reasons.get(row) for row in range(len(keys))]

    def _reason(
        self, words: str, group: tuple[str, ...], document: Document
    ) -> tuple[str, str] | None:
        """Say why a document that asserts a group of an operand's terms is left out."""
        if not (tags := [term for term in group if is_tag(term)]):
            spans = matched_words(words, frozenset(group), 0, len(words))
            named = dict.fromkeys(repr(words[start:end]) for start, end in spans)
            return f"it mentions {' and '.join(named)}", ""
        for name in self._kinds.witnesses(indexed_text(document), tags) if self._kinds else ():
            if name.casefold() not in self._allowed_words:
                return f"{name} is {words}", name
        return None

    def _allowed(self, keys: Keys, least: Claim) -> Mask:
        """Return which documents satisfy the tree if claims from ``least`` on count as true."""
        truths = []
        for groups in self._groups:
            claims = [self._reader.claims(terms, keys) >= least for terms in groups or ()]
            is_true = np.logical_or.reduce([np.zeros(len(keys), bool), *claims])
            truths.append(np.ones(len(keys)) if groups is None else is_true.astype(float))
        return np.asarray(truth(self._tree, truths), bool)
