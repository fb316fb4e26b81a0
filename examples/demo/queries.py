"""The queries of the demo and their judged documents.

Most are queries of the benchmark, chosen by hand: short, with enough answers. The others are judged
by the metadata from which the benchmark is made: lineages and places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boolattn.data.records import Query
from boolattn.logic.syntax import is_explicit, parse
from boolattn.logic.tree import And, Atom, Not, answers, atoms, operators_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.logic.tree import QueryTree

ANSWERS, EXCLUDED, PARTLY, OTHER = "answers", "excluded", "partly", "other"


@dataclass(frozen=True)
class Kind:
    """A kind of query.

    Attributes:
        title: Its name.
        chosen: Ids of the benchmark's queries.
        template: Of the queries shown if the data has none of these ids.
        extra: Queries that the benchmark does not have.
    """

    title: str
    chosen: tuple[str, ...] = ()
    template: str = ""
    extra: tuple[ExtraQuery, ...] = ()


@dataclass(frozen=True)
class ExtraQuery:
    """A query that the benchmark does not have.

    Attributes:
        text: Explicit syntax, or a name that is one operand.
        sets: For each operand, left to right, the metadata of its documents; ``places`` has
            several values, ``title`` is the document's title.
    """

    text: str
    sets: tuple[Mapping[str, str], ...]


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
        sets = ((ANSWERS, self.query.gold), (EXCLUDED, self.query.excluded))
        for name, ids in (*sets, (PARTLY, self.query.partial)):
            if document in ids:
                return name
        return OTHER


KINDS = (
    Kind(
        "NOT",
        ("unseen-5-00026", "unseen-5-00000", "unseen-5-00003", "unseen-5-00015", "unseen-5-00024"),
        "_ that are not _",
    ),
    Kind(
        "AND",
        ("unseen-3-00008", "unseen-3-00022", "unseen-3-00006", "unseen-3-00027", "unseen-4-00012"),
        "_ that are also _",
    ),
    Kind(
        "OR",
        ("unseen-1-00003", "unseen-1-00008", "unseen-1-00017", "unseen-2-00007", "unseen-2-00009"),
        "_ or _",
    ),
    Kind(
        "AND NOT",
        ("unseen-6-00005", "unseen-6-00012", "unseen-6-00033", "unseen-6-00037", "unseen-6-00020"),
        "_ that are also _ but not _",
    ),
    Kind(
        "explicit syntax",
        extra=(
            ExtraQuery(
                "opossums AND Peru NOT Ecuador",
                ({"order": "Didelphimorphia"}, {"places": "Peru"}, {"places": "Ecuador"}),
            ),
            ExtraQuery(
                '"wall lizards" AND (Greece OR Turkey) NOT Iran',
                (
                    {"family": "Lacertidae"},
                    {"places": "Greece"},
                    {"places": "Turkey"},
                    {"places": "Iran"},
                ),
            ),
            ExtraQuery(
                "shrews AND Cameroon -Nigeria",
                ({"family": "Soricidae"}, {"places": "Cameroon"}, {"places": "Nigeria"}),
            ),
        ),
    ),
    Kind(
        "a name that holds a cue word",
        extra=(
            ExtraQuery(
                "birds of Trinidad and Tobago",
                ({"class": "Aves", "places": "Trinidad and Tobago"},),
            ),
            ExtraQuery(
                "red and white giant flying squirrel",
                ({"title": "Red and white giant flying squirrel"},),
            ),
            ExtraQuery("salt and pepper catfish", ({"title": "Salt and pepper catfish"},)),
        ),
    ),
)


def choose_queries(
    queries: Sequence[Query], documents: Sequence[Document], each: int
) -> list[DemoQuery]:
    """Return the queries to show, at most ``each`` of a kind."""
    return [query for kind in KINDS for query in _of_kind(kind, queries, documents, each)]


def _of_kind(
    kind: Kind, queries: Sequence[Query], documents: Sequence[Document], each: int
) -> Iterator[DemoQuery]:
    by_id = {query.id: query for query in queries}
    own = [by_id[name] for name in kind.chosen if name in by_id]
    if kind.chosen and not own:
        own = [query for query in queries if query.template == kind.template]
    for query in own[:each]:
        yield DemoQuery(kind.title, query, is_from_benchmark=True)
    for extra in kind.extra[:each]:
        yield DemoQuery(kind.title, judge_extra(extra, documents), is_from_benchmark=False)


def judge_extra(extra: ExtraQuery, documents: Sequence[Document]) -> Query:
    """Judge the documents for a query that the benchmark does not have."""
    tree: QueryTree = parse(extra.text) if is_explicit(extra.text) else Atom(extra.text)
    names = [atom.text for atom in atoms(tree)]
    postings = {
        name: frozenset(d.id for d in documents if _matches(d, values))
        for name, values in zip(names, extra.sets, strict=True)
    }
    gold, in_all, in_some = answers(tree, postings), frozenset[str](), frozenset[str]()
    if isinstance(tree, And):
        positive = [answers(part, postings) for part in tree.parts if not isinstance(part, Not)]
        in_all, in_some = frozenset.intersection(*positive), frozenset().union(*positive)
    return Query(
        id=f"extra: {extra.text}",
        text=extra.text,
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
