"""People's queries: the files are whole, and results are judged by their first few."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from boolattn.data import people
from boolattn.data.people import SPLITS, PeopleQuery, load_collection

NAMES = [name for names in SPLITS.values() for name in names]
TYPES = {
    "plain": 4, "and": 4, "or": 4, "not": 5, "not-kind": 9, "with-kind": 3, "exclusion-only": 4,
    "double-negation": 2, "number": 4, "typo": 2, "chatty": 2, "case": 2, "name": 1,
}  # fmt: skip


def test_a_collection_is_in_one_split():
    assert len(NAMES) == len(set(NAMES)) == 9
    folders = {path.parent.name for path in Path(people.__file__).parent.glob("*/queries.jsonl")}
    assert folders == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_collection_is_whole(name):
    documents, queries = load_collection(name)
    ids = {document.id for document in documents}
    assert len(ids) == len(documents) >= 90
    assert all(document.title and document.text and document.metadata for document in documents)
    assert Counter(query.type for query in queries) == TYPES
    assert len({query.text for query in queries}) == len(queries)
    for query in queries:
        lists = (query.relevant, query.excluded, query.undecided)
        assert query.relevant
        assert frozenset().union(*lists) <= ids
        assert sum(map(len, lists)) == len(frozenset().union(*lists))
    negated = {"not", "not-kind", "exclusion-only", "double-negation"}
    assert all(query.excluded for query in queries if query.type in negated)
    folder = Path(people.__file__).parent / name
    labels = (folder / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["id"] for line in labels) == sorted(ids)
    assert "licence" in (folder / "source.md").read_text(encoding="utf-8").lower()


QUERY = PeopleQuery("q", "not", frozenset("abcdef"), frozenset("xyz"), frozenset("u"))


@pytest.mark.parametrize(
    ("ranking", "verdict"),
    [
        ("abcde", "right"),
        ("abc12", "right"),  # three of five
        ("ab123", "wrong"),
        ("uabcu12", "right"),  # the undecided are passed over
        ("abcdx", "wrong"),  # one is excluded
        ("abcdex", "right"),  # the sixth is not judged
        ("abxy1", "wrong"),
        ("axyz1", "inverted"),
        ("xyz", "inverted"),
        ("abc", "right"),
        ("", "wrong"),
    ],
)
def test_the_first_five_are_judged(ranking, verdict):
    assert QUERY.judge(list(ranking)) == verdict


@pytest.mark.parametrize(
    ("ranking", "verdict"),
    [("ab123", "right"), ("a1b", "wrong"), ("1ab", "wrong"), ("xya", "inverted"), ("xa", "wrong")],
)
def test_as_many_are_judged_as_are_relevant(ranking, verdict):
    few = PeopleQuery("q", "not", frozenset("ab"), frozenset("xy"), frozenset())
    assert few.judge(list(ranking)) == verdict
