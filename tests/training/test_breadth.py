"""Breadth taught bare operands: what it moves, and what it leaves as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from boolattn.composition.retriever import Retriever
from boolattn.data.records import Operand, Query
from boolattn.encoder import build_towers
from boolattn.logic.tree import And, Atom, Not
from boolattn.training.breadth import teach_bare

KINDS, PLACES = ("moths", "birds", "ferns"), ("borneo", "sumatra", "peru", "chile")
NAMES = [f"{kind} of {place}" for kind in KINDS for place in PLACES]
#: What lives in one place, and what lives in two.
DOCUMENTS = [
    *NAMES,
    *(f"{kind} of {a} and {b}" for kind in KINDS for a in PLACES for b in PLACES if a < b),
]
ROWS = {name: row for row, name in enumerate(DOCUMENTS)}


def _query(kind, first, second):
    names = (f"{kind} of {first}", f"{kind} of {second}")
    return Query(
        id=" ".join((kind, first, second)),
        text=f"{names[0]} but not {second}",
        template="_ that are not _",
        operands=tuple(map(Operand, names)),
        gold=frozenset(names[:1]),
        excluded=frozenset({f"{kind} of {min(first, second)} and {max(first, second)}"}),
    )


QUERIES = [_query(k, a, b) for k in KINDS for a in PLACES for b in PLACES if a != b]


def _bags(texts):
    """One number for each word, so that similarities are known."""
    words = (*KINDS, *PLACES)
    bags = np.array([[float(word in text.split()) for word in words] for text in texts])
    bags = bags / np.linalg.norm(bags, axis=1, keepdims=True)
    return np.pad(bags, ((0, 0), (0, 32 - len(words)))).astype(np.float32)


@pytest.fixture
def retriever(tiny_encoder, tokenizer, monkeypatch):
    """A place alone is taken for so narrow a set that nothing belongs to it."""
    monkeypatch.setattr(Retriever, "encode_operands", lambda _, texts: _bags(texts))
    monkeypatch.setattr(Retriever, "encode_queries", lambda _, texts: _bags(texts))
    found = Retriever(build_towers(tiny_encoder(), tokenizer=tokenizer))
    with torch.no_grad():
        found.calibration.breadth[:3], found.calibration.breadth[3:7] = -0.5, 0.5
    return found


def _teach(retriever, queries=QUERIES, n_steps=60):
    documents = torch.from_numpy(_bags(DOCUMENTS))
    return teach_bare(retriever, queries, documents, ROWS, n_steps=n_steps, seed=0)


def _breadth(retriever, texts):
    return torch.from_numpy(_bags(texts)) @ retriever.calibration.breadth.detach().cpu()


def test_bare_operands_move_and_full_ones_hardly(retriever):
    before = {name: value.clone() for name, value in retriever.calibration.state_dict().items()}
    old, apart = _breadth(retriever, PLACES), _gap(retriever)
    found = _teach(retriever)
    assert found["bare_loss"] < found["bare_loss_before"]
    lower = _breadth(retriever, PLACES) - old
    assert lower.max() < -0.1
    # In full they were at 0.
    assert _breadth(retriever, NAMES).abs().max() < -lower.max() / 3
    assert _gap(retriever) > apart + 1
    after = retriever.calibration.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["breadth"]
    assert all(parameter.grad is None for parameter in retriever.calibration.parameters())


def _gap(retriever):
    """How far a right document is ahead of an excluded one where a place alone is excluded."""
    [plan] = retriever.plan_trees([And((Atom("moths of borneo"), Not(Atom("sumatra"))))])
    pair = _bags(["moths of borneo", "moths of borneo and sumatra"])
    right, wrong = retriever.score(plan, plan.vectors @ pair.T)
    return right - wrong


def test_the_same_draw_teaches_the_same(retriever):
    old, found = retriever.calibration.breadth.detach().clone(), []
    for _ in range(2):
        with torch.no_grad():
            retriever.calibration.breadth.copy_(old)
        _teach(retriever, n_steps=3)
        found.append(retriever.calibration.breadth.detach().clone())
    assert torch.equal(*found)


def test_nothing_is_taught_where_nothing_is_bare(retriever, caplog):
    old = retriever.calibration.breadth.detach().clone()
    either = [replace(query, template="_ or _") for query in QUERIES]
    lost = [replace(query, gold=frozenset({"nowhere"})) for query in QUERIES]
    for queries in (either, lost, []):
        assert _teach(retriever, queries) == {}
    assert "can be said with bare operands" in caplog.text
    assert torch.equal(retriever.calibration.breadth, old)
