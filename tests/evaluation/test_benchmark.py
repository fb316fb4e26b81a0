from __future__ import annotations

import pytest

from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.benchmark import prepare


def asked(prefix: str, n: int) -> tuple[Query, ...]:
    return tuple(
        Query(
            id=f"{prefix}{i}",
            text="",
            gold=frozenset({str(i)}),
            excluded=frozenset({str(i + 10)}),
            partial=frozenset({str(i + 20)}),
        )
        for i in range(n)
    )


@pytest.fixture
def data() -> Dataset:
    documents = tuple(Document(id=str(i), text=f"text {i}") for i in range(100))
    return Dataset(
        name="tiny",
        documents=documents,
        splits={"train": asked("r", 5), "test": asked("t", 4), "unseen": asked("u", 3), "no": ()},
    )


def test_everything_is_ranked_and_what_is_reported_is_asked(data):
    benchmark = prepare(data)
    assert (benchmark.name, len(benchmark.documents)) == ("tiny", 100)
    assert {name: len(split) for name, split in benchmark.splits.items()} == {
        "test": 4,
        "unseen": 3,
    }
    assert benchmark.texts[7] == "text 7"
    assert benchmark.ids[7] == "7"


def test_a_part_of_the_corpus_holds_all_that_queries_name(data):
    benchmark = prepare(data, ["test"], n_documents=30, seed=3)
    assert len(benchmark.documents) == 30
    named = {str(i + shift) for i in range(4) for shift in (0, 10, 20)}
    assert named <= set(benchmark.rows)
    assert [int(name) for name in benchmark.ids] == sorted(int(name) for name in benchmark.ids)
    judgements = benchmark.splits["test"]
    assert [benchmark.ids[row] for row in judgements.excluded.rows] == ["10", "11", "12", "13"]
    assert benchmark.name == "tiny (30 of 100 documents, seed 3)"
    again, other = (prepare(data, ["test"], n_documents=30, seed=seed) for seed in (3, 4))
    assert benchmark.ids == again.ids != other.ids


def test_fewer_documents_than_queries_name_keeps_all_they_name(data):
    assert len(prepare(data, ["test"], n_documents=1).documents) == 12


def test_a_part_of_the_queries(data):
    benchmark = prepare(data, ["train", "test"], n_queries=2)
    assert [len(split) for split in benchmark.splits.values()] == [2, 2]
    assert benchmark.name == "tiny (2 queries, seed 0)"
    assert prepare(data, ["test"], n_queries=4).name == "tiny"


@pytest.mark.parametrize(
    ("split", "error", "complaint"),
    [
        ("dev", ConfigError, "tiny has no split 'dev'; there are train, test, unseen, no"),
        ("no", DataError, "the split 'no' of tiny has no queries"),
    ],
)
def test_a_split_that_is_not_there_is_refused(data, split, error, complaint):
    with pytest.raises(error, match=complaint):
        prepare(data, [split])


def test_nothing_to_choose_or_to_rank_is_refused(data):
    with pytest.raises(ConfigError, match="which split of tiny"):
        prepare(Dataset(name="tiny", documents=data.documents, splits={"train": asked("r", 1)}))
    with pytest.raises(DataError, match="tiny has no documents"):
        prepare(Dataset(name="tiny", documents=(), splits=data.splits))
