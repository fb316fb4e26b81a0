"""Records of every data set: documents, and queries with exact answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from boolattn.errors import ConfigError, DataError
from boolattn.jsonl import read_jsonl
from boolattn.query.syntax import template_tree
from boolattn.query.tree import And, Not, Operator, answers

_DOCUMENT = {"id": str, "title": str, "text": str, "metadata": dict}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document; its metadata are further values, for filters.

    These are text, numbers, true or false, dates, and lists and objects of them.

    >>> Document(id="7", text="A moth of Borneo.", metadata={"year": 1898}).metadata["year"]
    1898
    """

    id: str  # unique in its corpus
    text: str  # the text that is encoded
    title: str = ""  # shown to people; the id of QUEST's documents
    metadata: Mapping[str, Any] = field(default_factory=dict)


def checked_documents(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield documents; one with a value of another type is refused with its place."""
    for position, document in enumerate(documents):
        for name in ("id", "text", "title"):
            if not isinstance(value := getattr(document, name), str):
                kind = type(value).__name__
                raise DataError(f"{name} of document {position} must be text, not {kind}")
        if not isinstance(document.metadata, Mapping):
            raise DataError(f"metadata of document {position} must be a mapping")
        yield document


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a query.

    The spans are half-open, in the query's text, left to right; a word may belong to several
    operands. They are empty, and the members (documents that match it alone) ``None``, if unknown.
    """

    text: str  # as a query of its own ("moths of Borneo")
    spans: tuple[tuple[int, int], ...] = ()
    members: frozenset[str] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query with its document sets."""

    id: str  # unique in its split
    text: str  # as a person types it
    gold: frozenset[str]  # relevant documents
    template: str = ""  # one of ``boolattn.query.syntax.TEMPLATES``, or empty where unknown
    operators: tuple[Operator, ...] = ()  # operators it uses, in the order AND, OR, NOT
    operands: tuple[Operand, ...] = ()  # in the template's order
    excluded: frozenset[str] = frozenset()  # documents that would be relevant without the NOT
    partial: frozenset[str] = frozenset()  # match some but not all operands of an AND
    undecided: frozenset[str] = frozenset()  # may be relevant; a ranking is judged without them
    domain: str = ""  # topic ("films", "plants")
    wording: str = ""  # name of the wording of a generated query


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A corpus and its queries."""

    name: str
    documents: Sequence[Document]  # the corpus
    splits: Mapping[str, tuple[Query, ...]]  # by split: "train", "val", "test", "generated"

    def queries(self, split: str) -> tuple[Query, ...]:
        """Return the queries of a split."""
        if split not in self.splits:
            known = ", ".join(self.splits)
            raise ConfigError(f"{self.name} has no split {split!r}; it has {known}")
        if not self.splits[split]:
            raise DataError(f"the split {split!r} of {self.name} has no queries")
        return self.splits[split]


def read_documents(path: Path) -> Iterator[Document]:
    """Stream the documents of a file of JSON lines that has their fields."""
    for _, row in read_jsonl(path, _DOCUMENT):
        yield Document(**{name: row[name] for name in _DOCUMENT})


def read_query(
    row: Mapping[str, Any], members: Sequence[frozenset[str] | None] | None = None
) -> Query:
    """Make a query from parsed JSON; ``members`` has the documents of each operand."""
    pairs = zip(row["operands"], members or [None] * len(row["operands"]), strict=True)
    words: Any = {name: row[name] for name in ("id", "text", "template", "domain", "wording")}
    sets: Any = {name: frozenset(row[name]) for name in AnswerSets._fields}
    return Query(
        operators=tuple(map(Operator, row["operators"])),
        operands=tuple(
            Operand(part["text"], tuple((start, end) for start, end in part["spans"]), documents)
            for part, documents in pairs
        ),
        undecided=frozenset(row.get("undecided", ())),
        **words,
        **sets,
    )


class AnswerSets(NamedTuple):
    """The three disjoint document sets of a query."""

    gold: frozenset[str]
    excluded: frozenset[str]
    partial: frozenset[str]


def answer_sets(template: str, members: Sequence[frozenset[str]]) -> AnswerSets:
    """Compute the sets of a query from the documents of its operands.

    >>> sets = answer_sets("_ that are also _ but not _", [frozenset("123"), frozenset("234"),
    ...                                                    frozenset("3")])
    >>> sorted(sets.gold), sorted(sets.excluded), sorted(sets.partial)
    (['2'], ['3'], ['1', '4'])
    """
    postings = {str(index): documents for index, documents in enumerate(members)}
    tree = template_tree(template, list(postings))
    gold = answers(tree, postings)
    if not isinstance(tree, And):
        return AnswerSets(gold, frozenset(), frozenset())
    positive = [answers(part, postings) for part in tree.parts if not isinstance(part, Not)]
    in_all = frozenset.intersection(*positive)
    return AnswerSets(gold, in_all - gold, frozenset().union(*positive) - in_all)
