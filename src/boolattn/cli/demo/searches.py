"""The searches that the demo shows, and what is known of their answers.

Most are the benchmark's own queries, picked by hand to be short and to have enough answers. Some
are typed: their answers follow from the same lineages and places that the benchmark is made of.
May import: boolattn.data, boolattn.logic.
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
    """One kind of query.

    Attributes:
        title: What it is.
        picked: Ids of the benchmark's queries.
        template: Taken where an id is not there, as in other data.
        typed: Queries that are not the benchmark's.
    """

    title: str
    picked: tuple[str, ...] = ()
    template: str = ""
    typed: tuple[Typed, ...] = ()


@dataclass(frozen=True)
class Typed:
    """A query with what each of its operands stands for.

    Attributes:
        text: Explicit syntax, or a name that is one operand.
        sets: For each operand, left to right, fields of a document's metadata with their values;
            ``places`` holds several, ``title`` is the document's own.
    """

    text: str
    sets: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Asked:
    """A query to show.

    Attributes:
        kind: What kind it is.
        query: With the documents that answer it, that it excludes, and that match in part.
        is_own: Whether it is the benchmark's.
    """

    kind: str
    query: Query
    is_own: bool

    def judge(self, document: str) -> str:
        """Say what a document is to the query."""
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
        typed=(
            Typed(
                "opossums AND Peru NOT Ecuador",
                ({"order": "Didelphimorphia"}, {"places": "Peru"}, {"places": "Ecuador"}),
            ),
            Typed(
                '"wall lizards" AND (Greece OR Turkey) NOT Iran',
                (
                    {"family": "Lacertidae"},
                    {"places": "Greece"},
                    {"places": "Turkey"},
                    {"places": "Iran"},
                ),
            ),
            Typed(
                "shrews AND Cameroon -Nigeria",
                ({"family": "Soricidae"}, {"places": "Cameroon"}, {"places": "Nigeria"}),
            ),
        ),
    ),
    Kind(
        "a name that holds a cue word",
        typed=(
            Typed(
                "birds of Trinidad and Tobago",
                ({"class": "Aves", "places": "Trinidad and Tobago"},),
            ),
            Typed(
                "red and white giant flying squirrel",
                ({"title": "Red and white giant flying squirrel"},),
            ),
            Typed("salt and pepper catfish", ({"title": "Salt and pepper catfish"},)),
        ),
    ),
)


def choose_searches(
    queries: Sequence[Query], documents: Sequence[Document], each: int
) -> list[Asked]:
    """Return the searches to show, ``each`` of a kind where there are as many."""
    return [asked for kind in KINDS for asked in _of_kind(kind, queries, documents, each)]


def _of_kind(
    kind: Kind, queries: Sequence[Query], documents: Sequence[Document], each: int
) -> Iterator[Asked]:
    by_id = {query.id: query for query in queries}
    own = [by_id[name] for name in kind.picked if name in by_id]
    if kind.picked and not own:
        own = [query for query in queries if query.template == kind.template]
    for query in own[:each]:
        yield Asked(kind.title, query, is_own=True)
    for typed in kind.typed[:each]:
        yield Asked(kind.title, typed_query(typed, documents), is_own=False)


def typed_query(typed: Typed, documents: Sequence[Document]) -> Query:
    """Work out the answers of a query that the benchmark does not have."""
    tree: QueryTree = parse(typed.text) if is_explicit(typed.text) else Atom(typed.text)
    names = [atom.text for atom in atoms(tree)]
    postings = {
        name: frozenset(d.id for d in documents if _belongs(d, wanted))
        for name, wanted in zip(names, typed.sets, strict=True)
    }
    gold, in_all, in_some = answers(tree, postings), frozenset[str](), frozenset[str]()
    if isinstance(tree, And):
        kept = [answers(part, postings) for part in tree.parts if not isinstance(part, Not)]
        in_all, in_some = frozenset.intersection(*kept), frozenset().union(*kept)
    return Query(
        id=f"typed: {typed.text}",
        text=typed.text,
        operators=operators_of(tree),
        gold=gold,
        excluded=in_all - gold,
        partial=in_some - in_all,
    )


def _belongs(document: Document, wanted: Mapping[str, str]) -> bool:
    for name, value in wanted.items():
        found = document.title if name == "title" else str(document.metadata.get(name, ""))
        if value not in (found.split("|") if name == "places" else (found,)):
            return False
    return True
