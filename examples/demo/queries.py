"""The queries of the demo and their judged documents.

Most are queries of the benchmark, chosen by hand: short, with enough answers. The others are judged
by the metadata from which the benchmark is made: lineages and places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.data.records import Query
from boolattn.query.syntax import parse
from boolattn.query.tokens import is_explicit
from boolattn.query.tree import And, Atom, Not, answers, atoms, operators_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.query.tree import QueryTree

    Sets = tuple[Mapping[str, str], ...]

ANSWERS, EXCLUDED, PARTLY, OTHER = "answers", "excluded", "partly", "other"


@dataclass(frozen=True)
class DemoQuery:
    """A query to show.

    Attributes:
        kind: Title of its kind.
        query: The query and its judged documents.
        is_from_benchmark: Whether the benchmark has it.
    """

    kind: str
    query: Query
    is_from_benchmark: bool

    def judge(self, document: str) -> str:
        """Return the judgement of a document."""
        query = self.query
        sets = {ANSWERS: query.gold, EXCLUDED: query.excluded, PARTLY: query.partial}
        return next((name for name, ids in sets.items() if document in ids), OTHER)


#: Ids of the benchmark's queries by kind.
CHOSEN = {
    "NOT": "unseen-5-00026 unseen-5-00000 unseen-5-00003 unseen-5-00015 unseen-5-00024",
    "AND": "unseen-3-00008 unseen-3-00022 unseen-3-00006 unseen-3-00027 unseen-4-00012",
    "OR": "unseen-1-00003 unseen-1-00008 unseen-1-00017 unseen-2-00007 unseen-2-00009",
    "AND NOT": "unseen-6-00005 unseen-6-00012 unseen-6-00033 unseen-6-00037 unseen-6-00020",
}
#: Template of the queries shown if the data has none of these ids.
TEMPLATES = {
    "NOT": "_ that are not _",
    "AND": "_ that are also _",
    "OR": "_ or _",
    "AND NOT": "_ that are also _ but not _",
}
#: Queries that the benchmark does not have, by kind. For each operand, left to right, the metadata
#: of its documents; ``places`` has several values, ``title`` is the document's title.
EXTRA: dict[str, dict[str, Sets]] = {
    "explicit syntax": {
        "opossums AND Peru NOT Ecuador": (
            {"order": "Didelphimorphia"}, {"places": "Peru"}, {"places": "Ecuador"},
        ),
        '"wall lizards" AND (Greece OR Turkey) NOT Iran': (
            {"family": "Lacertidae"},
            {"places": "Greece"}, {"places": "Turkey"}, {"places": "Iran"},
        ),
        "shrews AND Cameroon -Nigeria": (
            {"family": "Soricidae"}, {"places": "Cameroon"}, {"places": "Nigeria"},
        ),
    },
    "a name with a cue word": {
        "birds of Trinidad and Tobago": ({"class": "Aves", "places": "Trinidad and Tobago"},),
        "red and white giant flying squirrel": (
            {"title": "Red and white giant flying squirrel"},
        ),
        "salt and pepper catfish": ({"title": "Salt and pepper catfish"},),
    },
}  # fmt: skip


def choose_queries(
    queries: Sequence[Query], documents: Sequence[Document], each: int
) -> list[DemoQuery]:
    """Return the queries to show, at most ``each`` of a kind."""
    by_id = {query.id: query for query in queries}
    chosen = []
    for kind, ids in CHOSEN.items():
        own = [by_id[name] for name in ids.split() if name in by_id]
        own = own or [query for query in queries if query.template == TEMPLATES[kind]]
        chosen += [DemoQuery(kind, query, is_from_benchmark=True) for query in own[:each]]
    for kind, extra in EXTRA.items():
        for text, sets in list(extra.items())[:each]:
            query = judge_extra(text, sets, documents)
            chosen.append(DemoQuery(kind, query, is_from_benchmark=False))
    return chosen


def judge_extra(text: str, sets: Sets, documents: Sequence[Document]) -> Query:
    """Judge the documents for a query that the benchmark does not have."""
    tree: QueryTree = parse(text) if is_explicit(text) else Atom(text)
    names = [atom.text for atom in atoms(tree)]
    postings = {
        name: frozenset(d.id for d in documents if _matches(d, values))
        for name, values in zip(names, sets, strict=True)
    }
    gold, in_all, in_some = answers(tree, postings), frozenset[str](), frozenset[str]()
    if isinstance(tree, And):
        positive = [answers(part, postings) for part in tree.parts if not isinstance(part, Not)]
        in_all, in_some = frozenset.intersection(*positive), frozenset().union(*positive)
    return Query(
        id=f"extra: {text}",
        text=text,
        operators=operators_of(tree),
        gold=gold,
        excluded=in_all - gold,
        partial=in_some - in_all,
    )


def _matches(document: Document, values: Mapping[str, str]) -> bool:
    for name, value in values.items():
        found = document.title if name == "title" else str(document.metadata.get(name, ""))
        if value not in (found.split("|") if name == "places" else (found,)):
            return False
    return True
