"""The training data of the general model."""

from __future__ import annotations

from boolattn.data.beir import read_beir, write_beir
from boolattn.data.records import Document, Operand, Query
from boolattn.query.tree import Operator
from experiments.general import Limits, domain_part

DOCUMENTS = [
    Document(id=f"d{n}", title=f"Title {n}", text=f"Title {n}. The species {n} lives in Borneo.")
    for n in range(60)
]


def query(name, gold, **more):
    return Query(id=name, text=f"query {name}", gold=frozenset(f"d{n}" for n in gold), **more)


QUERIES = [
    query(
        "a",
        range(3),
        template="_ that are not _",
        operators=(Operator.NOT,),
        operands=(
            Operand("moths of Borneo", members=frozenset(f"d{n}" for n in range(30))),
            Operand("moths of Java", members=frozenset({"d3", "d4"})),
            Operand("unknown"),
        ),
        excluded=frozenset({"d3", "d59"}),
        undecided=frozenset({"d5"}),
    ),
    query("b", range(30), template="_"),
]


def test_a_part_has_queries_operands_and_pairs_of_its_documents(tmp_path):
    limits = Limits(documents=20, queries=10, operands=10, pairs=4)
    documents, queries = domain_part("taxa", DOCUMENTS, QUERIES, limits, 0)
    ids = {one.id for one in documents}
    assert len(ids) == 20
    # Small sets are kept whole.
    assert {f"taxa:d{n}" for n in (0, 1, 2, 3, 4)} <= ids
    texts = [one.text for one in queries]
    assert {"query a", "query b", "moths of Borneo", "moths of Java"} <= {*texts}
    assert "unknown" not in texts
    assert sum(one.id.endswith("-title") for one in queries) == 4
    assert any(one.text.endswith("lives in Borneo.") for one in queries)
    for one in queries:
        assert one.domain == "taxa"
        assert one.gold
        assert one.gold | one.excluded | one.undecided <= ids
        assert not one.gold & one.undecided
    write_beir(tmp_path / "data", documents, {"train": queries})
    read = read_beir(tmp_path / "data")
    assert {one.metadata["domain"] for one in read.documents} == {"taxa"}
    assert {one.id: one.gold for one in read.splits["train"]} == {o.id: o.gold for o in queries}


def test_draws_depend_on_the_seed_and_the_name():
    limits = Limits(documents=20, queries=1, operands=1, pairs=4)
    parts = [
        domain_part(name, DOCUMENTS, QUERIES, limits, seed)
        for name, seed in (("taxa", 0), ("taxa", 0), ("taxa", 1))
    ]
    assert parts[0] == parts[1]
    assert parts[0] != parts[2]
