"""The records every data set is read into: documents, and queries with exact answers.

May import: boolattn.logic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boolattn.logic.templates import template_tree
from boolattn.logic.tree import And, Not, answers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.logic.operators import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text that can be found.

    Attributes:
        id: Its name in gold sets, unique in its corpus.
        text: What is encoded.
        title: Shown to people; QUEST's documents are named by it.
        metadata: Further plain values, for filters.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a query, and the characters of the query it was written with.

    Attributes:
        text: The operand as a query of its own ("moths of Borneo").
        spans: Half-open character spans in the query's text, left to right; a word may belong
            to several operands. Empty where they are not known.
        members: Documents that it names by itself, ``None`` where nobody knows. What is measured,
            not what an operand is: two operands of the same words are equal.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()
    members: frozenset[str] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query with the sets it names.

    Attributes:
        id: Unique in its split.
        text: What a person typed.
        template: One of ``boolattn.logic.templates.TEMPLATES``, or empty where unknown.
        operators: Those the query uses, in the order AND, OR, NOT.
        operands: In the template's order.
        gold: Documents that answer it.
        excluded: Documents that would answer it, had it not excluded them.
        partial: Documents that match some but not all of an AND.
        domain: Subject, for tables ("films", "plants").
        wording: Name of the wording it was made with, where it was made.
    """

    id: str
    text: str
    gold: frozenset[str]
    template: str = ""
    operators: tuple[Operator, ...] = ()
    operands: tuple[Operand, ...] = ()
    excluded: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()
    domain: str = ""
    wording: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A corpus and the queries asked of it.

    Attributes:
        name: What tables call it.
        documents: The corpus, in its own order.
        splits: Queries by split ("train", "val", "test", "generated").
    """

    name: str
    documents: Sequence[Document]
    splits: Mapping[str, tuple[Query, ...]]


@dataclass(frozen=True, slots=True)
class AnswerSets:
    """What a query names, given the documents of each operand: three disjoint sets."""

    gold: frozenset[str]
    excluded: frozenset[str]
    partial: frozenset[str]


def answer_sets(template: str, members: Sequence[frozenset[str]]) -> AnswerSets:
    """Work out a template's sets from the documents of its operands.

    >>> sets = answer_sets("_ that are also _ but not _", [frozenset("123"), frozenset("234"),
    ...                                                    frozenset("3")])
    >>> sorted(sets.gold), sorted(sets.excluded), sorted(sets.partial)
    (['2'], ['3'], ['1', '4'])
    """
    names = [str(place) for place in range(len(members))]
    postings = dict(zip(names, members, strict=True))
    tree = template_tree(template, names)
    gold = answers(tree, postings)
    if not isinstance(tree, And):
        return AnswerSets(gold, frozenset(), frozenset())
    kept = [answers(part, postings) for part in tree.parts if not isinstance(part, Not)]
    in_all = frozenset.intersection(*kept)
    return AnswerSets(gold, in_all - gold, frozenset().union(*kept) - in_all)
