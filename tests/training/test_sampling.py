"""Which documents meet which query, and that nothing but the step decides it."""

from __future__ import annotations

import numpy as np
import pytest

from boolattn.data.records import Query
from boolattn.errors import DataError
from boolattn.training.batches.sampling import Sampler, TrainingBatch, make_examples
from boolattn.training.launch import make_steps
from boolattn.training.settings import TrainSettings


@pytest.fixture
def examples(dataset):
    rows = {document.id: row for row, document in enumerate(dataset.documents)}
    return make_examples(dataset.splits["train"], rows)


def _sampler(examples, **values):
    settings = {"batch_size": 4, "n_epochs": 6, "n_negatives": 3, **values}
    return Sampler(examples, 64, TrainSettings(**settings))


def test_positive_is_gold_and_negatives_are_not(examples):
    sampler = _sampler(examples, n_logical=1)
    for step in range(sampler.n_steps):
        batch = sampler.batch(step)
        for example, documents in zip(batch.examples, batch.documents, strict=True):
            assert documents[0] in example.answers
            assert not example.answers & set(documents[1:])
            assert len(set(documents)) == 4


def test_every_query_comes_once_an_epoch(examples):
    sampler = _sampler(examples)
    n = sampler.steps_per_epoch
    assert n == len(examples) // 4
    seen = [e.query.id for step in range(n) for e in sampler.batch(step).examples]
    assert len(seen) == len(set(seen))
    again = [e.query.id for step in range(n, 2 * n) for e in sampler.batch(step).examples]
    assert seen != again


def test_draws_depend_on_the_step_alone(examples):
    whole, resumed = _sampler(examples), _sampler(examples)
    for step in range(5):
        whole.batch(step)
    late, again = whole.batch(7), resumed.batch(7)
    assert [e.query.id for e in late.examples] == [e.query.id for e in again.examples]
    np.testing.assert_array_equal(late.documents, again.documents)
    other = _sampler(examples, seed=1).batch(7)
    assert [e.query.id for e in late.examples] != [e.query.id for e in other.examples]


def _positives(sampler, qid):
    found = set()
    for step in range(sampler.n_steps):
        batch = sampler.batch(step)
        for example, row in zip(batch.examples, batch.documents, strict=True):
            if example.query.id == qid:
                found.add(int(row[0]))
    return found


def test_positives_are_drawn_anew_or_fixed(examples):
    richest = max(examples, key=lambda example: len(example.gold))
    assert len(_positives(_sampler(examples, n_epochs=12), richest.query.id)) > 1
    assert (
        len(_positives(_sampler(examples, n_epochs=12, positives="fixed"), richest.query.id)) == 1
    )


def test_logical_negatives_come_from_excluded_and_partial_in_turn():
    rows = {f"d{n}": n for n in range(20)}
    query = Query(
        id="q",
        text="a and b not c",
        gold=frozenset({"d0"}),
        excluded=frozenset({"d1"}),
        partial=frozenset({"d2"}),
    )
    settings = TrainSettings(batch_size=1, n_negatives=3, n_logical=2, n_epochs=1)
    documents = Sampler(make_examples([query], rows), 20, settings).batch(0).documents[0]
    assert documents[:3].tolist() == [0, 1, 2]
    assert documents[3] not in (0, 1, 2)


def test_ranked_negatives_are_not_relevant():
    rows = {f"d{n}": n for n in range(20)}
    query = Query(id="q", text="a", gold=frozenset({"d0"}))
    [example] = make_examples([query], rows, {"q": [0, 5]})
    assert example.ranked == (5,)
    settings = TrainSettings(batch_size=1, n_negatives=2, n_bm25=1, n_epochs=1)
    assert Sampler([example], 20, settings).batch(0).documents[0, 1] == 5


def test_blocked_is_every_other_answer(examples):
    first, second = examples[0], examples[1]
    documents = np.array([[first.gold[0], second.gold[0]], [second.gold[0], first.gold[0]]])
    batch = TrainingBatch([0, 1], (first, second), documents)
    expected = [
        [False, second.gold[0] in first.answers, second.gold[0] in first.answers, True],
        [first.gold[0] in second.answers, True, False, first.gold[0] in second.answers],
    ]
    assert batch.blocked(0, 2).tolist() == expected
    assert batch.blocked(1, 2).tolist() == expected[1:]


def test_small_sets_go_round(examples):
    batch = _sampler(examples[:3], batch_size=8).batch(0)
    assert len(batch.examples) == 8


def test_no_usable_query(dataset):
    with pytest.raises(DataError, match="no usable query among 0"):
        _sampler(make_examples(dataset.splits["train"], {}))
    # Every document is relevant: there are no negatives.
    query = Query(id="q", text="a", gold=frozenset({"d0", "d1"}))
    with pytest.raises(DataError, match="3 that are not relevant"):
        Sampler(make_examples([query], {"d0": 0, "d1": 1}), 2, TrainSettings(n_negatives=3))


def test_one_domain_gives_batches_and_negatives_of_one_domain():
    domains = ["a", "b"] * 20
    rows = {f"d{row}": row for row in range(40)}
    queries = [
        Query(id=f"q{n}", text=f"q{n}", gold=frozenset({f"d{n}"}), domain=domains[n])
        for n in range(22)
    ]
    settings = TrainSettings(batch_size=4, n_epochs=1, n_negatives=3)
    examples = make_examples(queries, rows)
    mixed = Sampler(examples, 40, settings)
    single = Sampler(examples, 40, settings, domains)
    assert any(
        len({e.query.domain for e in mixed.batch(s).examples}) > 1 for s in range(mixed.n_steps)
    )
    # 11 queries a domain: two whole batches each.
    assert single.n_steps == 4
    seen = []
    for step in range(single.n_steps):
        batch = single.batch(step)
        [domain] = {example.query.domain for example in batch.examples}
        assert {domains[row] for row in batch.documents.ravel()} == {domain}
        seen += [example.query.id for example in batch.examples]
    assert len(seen) == len(set(seen)) == 16


def test_an_undecided_document_is_no_negative():
    rows = {f"d{row}": row for row in range(6)}
    gold, undecided = frozenset({"d0"}), frozenset({"d1", "d2"})
    query = Query(id="q", text="q", gold=gold, undecided=undecided)
    settings = TrainSettings(batch_size=2, n_negatives=3)
    batch = Sampler(make_examples([query], rows), 6, settings).batch(0)
    assert {*batch.documents[0]} == {0, 3, 4, 5}
    assert (batch.documents[:, 0] == 0).all()


def test_the_best_document_that_is_not_relevant_becomes_a_negative(preset, corpus, tmp_path):
    query = corpus.split("train")[0]
    answer = min(query.gold)
    wrong = next(name for name in corpus.rows if name not in query.gold)
    path = tmp_path / "bm25.run"
    path.write_text(f"{query.id} Q0 {answer} 1 9 x\n{query.id} Q0 {wrong} 2 8 x\n")
    steps = make_steps(preset(n_bm25=1, n_logical=0, n_epochs=1, max_steps=0), corpus, path)
    batches = [steps.sampler.batch(step) for step in range(len(steps))]
    seen = [
        row
        for batch in batches
        for example, row in zip(batch.examples, batch.documents.tolist(), strict=True)
        if example.query.id == query.id
    ]
    assert seen
    assert all(row[1] == corpus.rows[wrong] for row in seen)
