"""Files of labelled queries: written and read back the same; a wrong line is named."""

from __future__ import annotations

import json

import pytest

from boolattn.data.sentences import LabelledQuery, read_labelled_queries
from boolattn.errors import DataError, MissingDataError
from boolattn.query.parsed_query import Gap, ParsedQuery
from boolattn.query.tree import Operator
from experiments.labels import write_labelled_queries
from tests.parses import flat

NOT_QUERY = LabelledQuery(
    "moths of Borneo but not Sumatra", flat((((0, 15),),), (((0, 8), (24, 31)),))
)
OR_QUERY = LabelledQuery("é or b", flat((((0, 1),), ((5, 6),)), (), Operator.OR))
NESTED = LabelledQuery(
    "a or b, not c",
    ParsedQuery(
        (((0, 1),), ((5, 6),), ((12, 13),)),
        (False, False, True),
        (Gap(Operator.OR, 2), Gap(Operator.AND, 1)),
    ),
)
ROW = {
    "text": "a or b",
    "operands": [[[0, 1]], [[5, 6]]],
    "negated": [],
    "gaps": ["or1"],
    "source": "x",
}


@pytest.mark.parametrize("ending", ["", ".xz"])
def test_queries_are_read_back_by_source_in_file_order(tmp_path, ending):
    path = tmp_path / f"queries.jsonl{ending}"
    rows = [("b", NOT_QUERY), ("a", OR_QUERY), ("b", NESTED)]
    assert write_labelled_queries(path, iter(rows)) == 3
    found = read_labelled_queries(path)
    assert found == {"b": [NOT_QUERY, NESTED], "a": [OR_QUERY]}
    assert list(found) == ["b", "a"]


def test_a_row_has_the_documented_fields(tmp_path):
    write_labelled_queries(tmp_path / "q.jsonl", [("natural", NOT_QUERY)])
    assert json.loads((tmp_path / "q.jsonl").read_text(encoding="utf-8")) == {
        "text": "moths of Borneo but not Sumatra",
        "operands": [[[0, 15]], [[0, 8], [24, 31]]],
        "negated": [1],
        "gaps": ["and1"],
        "source": "natural",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gaps": ["or4"]}, "no gap is 'or4'; known: and1"),
        ({"gaps": []}, "do not fit 2 operands"),
        ({"negated": [2]}, "do not fit 2 operands"),
        ({"operands": [[[0, 1]], []]}, r"must be a list of \[start, end\], not \[\]"),
        ({"operands": [[0, 1]]}, r"must be a list of \[start, end\], not \[0, 1\]"),
        ({"operands": [[[0, "1"]]]}, "must be a list of"),
        ({"operands": [[[0, 7]]]}, r"\[0, 7\] is no span of a text of 6 letters"),
        ({"operands": [[[3, 3]]]}, r"\[3, 3\] is no span"),
        ({"source": 1}, "'source' must be str, not int"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(tmp_path, change, message):
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n{json.dumps({**ROW, **change})}\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"q.jsonl:2: .*{message}") as caught:
        read_labelled_queries(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"no file .*q\.jsonl"):
        read_labelled_queries(tmp_path / "q.jsonl")
