from __future__ import annotations

import numpy as np
import pytest

from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.benchmark import prepare


def queries_of(prefix: str, n: int) -> tuple[Query, ...]:
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
        splits={
            "train": queries_of("r", 5),
            "test": queries_of("t", 4),
            "unseen": queries_of("u", 3),
            "no": (),
        },
    )


def test_defaults_are_all_documents_and_the_reported_splits(data):
    benchmark = prepare(data)
    assert (benchmark.name, len(benchmark.documents)) == ("tiny", 100)
    assert {name: len(split) for name, split in benchmark.splits.items()} == {
        "test": 4,
        "unseen": 3,
    }
    assert benchmark.texts[7] == "text 7"
    assert benchmark.rows["7"] == 7


def test_a_sample_of_documents_has_all_judged_ones(data):
    benchmark = prepare(data, ["test"], n_documents=30, seed=3)
    assert len(benchmark.documents) == 30
    judged = {str(i + shift) for i in range(4) for shift in (0, 10, 20)}
    ids = list(benchmark.rows)
    assert judged <= set(ids)
    assert ids == sorted(ids, key=int) == [document.id for document in benchmark.documents]
    judgements = benchmark.splits["test"]
    assert [ids[row] for row in np.concatenate(judgements.excluded)] == [
        "10",
        "11",
        "12",
        "13",
    ]
    assert benchmark.name == "tiny (30 of 100 documents, seed 3)"
    again, other = (prepare(data, ["test"], n_documents=30, seed=seed) for seed in (3, 4))
    assert ids == list(again.rows) != list(other.rows)


def test_judged_documents_are_kept_beyond_the_limit(data):
    assert len(prepare(data, ["test"], n_documents=1).documents) == 12


def test_a_sample_of_queries(data):
    benchmark = prepare(data, ["train", "test"], n_queries=2)
    assert [len(split) for split in benchmark.splits.values()] == [2, 2]
    assert benchmark.name == "tiny (2 queries, seed 0)"
    assert prepare(data, ["test"], n_queries=4).name == "tiny"


@pytest.mark.parametrize(
    ("split", "error", "complaint"),
    [
        ("dev", ConfigError, "tiny has no split 'dev'; it has train, test, unseen, no"),
        ("no", DataError, "the split 'no' of tiny has no queries"),
    ],
)
def test_a_missing_split_is_refused(data, split, error, complaint):
    with pytest.raises(error, match=complaint):
        prepare(data, [split])


def test_data_without_a_default_split_or_documents_is_refused(data):
    with pytest.raises(ConfigError, match="name a split of tiny: train"):
        prepare(
            Dataset(name="tiny", documents=data.documents, splits={"train": queries_of("r", 1)})
        )
    with pytest.raises(DataError, match="among 0 documents"):
        prepare(Dataset(name="tiny", documents=(), splits=data.splits))
