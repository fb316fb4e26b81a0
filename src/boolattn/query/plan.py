"""The plan of a query: its tree, its operands and their vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from boolattn.budget import check_budget
from boolattn.errors import QueryError
from boolattn.query.clauses import MAX_CLAUSES, Clause, clauses, conjunctions, n_clauses
from boolattn.query.lexicon import unused_cues
from boolattn.query.reading import IS_OFF, NO_PARSER, Reading
from boolattn.query.structure import in_words, operand_signs
from boolattn.query.syntax import MAX_OPERANDS
from boolattn.query.tree import And, Atom, Like, QueryTree, Where, atoms, signed_atoms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.query.parsed_query import Spans

    Vectors = NDArray[np.float32]

#: Words of a long text.
_LONG_TEXT = 12
_QUOTES = '"“„«'


class QueryEncoder(Protocol):
    """What encodes queries."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode whole queries."""

    def encode_operands(self, texts: Sequence[str]) -> Vectors:
        """Encode operands, as queries without an operator."""


@dataclass(frozen=True)
class Plan:
    """What a query asks of an index."""

    tree: QueryTree  # what is scored: one operand where nothing is composed
    atoms: tuple[str, ...]  # the operands' texts, left to right
    spans: tuple[Spans, ...]  # of each operand in the text; empty where a tree was given
    #: One for each operand and, where they are composed, one for each of ``conjunctions``: that of
    #: its operands in words; of a query that is one conjunction, the mean of that and ``plain``,
    #: and likewise of a request. Shape ``(vectors, dim)``.
    vectors: Vectors
    whole: Callable[[], Vectors]  # encodes the whole query, for :attr:`plain`
    is_composed: bool  # whether operands are scored apart; if not, the score is the similarity
    fallback: str  # why operators are not used, or not all words; empty where they are
    is_request: bool  # as in the reading, unless the plan is one vector
    reading: Reading

    @cached_property
    def plain(self) -> Vectors:
        """The vector of the text as typed, or of a tree in words, which few need. ``(dim,)``."""
        return self.whole()

    @property
    def scored(self) -> tuple[int, ...]:
        """Which operands have a vector: conditions have none."""
        return tuple(i for i, a in enumerate(atoms(self.tree)) if not isinstance(a, Where))

    @property
    def is_conjunction(self) -> bool:
        """Whether the query is one conjunction of all its operands."""
        return bool(conjunctions(self.clauses)) and self.clauses[0].positive == self.scored

    @property
    def needs_plain(self) -> bool:
        """Whether vectors or candidates are of the whole query too."""
        is_whole = not self.is_composed or self.is_request or self.is_conjunction
        return is_whole or (self.is_long and self.has_negation)

    @property
    def is_long(self) -> bool:
        """Whether the text may describe one document, of which what is negated is a detail."""
        return len(self.reading.text.split()) >= _LONG_TEXT

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """The alternatives of the tree."""
        return clauses(self.tree)

    @property
    def is_negated(self) -> tuple[bool, ...]:
        """Which operands are negated."""
        return tuple(sign < 0 for sign in operand_signs(self.tree))

    @property
    def clause_vectors(self) -> Vectors:
        """Of each clause that of its positive part, or zeros. Shape ``(clauses, dim)``."""
        numbered = enumerate(conjunctions(self.clauses), start=len(self.atoms))
        rows = {positive: row for row, positive in numbered}
        nothing = np.zeros(self.vectors.shape[1], np.float32)
        operands = [clause.positive for clause in self.clauses]
        return np.stack([self.vectors[rows.get(o, o[0])] if o else nothing for o in operands])

    @cached_property
    def positive_vector(self) -> Vectors:
        """One vector for the positive part. Shape ``(dim,)``."""
        vector: Vectors = self.clause_vectors.mean(0)
        return vector

    @property
    def has_negation(self) -> bool:
        """Whether operands are composed and one is negated."""
        return self.is_composed and any(self.is_negated)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user may not expect: cue words that became no operator, and why."""
        warnings = tuple(self._unused_cues())
        is_chosen = self.fallback in ("", IS_OFF, NO_PARSER)
        if self.reading.is_empty:
            warnings += ("the query contradicts itself: nothing can satisfy it",)
        elif not is_chosen and not warnings and not self.is_request:
            kind = "the text is one operand" if self.is_composed else "searched as one text"
            warnings += (f"{kind}: {self.fallback}",)
        return warnings

    def _unused_cues(self) -> Iterator[str]:
        text = self.reading.text
        # A plan of one vector has no spans; what is between quotes is known all the same.
        known = self.reading.spans if self.reading.is_explicit else self.spans
        spans = known or [[(0, len(text))]]
        reasons: dict[str, list[str]] = {}
        is_condition = [isinstance(atom, Where) for atom in atoms(self.tree)]
        for cue, operand in unused_cues(text, spans, self.is_negated):
            if operand is not None and is_condition[operand]:
                continue  # "between 3 and 5", "not in 2022"
            if self.reading.is_explicit:
                if operand is None or text[spans[operand][0][0]] in _QUOTES:
                    continue
                reason = "in explicit syntax only AND, OR and NOT in capitals are"
            elif self.is_request and operand is None:
                reason = self.fallback
            elif self.fallback and not self.is_request:
                kind = (
                    "text is one operand" if self.is_composed else "query is searched as one text"
                )
                reason = f"{self.fallback}; the {kind}"
            elif operand is None:
                reason = "no operand was found that it negates"
            else:
                reason = f"it was read as part of {self.atoms[operand]!r}"
            reasons.setdefault(reason, []).append(repr(cue.text))
        for reason, words in reasons.items():
            are = "is no operator" if len(words) == 1 else "are no operators"
            yield f"{', '.join(words)} {are} here: {reason}"


def plan_queries(
    readings: Sequence[Reading],
    encoder: QueryEncoder,
    known: Mapping[str, Vectors] | None = None,
) -> list[Plan]:
    """Encode queries: their wordings in one batch, the operands of all in another.

    ``known`` has the vectors of documents that are operands, by id.
    """
    for reading in readings:
        _check_operands(reading)
    encoded: dict[str, Vectors] = {}
    plans = []
    for reading in readings:
        whole = partial(_plain_vector, reading, encoder, known, encoded)
        plans.append(_limited(_unencoded(reading, whole)))
    asked = [plan.reading.wording for plan in plans if plan.needs_plain]
    wordings = list(dict.fromkeys(filter(None, asked)))
    texts = [_operand_texts(p) if p.is_composed or p.is_request else [] for p in plans]
    operands = list(dict.fromkeys(text for part in texts for text in part if text))
    encoded.update(zip(wordings, encoder.encode_queries(wordings), strict=True))
    # As operands: an open gate would cost the whole batch its experts.
    by_text = {"": np.zeros(encoder.dimension, np.float32)}
    by_text.update(zip(operands, encoder.encode_operands(operands), strict=True))
    pairs = zip(plans, texts, strict=True)
    return [replace(plan, vectors=_vectors(plan, part, by_text, known)) for plan, part in pairs]


def _check_operands(reading: Reading) -> None:
    """Refuse a query with too many operands, with those that lists added to it."""
    n_operands = sum(1 for _ in atoms(reading.tree)) if reading.is_composed else 1
    if n_operands > MAX_OPERANDS:
        raise QueryError(f"a query has at most {MAX_OPERANDS} operands, not {n_operands}")
    check_budget(n_operands)


def _unencoded(reading: Reading, whole: Callable[[], Vectors]) -> Plan:
    """Return the plan of a reading, before anything is encoded."""
    tree, is_composed = reading.tree, type(reading.tree) not in (Atom, Like, Where)
    plan = Plan(
        tree=tree,
        atoms=tuple(atom.name for atom in atoms(tree)),
        spans=reading.spans,
        vectors=np.empty((0, 0), np.float32),
        whole=whole,
        is_composed=is_composed,
        fallback=reading.fallback,
        is_request=reading.is_request,
        reading=reading,
    )
    if not reading.is_composed:
        return _single_vector(plan, reading.fallback)
    keeps_spans = is_composed or reading.is_request or reading.is_explicit
    return plan if keeps_spans else replace(plan, spans=())


def _limited(plan: Plan) -> Plan:
    """Return the plan, or one vector where its tree has too many alternatives."""
    # A list joined by OR may be long: each operand is an alternative.
    most = max(MAX_CLAUSES, len(plan.atoms))
    if not plan.is_composed or (n := n_clauses(plan.tree)) <= most:
        return plan
    return _single_vector(plan, f"it has {n} alternatives, more than {most}")


def _single_vector(plan: Plan, reason: str) -> Plan:
    """Return a plan that searches the text as one vector, and says why."""
    text = plan.reading.wording or " ".join(plan.atoms)
    return replace(
        plan,
        tree=Atom(text),
        atoms=(text,),
        spans=(),
        is_composed=False,
        is_request=False,
        fallback=reason,
    )


def _vectors(
    plan: Plan,
    texts: Sequence[str],
    encoded: Mapping[str, Vectors],
    known: Mapping[str, Vectors] | None,
) -> Vectors:
    """Return the vectors of a plan: of its operands and conjunctions, or of the whole query.

    A conjunction is its operands in words: the text as typed would bring in what it negates.
    Where it is the whole query, the text as typed counts as much, because either wording may
    be the one that the encoder knows better; so it does where the query is a request. A
    document in it counts as one operand.
    """
    if not texts:
        return plan.plain[None]
    vectors = np.stack([encoded[text] for text in texts])
    _add_documents(vectors, plan, known)
    if plan.is_conjunction:
        vectors[-1] = (vectors[-1] + plan.plain) / 2
    elif plan.is_request and plan.scored == (0,):
        vectors[0] = (vectors[0] + plan.plain) / 2
    return vectors


def _plain_vector(
    reading: Reading,
    encoder: QueryEncoder,
    known: Mapping[str, Vectors] | None,
    encoded: dict[str, Vectors],
) -> Vectors:
    """Return one vector for a query: of its words, and of the documents that are operands."""
    if (words := reading.wording) and words not in encoded:
        [encoded[words]] = encoder.encode_queries([words])
    signed = signed_atoms(reading.tree)
    likes = [atom for atom, sign in signed if isinstance(atom, Like) and sign > 0]
    vectors = [encoded[words]] if words else []
    vectors += [_document(atom, known) for atom in likes]
    if len(vectors) == 1:
        return vectors[0]
    nothing = np.zeros(encoder.dimension, np.float32)
    return np.mean(vectors, axis=0, dtype=np.float32) if vectors else nothing


def _operand_texts(plan: Plan) -> list[str]:
    """Return the words of each of a plan's vectors; empty where it has none."""
    named = [atom.words for atom in atoms(plan.tree)]
    joined = ([Atom(named[row]) for row in rows] for rows in conjunctions(plan.clauses))
    return [*named, *(in_words(And(tuple(operands))) for operands in joined)]


def _add_documents(vectors: Vectors, plan: Plan, known: Mapping[str, Vectors] | None) -> None:
    """Fill in the vectors of documents that are operands, and of conjunctions with them."""
    likes = {i: atom for i, atom in enumerate(atoms(plan.tree)) if isinstance(atom, Like)}
    for row, atom in likes.items():
        vectors[row] = _document(atom, known)
    for row, operands in enumerate(conjunctions(plan.clauses), start=len(plan.atoms)):
        if documents := [operand for operand in operands if operand in likes]:
            total = (len(operands) - len(documents)) * vectors[row] + vectors[documents].sum(0)
            vectors[row] = total / len(operands)


def _document(atom: Like, known: Mapping[str, Vectors] | None) -> Vectors:
    if known is None or atom.text not in known:
        raise QueryError(f"{atom.name}: no document with this id is known here")
    return known[atom.text]
