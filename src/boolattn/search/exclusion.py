"""Exclusion: which documents a NOT leaves out, by words and by kinds, and why.

Positive operands count as true, so only negated ones can exclude a document: in "(A NOT B) OR C" B
alone excludes nothing. A document is of a negated operand if it asserts the operand's words, or
names things of the kind that these words name: cream is dairy. What the document itself negates
does not count: an advertisement that says "no driving licence needed" is not one for people with a
driving licence.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np

from boolattn.kinds.lexicon import LAND, VALUE, is_tag, related
from boolattn.query.tree import Clause, QueryTree, clauses, conjunctions, signed_atoms, truth
from boolattn.stores import analysis
from boolattn.stores.analysis import LACKS, asserted_terms, operand_terms, terms_of, value_tags
from boolattn.stores.base import Claim, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.base import Keys, Mask

    Groups = tuple[tuple[str, ...], ...]

#: Classes whose kinds exclude, but add no evidence: parts of bodies, and substances. In the life
#: sciences most documents name some of them.
_NO_EVIDENCE = frozenset((5, 24))
#: The class of food, and the least share of a corpus' things of a kind that are food for all to be.
_FOOD, _IS_FOOD = 10, 0.2
#: The class of places; and of what has the word too: languages, groups and persons.
_PLACE, _PLACES = 12, frozenset((7, 12, 14, 15))
#: "jobs in London", "French wines".
_OF_A_PLACE = re.compile(r"\w+(\s+(?:around|at|from|in|near|of))?\s+\w+", re.IGNORECASE)


class Exclusion:
    """Tests documents for a query's negated operands.

    An operand has groups of terms, and a document that asserts every term of a group is excluded.
    Words that a positive operand has too do not count: in "moths of Borneo NOT moths of Sumatra"
    Sumatra distinguishes the second operand. What a positive operand names is of no negated kind:
    "burgers without meat" are not all left out. Nor are the words of ``allow``, whatever the
    lexicon says.
    """

    def __init__(
        self, tree: QueryTree, reader: Reader, *, kinds: bool = True, allow: Sequence[str] = ()
    ) -> None:
        self._tree, self._reader = tree, reader
        self._kinds = reader.settings.known_kinds if kinds else None
        self._allowed_words = frozenset(word.casefold() for word in allow)
        # Their words, and whether they are positive.
        self._operands = [(atom.words, sign > 0) for atom, sign in signed_atoms(tree)]
        self._positive = [words for words, is_positive in self._operands if is_positive]

    def terms(self) -> Iterator[list[str]]:
        """Yield the words and kinds of each vector of a plan: of operands, then of conjunctions."""
        pairs = zip(self._operands, self.tags(), strict=True)
        operands = [
            ([*operand_terms(words), *tags, *value_tags(words)], positive)
            for (words, positive), tags in pairs
        ]
        shared = frozenset().union(*(terms for terms, is_positive in operands if is_positive))
        for terms, is_positive in operands:
            yield terms if is_positive else [term for term in terms if term not in shared]
        for rows in conjunctions(clauses(self._tree)):
            yield list(dict.fromkeys(term for row in rows for term in operands[row][0]))

    def tags(self) -> list[list[str]]:
        """Return, for each operand, the tags of the kinds that its phrases name.

        With those of values in a place that it names: Lyon is one in France.
        """
        return [
            [
                term
                for phrase, senses in self._phrases(words)
                for tag in self._sense(senses)
                if self._class_of(tag) not in _NO_EVIDENCE
                for term in (tag, related(tag), *self._place_tags(phrase, tag))
            ]
            for words, _ in self._operands
        ]

    def _phrases(self, words: str) -> Iterable[tuple[str, list[tuple[str, ...]]]]:
        return self._kinds.phrases(words) if self._kinds else [(words, [])]

    def _place_tags(self, phrase: str, tag: str) -> list[str]:
        """Return the tag of values in a place, once for each word of its name; of others none."""
        is_name = self._kinds is not None and self._kinds.is_name(phrase)
        is_place = is_name and self._class_of(tag) in LAND
        return [f"{VALUE}{tag}"] * len(operand_terms(phrase)) if is_place else []

    def _class_of(self, tag: str) -> int:
        return self._kinds.class_of(tag) if self._kinds else -1

    @cached_property
    def _asked_for(self) -> frozenset[str]:
        """The words of the positive operands."""
        return frozenset().union(*map(operand_terms, self._positive))

    @cached_property
    def _asked_names(self) -> frozenset[frozenset[str]]:
        """The words of each thing of a negated kind that a positive operand names."""
        negated = [tag for groups in self._groups for group in groups or () for tag in group]
        if self._kinds is None:
            return frozenset()
        names = (self._kinds.witnesses(words, negated) for words in self._positive)
        return frozenset(frozenset(terms_of(name)) for name in chain.from_iterable(names))

    @cached_property
    def _groups(self) -> list[Groups | None]:
        """For each operand its groups; ``None`` for a positive one."""
        return [None if is_p else self._alternatives(words) for words, is_p in self._operands]

    def _alternatives(self, words: str) -> Groups:
        """Return the groups of an operand: its words, and its kind where it is one phrase.

        Of several phrases a kind is doubtful: a text that names a leg somewhere, and any muscle
        somewhere, need not be about leg muscles. Of "no jobs in London" the place alone counts:
        jobs are what is searched, and an advertisement need not say that it is one.
        """
        wanted = frozenset(operand_terms(words)) - self._asked_for
        if lacks := frozenset(operand_terms(words)) - asserted_terms(words):
            others = sorted(wanted - lacks - {"free", "non"})
            return ((*(f"{LACKS}{term}" for term in sorted(lacks)), *others),)
        pairs = (
            (tuple(term for term in operand_terms(phrase) if term in wanted), senses)
            for phrase, senses in self._phrases(words)
        )
        phrases = [(terms, senses) for terms, senses in pairs if terms]
        unasked = [word for word in words.split() if self._asked_for.isdisjoint(terms_of(word))]
        values = self._values(" ".join(unasked)) if self._reader.has_words else ()
        if (match := _OF_A_PLACE.fullmatch(words)) and not self._asked_for and not values:
            classes = [{self._class_of(tags[0]) for tags in senses} for _, senses in phrases]
            # "French" is a language too; "London" in "London buses" is not.
            are_places = [
                _PLACE in n <= _PLACES and bool(match[1] or n != {_PLACE}) for n in classes
            ]
            phrases = [*compress(phrases, are_places)] or phrases
        if len(phrases) > 1:
            return (*values, tuple(dict.fromkeys(term for terms, _ in phrases for term in terms)))
        tags = ((tag,) for _, senses in phrases for tag in self._sense(senses))
        return (*values, *(terms for terms, _ in phrases), *tags)

    def _values(self, words: str) -> Groups:
        """Return the group of the values that an operand is made of, if it is.

        The last word may name the things of the collection: "sweet wines". A place is none.
        """
        tags, chosen, covered = value_tags(words), list[str](), set[str]()
        for tag, number in [*zip(tags, self._reader.frequencies(tags), strict=True)][::-1]:
            if number and not covered.issuperset(tag[1:].split()):
                chosen.append(tag)
                covered.update(tag[1:].split())
        names = [tag[1:] for tag in tags if " " not in tag]
        others = [name for name in names if name not in covered]
        senses = (
            tags[0] for word in words.split()[-1:] for _, s in self._phrases(word) for tags in s
        )
        is_of_things = others == names[-1:] and len(words.split()) == len(names)
        is_of_things &= _PLACE not in map(self._class_of, senses)
        return (tuple(chosen),) if chosen and (is_of_things or not others) else ()

    @cached_property
    def _positive_classes(self) -> Counter[int]:
        """The classes of things that the positive operands name, and how many may be of each."""
        phrases = (phrase for words in self._positive for phrase in self._phrases(words))
        return Counter(self._class_of(tags[0]) for _, senses in phrases for tags in senses)

    def _sense(self, senses: list[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the sense that fits the positive operands best, then what the corpus has most of.

        Beside dishes, herbs are food: as plants they would be most vegetables. Where the corpus has
        it as food, a thing that is food too is not meant as a plant.
        """
        if len(senses) < 2 or not self._reader.has_words:
            return senses[0] if senses else ()
        counts = [max(self._reader.frequencies(tags)) for tags in senses]
        classes = [self._class_of(tags[0]) for tags in senses]
        pairs = list(zip(classes, counts, strict=True))
        votes = [self._positive_classes[name] if n else 0 for name, n in pairs]
        best = max(range(len(senses)), key=lambda row: (votes[row], counts[row]))
        for row, (name, n) in enumerate(pairs):
            if name == _FOOD and votes[row] == votes[best] and n >= _IS_FOOD * counts[best]:
                return senses[row]
        return senses[best]

    def lacking(self, clause: Clause) -> Groups:
        """Return the groups of terms that a document of a clause must not assert."""
        return tuple(group for operand in clause.negated for group in self._groups[operand] or ())

    def keeps(self, keys: Keys) -> Mask:
        """Return which documents are not excluded."""
        is_kept = self._allowed(keys, Claim.ASSERTED)
        if (self._allowed_words or self._asked_names) and not is_kept.all():
            rows = np.flatnonzero(~is_kept)
            documents = self._reader.documents(keys[rows])
            reasons = zip(documents, self.why(keys[rows], documents), strict=True)
            is_kept[rows] = [document is not None and not reason for document, reason in reasons]
        return is_kept

    def denials(self, operand: int, keys: Keys) -> Mask:
        """Return which documents with an operand's words are kept, and which say they lack one."""
        has_words, says_so = masks = np.zeros((2, len(keys)), bool)
        most = Claim.ASSERTED if self._allowed_words or self._asked_names else Claim.DENIED
        for group in self._groups[operand] or ():
            claims = self._reader.claims(group, keys)
            has_words |= (claims != Claim.ABSENT) & (claims <= most)
            rows = np.flatnonzero(claims == Claim.DENIED)
            for term in group if len(rows) else ():
                lacks = self._reader.claims((f"{LACKS}{term}",), keys[rows])
                says_so[rows] |= lacks == Claim.ASSERTED
        rows = np.flatnonzero(has_words)
        masks[:, rows] &= self.keeps(keys[rows]) & ~self._allowed(keys[rows], Claim.DENIED)
        return masks

    def why(self, keys: Keys, documents: Sequence[Document | None]) -> list[tuple[str, str] | None]:
        """Say why documents are left out, and which word of each is of a negated kind."""
        reasons: list[tuple[str, str] | None] = [None] * len(keys)
        for (words, _), groups in zip(self._operands, self._groups, strict=True):
            for group in groups or ():
                is_asserted = self._reader.claims(group, keys) == Claim.ASSERTED
                for row in np.flatnonzero(is_asserted).tolist():
                    if (document := documents[row]) is not None:
                        reasons[row] = reasons[row] or self._reason(words, group, document)
        return reasons

    def _reason(
        self, words: str, group: tuple[str, ...], document: Document
    ) -> tuple[str, str] | None:
        if group[0].startswith(LACKS):
            return f"it is {words}", ""
        if not (tags := [term for term in group if is_tag(term) and not term.startswith(VALUE)]):
            terms = frozenset(word for term in group for word in term.lstrip(VALUE).split())
            spans = analysis.matched_words(words, terms, 0, len(words))
            named = dict.fromkeys(repr(words[start:end]) for start, end in spans)
            return f"it mentions {' and '.join(named)}", ""
        phrases = self._phrases(words)
        kind = next((name for name, senses in phrases if {*sum(senses, ())} & {*tags}), words)
        text = analysis.indexed_text(document)
        negated = analysis.negated_spans(text)
        for name in self._kinds.witnesses(text, tags, negated) if self._kinds else ():
            is_asked_for = frozenset(terms_of(name)) in self._asked_names
            if not is_asked_for and name.casefold() not in self._allowed_words:
                is_itself = name.casefold() == kind.casefold()
                return f"it mentions {name!r}" if is_itself else f"{name} is {kind}", name
        return None

    def _allowed(self, keys: Keys, least: Claim) -> Mask:
        """Return which documents satisfy the tree if claims from ``least`` on count as true."""
        truths = []
        for groups in self._groups:
            claims = [self._reader.claims(terms, keys) >= least for terms in groups or ()]
            is_true = np.logical_or.reduce([np.zeros(len(keys), bool), *claims])
            truths.append(np.ones(len(keys)) if groups is None else is_true.astype(float))
        return np.asarray(truth(self._tree, truths), bool)
