"""People's queries: short ones as typed into a search box, over nine small collections.

Their writers had seen neither the parser nor the lexicon of kinds, and labelled every document by
reading it. Each collection has ``documents.jsonl``, ``labels.jsonl``, ``queries.jsonl`` and
``source.md``, which names its origin, licence and rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boolattn.data.records import Document, read_documents
from boolattn.jsonl import read_jsonl

#: Collections by split. A choice is made on the first; the second is looked at once.
SPLITS = {
    "validation": ("recipes", "places", "software", "creatures", "spells"),
    "test": ("films", "animals", "plants", "peoples"),
}
DEPTH, _SHARE = 5, 0.6  # results of a query that are judged, and the share that must be relevant
_QUERY = {"query": str, "type": str, "relevant": list, "excluded": list, "undecided": list}


@dataclass(frozen=True)
class PeopleQuery:
    """A query, and which documents answer it."""

    text: str
    type: str  # plain, not-kind, exclusion-only, …
    relevant: frozenset[str]
    excluded: frozenset[str]  # what the query says that it does not want
    undecided: frozenset[str]  # left out of every ranking

    def judge(self, ranking: Sequence[str]) -> str:
        """Say whether the first results answer the query: right, wrong or inverted.

        As many results are judged as there are relevant documents, at most five. Three of five are
        relevant and none is excluded: right. Most are excluded: inverted.
        """
        depth = min(DEPTH, len(self.relevant))
        first = [name for name in ranking if name not in self.undecided][:depth]
        n_relevant = len(self.relevant.intersection(first))
        n_excluded = len(self.excluded.intersection(first))
        if 2 * n_excluded > depth:
            return "inverted"
        return "right" if not n_excluded and n_relevant >= _SHARE * depth else "wrong"


def load_collection(name: str) -> tuple[list[Document], list[PeopleQuery]]:
    """Read the documents and queries of a collection."""
    folder = Path(__file__).parent / name
    documents = list(read_documents(folder / "documents.jsonl"))
    queries = []
    for _, row in read_jsonl(folder / "queries.jsonl", _QUERY):
        sets = (frozenset(row[key]) for key in ("relevant", "excluded", "undecided"))
        queries.append(PeopleQuery(row["query"], row["type"], *sets))
    return documents, queries
