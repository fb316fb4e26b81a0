"""The plan of a query: what was read, its operands and their vectors; the budget of a search."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from boolattn.errors import QueryError
from boolattn.query.syntax import MAX_OPERANDS
from boolattn.query.tokens import spell_out, unused_cues
from boolattn.query.tree import (
    MAX_CLAUSES,
    And,
    Atom,
    Clause,
    Like,
    QueryTree,
    Where,
    atoms,
    clauses,
    conjunctions,
    in_words,
    is_contradiction,
    n_clauses,
    signed_atoms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.query.parsed_query import Spans

    Vectors = NDArray[np.float32]

#: Reasons for one vector that a user chose.
IS_OFF, NO_PARSER = "composition is off", "the model has no query parser"
#: Words of a long text.
_LONG_TEXT = 12
_NONE = np.empty((0, 0), np.float32)
_QUOTES = '"“„«'
#: Most operands of a query, and whether to stop.
_BUDGET: ContextVar[tuple[int, Callable[[], bool]] | None] = ContextVar("budget", default=None)


class StoppedError(Exception):
    """Nobody waits for the result of a search any more."""


class _Encoder(Protocol):
    @property
    def dimension(self) -> int: ...
    def encode_queries(self, texts: Sequence[str]) -> Vectors: ...
    def encode_operands(self, texts: Sequence[str]) -> Vectors: ...


@dataclass(frozen=True)
class Plan:
    """A query as it was read, and what it asks of an index."""

    text: str  # as it was typed
    wording: str  # what the whole-query vector is of: the text, or a tree in words
    tree: QueryTree  # what is scored: one operand where nothing is composed
    parsed: QueryTree  # also where it is not used; it has all conditions and documents
    spans: tuple[Spans, ...] = ()  # of each operand in the text, where they are known
    confidence: float = 1.0  # of the parser; 1 for a tree
    fallback: str = ""  # why operators are not used, or not all words; empty where they are
    is_explicit: bool = False  # whether the text is in explicit syntax
    is_request: bool = False  # whether the text asks for one thing: only words that name it count
    notes: tuple[str, ...] = ()  # words that were corrected, numbers that were read as conditions
    #: One for each operand and, where they are composed, one for each of ``conjunctions``: that of
    #: its operands in words; of a query that is one conjunction, the mean of that and ``plain``,
    #: and likewise of a request. Shape ``(vectors, dim)``.
    vectors: Vectors = field(default_factory=lambda: _NONE, compare=False)
    #: The vector of the text as typed, or of a tree in words; zeros unless needed. ``(dim,)``.
    plain: Vectors = field(default_factory=lambda: _NONE, compare=False)

    @property
    def is_composed(self) -> bool:
        """Whether operands are scored apart; if not, the score is the similarity."""
        return type(self.tree) not in (Atom, Like, Where)

    @cached_property
    def atoms(self) -> tuple[str, ...]:
        """The operands' texts, left to right."""
        return tuple(atom.name for atom in atoms(self.tree))

    @property
    def documents(self) -> list[str]:
        """Ids of the documents that are operands."""
        return list(dict.fromkeys(a.text for a in atoms(self.parsed) if isinstance(a, Like)))

    @cached_property
    def is_empty(self) -> bool:
        """Whether no document can satisfy it."""
        return is_contradiction(self.tree)

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
        return len(self.text.split()) >= _LONG_TEXT

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """The alternatives of the tree."""
        return clauses(self.tree)

    @property
    def is_negated(self) -> tuple[bool, ...]:
        """Which operands are negated."""
        return tuple(sign < 0 for _, sign in signed_atoms(self.tree))

    @cached_property
    def clause_vectors(self) -> Vectors:
        """Of each clause that of its positive part, or zeros. Shape ``(clauses, dim)``."""
        numbered = enumerate(conjunctions(self.clauses), start=len(self.atoms))
        rows = {positive: row for row, positive in numbered}
        nothing = np.zeros(self.vectors.shape[1], np.float32)
        operands = [clause.positive for clause in self.clauses]
        return np.stack([self.vectors[rows.get(o, o[0])] if o else nothing for o in operands])

    @property
    def has_negation(self) -> bool:
        """Whether operands are composed and one is negated."""
        return self.is_composed and any(self.is_negated)

    @property
    def operand_spans(self) -> tuple[Spans, ...]:
        """The spans of the operands; none for a text that was not taken apart."""
        is_parsed = self.is_composed or self.is_request or self.is_explicit
        return self.spans if is_parsed and len(self.spans) == len(self.atoms) else ()

    def as_one_vector(self, reason: str) -> Plan:
        """Return a plan that searches the text as one vector, and says why."""
        text = self.wording or " ".join(self.atoms)
        spans = self.spans if self.is_explicit else ()
        return replace(self, tree=Atom(text), spans=spans, is_request=False, fallback=reason)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user may not expect: cue words that became no operator, and why."""
        warnings = tuple(self._unused_cues())
        if self.is_empty:
            warnings += ("the query contradicts itself: nothing can satisfy it",)
        elif not (self.fallback in ("", IS_OFF, NO_PARSER) or warnings or self.is_request):
            kind = "the text is one operand" if self.is_composed else "searched as one text"
            warnings += (f"{kind}: {self.fallback}",)
        return warnings

    def _unused_cues(self) -> Iterator[str]:
        text = self.text
        spans = self.spans or [[(0, len(text))]]
        reasons: dict[str, list[str]] = {}
        # The spans of explicit syntax are kept where the query is searched as one vector.
        operands = atoms(self.parsed if self.is_explicit else self.tree)
        is_condition = [isinstance(atom, Where) for atom in operands]
        unused = unused_cues(text, spans, self.is_negated)
        cancels = [operand for _, operand in unused].count(None) == 2 and not self.is_request
        for cue, operand in unused:
            if cancels if operand is None else is_condition[operand]:
                continue  # "between 3 and 5", "not in 2022"
            if self.is_explicit:
                if operand is None or text[spans[operand][0][0]] in _QUOTES:
                    continue
                reason = "in explicit syntax only AND, OR and NOT in capitals are"
            elif self.is_request and operand is None:
                reason = self.fallback
            elif self.fallback and not self.is_request:
                kind = "is one operand" if self.is_composed else "is searched as one text"
                reason = f"{self.fallback}; the query {kind}"
            elif operand is None:
                reason = "no operand was found that it negates"
            else:
                reason = f"it was read as part of {self.atoms[operand]!r}"
            reasons.setdefault(reason, []).append(repr(cue.text))
        for reason, words in reasons.items():
            are = "is no operator" if len(words) == 1 else "are no operators"
            yield f"{', '.join(words)} {are} here: {reason}"


@contextmanager
def limited(max_operands: int, is_over: Callable[[], bool]) -> Iterator[None]:
    """Limit the searches of this thread: their operands, and until nobody waits for them."""
    token = _BUDGET.set((max_operands, is_over))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def check_budget(n_operands: int = 0) -> None:
    """Stop a search that nobody waits for; refuse a query with too many operands."""
    if (budget := _BUDGET.get()) is None:
        return
    max_operands, is_over = budget
    if is_over():
        raise StoppedError
    if n_operands > max_operands:
        raise QueryError(
            f"the query has {n_operands} operands, and with so many results at most "
            f"{max_operands} are searched; ask for fewer of either"
        )


def plan_queries(
    readings: Sequence[Plan], encoder: _Encoder, known: Mapping[str, Vectors] | None = None
) -> list[Plan]:
    """Encode queries that were read: their wordings in one batch, the operands of all in another.

    ``known`` has the vectors of documents that are operands, by id.
    """
    plans = []
    for reading in readings:
        if (n_operands := len(reading.atoms)) > MAX_OPERANDS:
            raise QueryError(f"a query has at most {MAX_OPERANDS} operands, not {n_operands}")
        check_budget(n_operands)
        # A list joined by OR may be long: each operand is an alternative.
        most = max(MAX_CLAUSES, n_operands)
        if reading.is_composed and (n := n_clauses(reading.tree)) > most:
            reading = reading.as_one_vector(f"it has {n} alternatives, more than {most}")
        plans.append(reading)
    wordings = [plan.wording if plan.needs_plain else "" for plan in plans]
    texts = [_operand_texts(p) if p.is_composed or p.is_request else [] for p in plans]
    by_wording = _encoded(encoder.encode_queries, wordings, encoder.dimension)
    # As operands: an open gate would cost the whole batch its experts.
    by_operand = _encoded(encoder.encode_operands, chain(*texts), encoder.dimension)
    return [
        _with_vectors(plan, by_wording[wording], [by_operand[text] for text in part], known or {})
        for plan, wording, part in zip(plans, wordings, texts, strict=True)
    ]


def _operand_texts(plan: Plan) -> list[str]:
    """Return the words of each of a plan's vectors; empty where it has none."""
    named = [atom.words for atom in atoms(plan.tree)]
    joined = ([Atom(named[row]) for row in rows] for rows in conjunctions(plan.clauses))
    return [*named, *(in_words(And(tuple(operands))) for operands in joined)]


def _encoded(
    encode: Callable[[Sequence[str]], Vectors], texts: Iterable[str], dimension: int
) -> dict[str, Vectors]:
    """Encode different texts; no text has zeros."""
    different = list(dict.fromkeys(filter(None, texts)))
    vectors = zip(different, encode([*map(spell_out, different)]), strict=True)
    return {"": np.zeros(dimension, np.float32), **dict(vectors)}


def _with_vectors(
    plan: Plan, whole: Vectors, operands: Sequence[Vectors], known: Mapping[str, Vectors]
) -> Plan:
    """Return a plan with its vectors: of its operands and conjunctions, or of the whole query.

    A conjunction is its operands in words: the text as typed would bring in what it negates.
    Where it is the whole query, the text as typed counts as much, because either wording may
    be the one that the encoder knows better; so it does where the query is a request. A
    document in it counts as one operand.
    """
    signed = signed_atoms(plan.parsed)
    likes = [known[a.text] for a, sign in signed if isinstance(a, Like) and sign > 0]
    if likes:
        whole = np.mean([whole, *likes] if plan.wording else likes, axis=0, dtype=np.float32)
    if not operands:
        return replace(plan, vectors=whole[None], plain=whole)
    vectors = np.stack(operands)
    documents = {i: atom for i, atom in enumerate(atoms(plan.tree)) if isinstance(atom, Like)}
    for row, atom in documents.items():
        vectors[row] = known[atom.text]
    for row, joined in enumerate(conjunctions(plan.clauses), start=len(plan.atoms)):
        if rows := [operand for operand in joined if operand in documents]:
            total = (len(joined) - len(rows)) * vectors[row] + vectors[rows].sum(0)
            vectors[row] = total / len(joined)
    if plan.is_conjunction:
        vectors[-1] = (vectors[-1] + whole) / 2
    elif plan.is_request and plan.scored == (0,):
        vectors[0] = (vectors[0] + whole) / 2
    return replace(plan, vectors=vectors, plain=whole)
