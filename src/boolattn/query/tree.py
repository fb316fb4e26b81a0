"""A query as a tree of operands, what it means over sets of documents, and cue words in a text.

``Not`` restricts the parts beside it: "A and B but not C" is ``And((A, B, Not(C)))``.

A cue expresses an operator. The longest one wins, so the "and" of "and not" is part of a NOT, and
the "not" of "not only" part of an AND. "&" is not a cue: it is more frequent in names than between
operands, and a model's tokens do not distinguish "R&B" from "R & B".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from boolattn.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


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

#: Cue phrases by operator. "neither" and "nor" are two cues: each negates what follows it. In
#: "and also known as" the "and" joins, and the "also" belongs to "also known as".
CUES: Mapping[Operator, tuple[str, ...]] = {
    operator: tuple(phrase.strip() for phrase in phrases.split(","))
    for operator, phrases in {
        Operator.AND: (
            "and, and also, also, are also, as well as, as well, along with, together with, in "
            "addition to, including, both, and both, but also, and also known as, but also known "
            "as, not only, and not only, but not only, not just, and not just, but not just, plus"
        ),
        Operator.OR: ("or, or else, either, or alternatively, alternatively, and/or, and / or"),
        Operator.NOT: (
            "not, but not, and not, not including, but not including, and not including, don't, "
            "doesn't, didn't, aren't, isn't, wasn't, weren't, hasn't, haven't, can't, cannot, "
            "couldn't, won't, never, no, non, nor, neither, without, except, except for, "
            "excepting, excluding, excludes, exclude, other than, apart from, aside from, minus, "
            "barring, leaving out, omitting, with the exception of, to the exclusion of"
        ),
    }.items()
}

#: Phrases that contain a cue word and express no operator.
NOT_CUES: tuple[str, ...] = (
    "non-fiction",
    "non - fiction",
    "non fiction",
    "also known as",
    "are also known as",
    "more or less",
)
#: Compounds that negate and hold no cue; most are read as an operator, some as one word.
_COMPOUND = re.compile(r"(?<!\w)[^\W\d_]+[-\u2010\u2011]free(?!\w)", re.IGNORECASE)

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
    query: QueryTree,
    postings: Mapping[str, frozenset[str]],
    universe: frozenset[str] | None = None,
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


def join_all(nodes: Sequence[QueryTree]) -> QueryTree:
    """Join parts by AND; nested ones are flattened: "(A AND B) AND C" has three parts."""
    return _joined(And, nodes)


def join_any(nodes: Sequence[QueryTree]) -> QueryTree:
    """Join parts by OR, likewise."""
    return _joined(Or, nodes)


def _joined(kind: type[And] | type[Or], nodes: Sequence[QueryTree]) -> QueryTree:
    if len(nodes) == 1:
        return nodes[0]
    flat: list[QueryTree] = []
    for part in nodes:
        flat += part.parts if isinstance(part, kind) else [part]
    return kind(tuple(flat))


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
    used = set()
    nodes = [query]
    for node in nodes:
        match node:
            case Not(part):
                used.add(Operator.NOT)
                nodes.append(part)
            case And(parts) | Or(parts):
                nodes += parts
                if isinstance(node, Or):
                    used.add(Operator.OR)
                elif sum(not isinstance(part, Not) for part in parts) > 1:
                    used.add(Operator.AND)
    return tuple(operator for operator in OPERATORS if operator in used)


@dataclass(frozen=True)
class Cue:
    """One cue found in a text: its operator and its character span."""

    operator: Operator
    start: int
    end: int
    text: str


@lru_cache(maxsize=1)
def _pattern() -> tuple[re.Pattern[str], Mapping[str, Operator]]:
    """Return one pattern of all cues, longest first, and the operator of each."""
    owner = {phrase: operator for operator in OPERATORS for phrase in CUES[operator]}
    phrases = sorted(
        (*owner, *NOT_CUES), key=lambda phrase: (-len(phrase.split()), -len(phrase), phrase)
    )
    branches = "|".join(r"(?u:\s+)".join(map(re.escape, phrase.split())) for phrase in phrases)
    # A letter or digit on either side makes it part of a longer word. Case is that of ASCII,
    # because a dotless i would match here and not be found in the mapping.
    return re.compile(rf"(?<!\w)(?ai:{branches})(?!\w)"), owner


def find_cues(text: str) -> tuple[Cue, ...]:
    """Find the cues of a text, left to right, without overlaps.

    >>> [(cue.operator.value, cue.text) for cue in find_cues("Moths of Borneo but not Sumatra")]
    [('not', 'but not')]
    >>> [cue.text for cue in find_cues("birds as well as bats, neither owls nor knots")]
    ['as well as', 'neither', 'nor']
    >>> [cue.text for cue in find_cues("more or less non-fiction")]
    []
    """
    pattern, owner = _pattern()
    # A curly apostrophe has one character too, so the spans stay correct.
    plain = text.replace("\u2019", "'")
    cues = []
    for match in pattern.finditer(plain):
        operator = owner.get(" ".join(match.group().lower().split()))
        if operator is not None:
            start, end = match.span()
            cues.append(Cue(operator, start, end, text[start:end]))
    return tuple(cues)


def unused_cues(
    text: str, operands: Sequence[Sequence[tuple[int, int]]], is_negated: Sequence[bool]
) -> tuple[tuple[Cue, int | None], ...]:
    """Return the cues of a text that became no operator, and compounds such as "nut-free".

    Each with the number of the operand that it is a word of, by the operands' character spans;
    ``None`` for one of NOT that stands between operands of which none is negated.

    >>> text = "films of Romeo and Juliet but not musicals"
    >>> for cue, operand in unused_cues(text, [[(0, 25)], [(34, 42)]], [False, True]):
    ...     print(cue.text, operand)
    and 0
    """
    unused: list[tuple[Cue, int | None]] = []
    compounds = (Cue(Operator.NOT, *match.span(), match[0]) for match in _COMPOUND.finditer(text))
    for cue in (*find_cues(text), *compounds):
        owners = (
            number
            for number, spans in enumerate(operands)
            if any(start <= cue.start and cue.end <= end for start, end in spans)
        )
        owner = next(owners, None)
        if owner is not None or (cue.operator is Operator.NOT and not any(is_negated)):
            unused.append((cue, owner))
    return tuple(unused)
