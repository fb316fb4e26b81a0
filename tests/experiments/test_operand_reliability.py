"""Operand probabilities of a model, compared with the documents that belong to the operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from boolattn.data.records import Operand, Query
from boolattn.encoder import build_towers, operand_logits
from boolattn.encoder.retriever import Retriever
from boolattn.training.post.calibration import fit_displayed_probabilities
from experiments.query_modes import operand_reliability

N, DIM = 500, 8


class Towers:
    """Returns a given vector for each operand text, so similarities are known."""

    def __init__(self, retriever, vectors):
        self.towers, self.calibration = retriever.towers, retriever.calibration
        self.vectors = vectors
        self.asked = []

    @property
    def calibration_arrays(self):
        return self.calibration.arrays()

    def encode_operands(self, texts):
        self.asked += texts
        return np.stack([self.vectors[text] for text in texts])


@pytest.fixture
def retriever(tiny_encoder, tokenizer):
    return Retriever(build_towers(tiny_encoder("bert"), tokenizer=tokenizer))


@pytest.fixture
def known(retriever):
    """Two operands and documents along a line: the first component is the similarity."""
    from boolattn.encoder.calibration import TrainableCalibration

    vectors = {text: np.eye(DIM, dtype=np.float32)[0] for text in ("moths of a", "moths of b")}
    documents = torch.zeros(N, DIM)
    documents[:, 0] = torch.linspace(-1, 1, N)
    towers = Towers(retriever, vectors)
    towers.calibration = TrainableCalibration(DIM)
    return towers, documents, {f"d{row}": row for row in range(N)}


def query(first, second):
    text = "moths of a but not b"
    return Query(
        id="q",
        text=text,
        gold=frozenset(),
        template="_ that are not _",
        operands=(
            Operand("A", ((0, 10),), frozenset(first)),
            Operand("B", ((0, 9), (19, 20)), None if second is None else frozenset(second)),
        ),
    )


def test_truth_and_probability_belong_to_the_same_pair(known):
    towers, documents, rows = known
    # The 100 most similar belong to the positive operand, the 20 least similar to the negated.
    judged = query([f"d{row}" for row in range(400, N)], [f"d{row}" for row in range(20)])
    found = operand_reliability(towers, [judged], documents, rows)
    kept, excluded = found["kept"], found["excluded"]
    assert towers.asked == ["moths of a", "moths of b"]
    assert kept["said"] == sorted(kept["said"])
    assert kept["found"][-1] == 1
    n_belong = np.dot(kept["found"], kept["count"])
    assert n_belong == pytest.approx(100, abs=0.01)
    # Each of the nearest is counted once, though some are sampled again.
    assert 200 < sum(kept["count"]) < 400
    said = torch.sigmoid(towers.calibration.log_alpha.exp() * (documents[300:, 0] - 7 / 15))
    assert kept["count"][-1] == int((said >= 0.9).sum())
    assert max(excluded["found"][1:]) == 0
    assert excluded["error"] > kept["error"] > 0


def test_the_seed_decides_the_sample(known):
    towers, documents, rows = known
    one = query([f"d{row}" for row in range(0, N, 3)], ["d1"])
    counts = [
        operand_reliability(towers, [one], documents, rows, seed)["kept"]["count"]
        for seed in (0, 0, 1)
    ]
    assert counts[0] == counts[1] != counts[2]


def test_a_negated_operand_has_its_own_threshold(known):
    towers, documents, rows = known
    with torch.no_grad():
        towers.calibration.negation_offset.fill_(0.5)
    found = operand_reliability(towers, [query(["d1"], ["d1"])], documents, rows)
    means = {kind: np.average(c["said"], weights=c["count"]) for kind, c in found.items()}
    assert means["excluded"] > means["kept"] + 0.1


def test_the_fit_changes_displayed_probabilities_alone(known):
    towers, documents, rows = known
    rng = np.random.default_rng(0)
    draw = [[f"d{row}" for row in np.flatnonzero(rng.random(N) < share)] for share in (0.3, 0.1)]
    asked = [query(*draw)]
    before = operand_reliability(towers, asked, documents, rows)
    before_fit = {name: value.clone() for name, value in towers.calibration.named_parameters()}
    fit_displayed_probabilities(towers, asked, documents, rows)
    after = operand_reliability(towers, asked, documents, rows)
    for kind in ("kept", "excluded"):
        assert before[kind]["error"] > 0.15
        assert after[kind]["error"] < 0.05
    for name, value in towers.calibration.named_parameters():
        assert torch.equal(value, before_fit[name])
    assert (towers.calibration.display_scale[1] != torch.tensor([1.0, 0.0])).all()
    fit_displayed_probabilities(towers, [query(draw[0], None)], documents, rows)
    kept, excluded = towers.calibration.display_scale.tolist()
    assert kept != [1, 0]
    assert excluded == [1, 0], "the documents of the negated operand are unknown"


def test_operands_with_unknown_documents_are_left_out(known):
    towers, documents, rows = known
    found = operand_reliability(towers, [query(["d1"], None)], documents, rows)
    assert set(found) == {"kept"}
    single = Query(
        id="s", text="a", gold=frozenset(), template="_", operands=(Operand("a", (), frozenset()),)
    )
    unknown = replace(query((), None), operands=(Operand("A"), Operand("B")))
    assert operand_reliability(towers, [single, unknown], documents, rows) == {}


def test_the_number_of_queries_is_bounded(known, monkeypatch):
    towers, documents, rows = known
    monkeypatch.setattr(operand_logits, "N_QUERIES", 3)
    found = operand_reliability(towers, [query(["d1"], ["d2"])] * 7, documents, rows)
    assert (found["kept"]["operands"], found["excluded"]["operands"]) == (3, 3)
