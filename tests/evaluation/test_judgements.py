from __future__ import annotations

import pytest

from boolattn.data.records import Query
from boolattn.errors import DataError
from boolattn.evaluation.benchmark import Judgements, QueryInfo
from tests.evaluation.conftest import ROWS


def test_queries_without_a_relevant_document_are_left_out(queries):
    corpus = {name: row for row, name in enumerate("345678")}
    judgements = Judgements.of(queries, corpus)
    assert judgements.ids == ("not", "and")
    assert judgements.n_documents == 6
    assert judgements.relevant[0].tolist() == [0, 1]
    assert judgements.excluded[0].tolist() == [2, 3]


def test_properties_of_the_queries(queries):
    judgements = Judgements.of(queries, ROWS)
    assert judgements.operators == ((), ("not",), ("and",))
    assert tuple(map(QueryInfo.of, queries)) == (
        QueryInfo("plain", "_", (), "animals", "", "plain"),
        QueryInfo("not", "_ that are not _", ("not",), "animals", "seen", "NOT"),
        QueryInfo("and", "_ that are also _", ("and",), "plants", "", "AND/OR"),
    )


def test_wordings_are_seen_or_unseen():
    names = ("seen:not/s00/but not", "unseen:or2/3", "not/s00/but not", "a title: its words")
    queries = [Query(id=name, text="", gold=frozenset("1"), wording=name) for name in names]
    assert [QueryInfo.of(query).wording for query in queries] == ["seen", "unseen", "", ""]


def test_a_relevant_document_is_not_excluded():
    query = Query(id="q", text="", gold=frozenset("1"), excluded=frozenset("12"))
    judgements = Judgements.of([query], ROWS)
    assert judgements.excluded[0].tolist() == [2]


def test_a_corpus_without_relevant_documents_is_refused(queries):
    with pytest.raises(
        DataError, match="none of 3 queries has a relevant document among 1 documents"
    ):
        Judgements.of(queries, {"x": 0})
