"""A query as a tree of operands: what it means over sets of documents, its words, its alternatives.

``Not`` restricts the parts beside it: "A and B but not C" is ``And((A, B, Not(C)))``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, count, product
from typing import Any, NamedTuple

from boolattn.errors import QueryError

#: A tree of more alternatives, and more than it has operands, is not composed.
MAX_CLAUSES = 16
#: A tree with more distinct operands is not checked for contradictions: 2^n cases.
_MAX_CHECKED = 12


class Operator(StrEnum):
    """A Boolean operator; its value is its name in settings, labels and files.

    >>> Operator("not") is Operator.NOT
    True
    """

    AND = "and"
    OR = "or"
    NOT = "not"


#: AND, OR, NOT: the operator axis of labels, gates and biases.
OPERATORS: tuple[Operator, ...] = tuple(Operator)

#: Words that stand for all documents, and what a parser leaves beside them: "everything that".
EVERYTHING = "anything|everything|something|nothing|all|things|stuff"
_EVERYTHING = re.compile(rf"(?:{EVERYTHING})(?:\s+(?:that|which|is|are|without))*", re.IGNORECASE)


@dataclass(frozen=True)
class Atom:
    """One operand: a phrase, and how much it counts beside the others."""

    text: str
    weight: float = 1.0

    @property
    def name(self) -> str:
        """What is shown of it."""
        return self.text

    @property
    def words(self) -> str:
        """Its words; other kinds of operands have none."""
        return self.text if type(self) is Atom else ""

    def __repr__(self) -> str:
        suffix = "" if self.weight == 1 else f", weight={self.weight!r}"
        return f"{type(self).__name__}(text={self.text!r}{suffix})"


@dataclass(frozen=True, repr=False)
class Like(Atom):
    """A document as an operand; the text is its id."""

    @property
    def name(self) -> str:
        """What is shown of it."""
        return f"like:{self.text}"


@dataclass(frozen=True, repr=False)
class Where(Atom):
    """A condition on metadata, which holds or not: ``year>=1990``, in the language of filters."""


@dataclass(frozen=True, repr=False)
class Everything(Atom):
    """What every document matches: in "everything NOT moths" the word is not searched for."""


@dataclass(frozen=True)
class And:
    """All parts."""

    parts: tuple[QueryTree, ...]


@dataclass(frozen=True)
class Or:
    """At least one part."""

    parts: tuple[QueryTree, ...]


@dataclass(frozen=True)
class Not:
    """Not the part."""

    part: QueryTree


QueryTree = Atom | And | Or | Not


def operand(text: str, weight: float = 1.0) -> Atom:
    """Return the operand that some words are, without quotes.

    >>> operand("moths"), operand("everything that is")
    (Atom(text='moths'), Everything(text='everything that is'))
    """
    return (Everything if _EVERYTHING.fullmatch(text) else Atom)(text, weight)


def answers(
    query: QueryTree, postings: Mapping[str, frozenset[str]], universe: frozenset[str] | None = None
) -> frozenset[str]:
    """Return the ids of the documents that satisfy a query.

    ``postings`` has the documents of each operand's text. ``universe`` is all documents, which a
    query without a positive operand needs.

    >>> postings = {"a": frozenset("12"), "b": frozenset("23")}
    >>> sorted(answers(And((Atom("a"), Not(Atom("b")))), postings))
    ['1']
    >>> sorted(answers(Or((Atom("a"), Atom("b"))), postings))
    ['1', '2', '3']
    """
    match query:
        case Everything():
            return _everything(universe)
        case Atom(text):
            if text not in postings:
                raise QueryError(f"no documents are known for the operand {text!r}")
            return postings[text]
        case Or(parts):
            return frozenset().union(*(answers(part, postings, universe) for part in parts))
        case And(parts):
            positive = [answers(p, postings, universe) for p in parts if not isinstance(p, Not)]
            negated = [answers(p.part, postings, universe) for p in parts if isinstance(p, Not)]
            positive = positive or [_everything(universe)]
            return frozenset.intersection(*positive).difference(*negated)
        case Not(part):
            return _everything(universe) - answers(part, postings, universe)


def _everything(universe: frozenset[str] | None) -> frozenset[str]:
    if universe is None:
        raise QueryError(
            "the query only negates: add a positive operand, as in 'moths NOT Sumatra'"
        )
    return universe


def signed_atoms(query: QueryTree, sign: int = 1) -> Iterator[tuple[Atom, int]]:
    """Yield the operands, left to right, each with 1 if it is positive and -1 if negated."""
    match query:
        case Atom():
            yield query, sign
        case Not(part):
            yield from signed_atoms(part, -sign)
        case And(parts) | Or(parts):
            for part in parts:
                yield from signed_atoms(part, sign)


def atoms(query: QueryTree) -> Iterator[Atom]:
    """Yield the operands, left to right."""
    return (atom for atom, _ in signed_atoms(query))


def join_all(nodes: Sequence[QueryTree], kind: type[And] | type[Or] = And) -> QueryTree:
    """Join parts by AND, or by OR; nested ones are flattened: "(A AND B) AND C" has three parts."""
    if len(nodes) == 1:
        return nodes[0]
    flat = (part.parts if isinstance(part, kind) else (part,) for part in nodes)
    return kind(tuple(chain.from_iterable(flat)))


def map_words(tree: QueryTree, change: Callable[[str], str]) -> QueryTree:
    """Change the words of a tree's operands; documents and conditions stay."""
    match tree:
        case Atom(text):
            return replace(tree, text=change(text)) if tree.words else tree
        case Not(part):
            return Not(map_words(part, change))
        case And(parts) | Or(parts):
            return type(tree)(tuple(map_words(part, change) for part in parts))


def negate(part: QueryTree) -> QueryTree:
    """Negate a part; a double negation is none."""
    return part.part if isinstance(part, Not) else Not(part)


def operators_of(query: QueryTree) -> tuple[Operator, ...]:
    """Return the operators a tree uses, in the fixed order.

    An ``And`` with one positive part is NOT alone: "A that are not B".

    >>> [op.value for op in operators_of(And((Atom("a"), Not(Atom("b")))))]
    ['not']
    >>> [op.value for op in operators_of(And((Atom("a"), Atom("b"), Not(Atom("c")))))]
    ['and', 'not']
    """
    used, nodes = set(), [query]
    for node in nodes:
        match node:
            case Not(part):
                used.add(Operator.NOT)
                nodes.append(part)
            case Or(parts):
                used.add(Operator.OR)
                nodes += parts
            case And(parts):
                nodes += parts
                if sum(not isinstance(part, Not) for part in parts) > 1:
                    used.add(Operator.AND)
    return tuple(operator for operator in OPERATORS if operator in used)


def in_words(tree: QueryTree) -> str:
    """Write a tree in plain language; operands without words are left out.

    >>> in_words(And((Atom("moths"), Or((Atom("Borneo"), Atom("Java"))), Not(Atom("Sumatra")))))
    'moths and Borneo or Java but not Sumatra'
    """
    match tree:
        case Atom():
            return tree.words
        case Not(part):
            return f"not {inner}" if (inner := in_words(part)) else ""
        case Or(parts):
            return " or ".join(filter(None, map(in_words, parts)))
        case And(parts):
            signed = [(isinstance(part, Not), text) for part in parts if (text := in_words(part))]
            positive = " and ".join(text for is_negated, text in signed if not is_negated)
            negated = " and ".join(text for is_negated, text in signed if is_negated)
            return f"{positive} but {negated}" if positive and negated else positive or negated


def truth(tree: QueryTree, operands: Iterable[Any]) -> Any:  # noqa: ANN401 - see below
    """Return whether a tree holds, as 1 or 0.

    The truths of its operands, left to right, are numbers, or arrays over documents.

    >>> truth(And((Atom("a"), Not(Or((Atom("b"), Atom("c")))))), [1, 0, 0])
    1
    """
    values = iter(operands)  # of an iterator itself: each operand takes the next one
    match tree:
        case Atom():
            return next(values)
        case Not(part):
            return 1 - truth(part, values)
        case And(parts):
            return math.prod([truth(part, values) for part in parts])
        case Or(parts):
            return 1 - math.prod([1 - truth(part, values) for part in parts])


def is_contradiction(tree: QueryTree) -> bool:
    """Return whether no document can satisfy a tree, as in "A AND NOT A"."""
    # Ids keep their case.
    names = [a.name if isinstance(a, Like) else a.name.casefold() for a in atoms(tree)]
    different = sorted(set(names))
    if len(different) == len(names) or len(different) > _MAX_CHECKED:
        return False
    cases = product((1, 0), repeat=len(different))
    truths = (dict(zip(different, case, strict=True)) for case in cases)
    return not any(truth(tree, map(known.get, names)) for known in truths)


class Clause(NamedTuple):
    """Places of the operands that a document must match, and of those that it must not."""

    positive: tuple[int, ...]
    negated: tuple[int, ...]
    conditions: tuple[tuple[int, bool], ...] = ()  # places, and whether each must hold


def clauses(tree: QueryTree) -> tuple[Clause, ...]:
    """Return the alternatives of a tree (its disjunctive normal form); operands left to right.

    >>> tree = And((Atom("moths"), Or((Atom("Borneo"), Atom("Java"))), Not(Atom("large"))))
    >>> [(clause.positive, clause.negated) for clause in clauses(tree)]
    [((0, 1), (3,)), ((0, 2), (3,))]
    """
    alternatives: list[tuple[Any, ...]] = [*_alternatives(tree, count(), is_negated=False)]
    ordered = (Clause(*(tuple(sorted(set(rows))) for rows in c)) for c in alternatives)
    return tuple(dict.fromkeys(ordered))


def n_clauses(tree: QueryTree, *, is_negated: bool = False) -> int:
    """Count the alternatives, some of which may be equal, without making them."""
    match tree:
        case Atom():
            return 1
        case Not(part):
            return n_clauses(part, is_negated=not is_negated)
        case And(parts) | Or(parts):
            counts = [n_clauses(part, is_negated=is_negated) for part in parts]
            return math.prod(counts) if isinstance(tree, And) != is_negated else sum(counts)


def conjunctions(alternatives: Sequence[Clause]) -> tuple[tuple[int, ...], ...]:
    """Return the operands of each clause of several positive ones, which has a vector of its own.

    >>> conjunctions([Clause((0, 1), ()), Clause((2,), ()), Clause((0, 1), (3,))])
    ((0, 1),)
    """
    several = (clause.positive for clause in alternatives if len(clause.positive) > 1)
    return tuple(dict.fromkeys(several))


def _alternatives(node: QueryTree, places: Iterator[int], *, is_negated: bool) -> list[Clause]:
    match node:
        case Where():
            return [Clause((), (), ((next(places), not is_negated),))]
        case Atom():
            position = (next(places),)
            if is_negated:
                return [Clause((), position)]
            return [Clause(() if isinstance(node, Everything) else position, ())]
        case Not(part):
            return _alternatives(part, places, is_negated=not is_negated)
        case And(parts) | Or(parts):
            lists = [_alternatives(part, places, is_negated=is_negated) for part in parts]
    # De Morgan: not (a or b) is (not a) and (not b).
    if isinstance(node, And) == is_negated:
        return [*chain.from_iterable(lists)]
    return [Clause(*(sum(r, ()) for r in zip(*c, strict=True))) for c in product(*lists)]
