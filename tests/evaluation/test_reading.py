"""Measures of reading: names that are taken apart, and probabilities beside what belongs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from boolattn.data.parser_tests import FORMS, cue_word_names, unseen_queries
from boolattn.data.records import Operand, Query
from boolattn.encoder import build_towers
from boolattn.encoder.retriever import Retriever
from boolattn.evaluation import figures
from boolattn.evaluation import operand_samples as membership
from boolattn.evaluation import parse_accuracy as reading
from boolattn.logic.tree import And, Atom, Not, Or
from boolattn.training.post_training import scale_probabilities

N, DIM = 500, 8


class Towers:
    """An operand's vector is the one its text is called by, so similarities are known."""

    def __init__(self, retriever, vectors):
        self.towers, self.calibration = retriever.towers, retriever.calibration
        self.vectors = vectors
        self.asked = []

    def encode_operands(self, texts):
        self.asked += texts
        return np.stack([self.vectors[text] for text in texts])


@pytest.fixture
def retriever(tiny_encoder, tokenizer):
    return Retriever(build_towers(tiny_encoder("bert"), tokenizer=tokenizer))


@pytest.fixture
def known(retriever):
    """Two operands, documents along a line: similarity is what the first number says."""
    from boolattn.composition.calibration import Calibration

    vectors = {text: np.eye(DIM, dtype=np.float32)[0] for text in ("moths of a", "moths of b")}
    documents = torch.zeros(N, DIM)
    documents[:, 0] = torch.linspace(-1, 1, N)
    towers = Towers(retriever, vectors)
    towers.calibration = Calibration(DIM)
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


def test_truth_and_probability_are_of_the_same_pair(known):
    towers, documents, rows = known
    # The 100 most similar belong to the kept operand, the 20 least similar to the excluded one.
    asked = query([f"d{row}" for row in range(400, N)], [f"d{row}" for row in range(20)])
    found = reading.operand_reliability(towers, [asked], documents, rows)
    kept, excluded = found["kept"], found["excluded"]
    assert towers.asked == ["moths of a", "moths of b"]
    assert kept["said"] == sorted(kept["said"])
    assert kept["found"][-1] == 1
    n_belong = np.dot(kept["found"], kept["count"])
    assert n_belong == pytest.approx(100, abs=0.01)
    # Each of the nearest is counted once, though some are drawn again.
    assert 200 < sum(kept["count"]) < 400
    said = torch.sigmoid(towers.calibration.log_alpha.exp() * (documents[300:, 0] - 7 / 15))
    assert kept["count"][-1] == int((said >= 0.9).sum())
    assert max(excluded["found"][1:]) == 0
    assert excluded["error"] > kept["error"] > 0


def test_the_same_seed_looks_at_the_same_documents(known):
    towers, documents, rows = known
    one = query([f"d{row}" for row in range(0, N, 3)], ["d1"])
    counts = [
        reading.operand_reliability(towers, [one], documents, rows, seed)["kept"]["count"]
        for seed in (0, 0, 1)
    ]
    assert counts[0] == counts[1] != counts[2]


def test_an_excluded_operand_is_judged_by_its_own_threshold(known):
    towers, documents, rows = known
    with torch.no_grad():
        towers.calibration.negation_offset.fill_(0.5)
    found = reading.operand_reliability(towers, [query(["d1"], ["d1"])], documents, rows)
    means = {kind: np.average(c["said"], weights=c["count"]) for kind, c in found.items()}
    assert means["excluded"] > means["kept"] + 0.1


def test_probabilities_that_are_shown_are_fitted_to_the_corpus_and_rank_nothing(known):
    towers, documents, rows = known
    rng = np.random.default_rng(0)
    draw = [[f"d{row}" for row in np.flatnonzero(rng.random(N) < share)] for share in (0.3, 0.1)]
    asked = [query(*draw)]
    before = reading.operand_reliability(towers, asked, documents, rows)
    settled = {name: value.clone() for name, value in towers.calibration.named_parameters()}
    scale_probabilities(towers, asked, documents, rows)
    after = reading.operand_reliability(towers, asked, documents, rows)
    for kind in ("kept", "excluded"):
        assert before[kind]["error"] > 0.15
        assert after[kind]["error"] < 0.05
    for name, value in towers.calibration.named_parameters():
        assert torch.equal(value, settled[name])
    assert (towers.calibration.scale[1] != torch.tensor([1.0, 0.0])).all()
    scale_probabilities(towers, [query(draw[0], None)], documents, rows)
    kept, excluded = towers.calibration.scale.tolist()
    assert kept != [1, 0]
    assert excluded == [1, 0], "nobody knows what is excluded"


def test_what_nobody_knows_is_left_out(known):
    towers, documents, rows = known
    found = reading.operand_reliability(towers, [query(["d1"], None)], documents, rows)
    assert set(found) == {"kept"}
    single = Query(
        id="s", text="a", gold=frozenset(), template="_", operands=(Operand("a", (), frozenset()),)
    )
    unknown = replace(query((), None), operands=(Operand("A"), Operand("B")))
    assert reading.operand_reliability(towers, [single, unknown], documents, rows) == {}


def test_at_most_so_many_queries_are_taken(known, monkeypatch):
    towers, documents, rows = known
    monkeypatch.setattr(membership, "N_QUERIES", 3)
    found = reading.operand_reliability(towers, [query(["d1"], ["d2"])] * 7, documents, rows)
    assert (found["kept"]["operands"], found["excluded"]["operands"]) == (3, 3)


def test_names_are_counted_by_kind(retriever, monkeypatch):
    nothing = reading.misread_names(retriever)
    assert (nothing["n"], nothing["misread"]) == (len(cue_word_names()), 0)
    wrong = {cue_word_names()[0].query, cue_word_names()[-1].query}
    own = Retriever.plan

    def read(self, texts):
        plans = own(self, texts)
        return [replace(plan, is_composed=plan.text in wrong) for plan in plans]

    monkeypatch.setattr(Retriever, "plan", read)
    found = reading.misread_names(retriever)
    assert found["misread"] == 2
    assert found["kinds"][cue_word_names()[0].kind]["misread"] >= 1
    assert sum(kind["n"] for kind in found["kinds"].values()) == len(cue_word_names())


def test_what_is_excluded_must_be_what_is_excluded():
    a, b, c = map(Atom, "abc")
    assert reading.has_same_words(And((a, b, Not(c))), And((b, Atom("A"), Not(c))))
    assert not reading.has_same_words(And((a, Not(b))), And((b, Not(a))))
    assert not reading.has_same_words(Or((a, b)), And((a, b)))


def test_words_given_to_a_wrong_operand_cost():
    right = And((Atom("red moths"), Not(Atom("moths of Java"))))
    assert reading.word_f1(right, right) == 1
    # Of five words and four, three are where they belong.
    found = reading.word_f1(right, And((Atom("red"), Not(Atom("Moths, Java red")))))
    assert found == pytest.approx(2 * 3 / (5 + 4))
    assert reading.word_f1(right, Or((Atom("ants"), Atom("bees")))) == 0
    # What is kept is never laid beside what is excluded.
    assert reading.word_f1(Atom("moths"), Not(Atom("moths"))) == 0


def test_fresh_queries_are_judged_by_what_is_read_and_what_is_obeyed(retriever, monkeypatch):
    queries = unseen_queries()
    plain = [query for query in queries if query.form == "plain"]
    nothing = reading.read_fresh(retriever)
    assert nothing["n"] == len(queries)
    assert nothing["structure"] == nothing["obeyed"] == round(len(plain) / len(queries), 4)
    assert nothing["words"] == 0
    assert "words" not in nothing["forms"]["plain"]
    trees = {
        query.labelled.text: query.labelled.parsed.tree(query.labelled.text) for query in queries
    }
    own = Retriever.plan

    def read(self, texts):
        return [replace(plan, parsed=trees[plan.text]) for plan in own(self, texts)]

    monkeypatch.setattr(Retriever, "plan", read)
    found = reading.read_fresh(retriever)
    assert found["structure"] == found["words"] == found["word_f1"] == 1
    # Nothing was trusted, so nothing was obeyed.
    assert found["obeyed"] == nothing["obeyed"]
    assert found["domains"]["taxa"]["n"] + found["elsewhere"]["n"] == len(queries)
    assert set(found["forms"]) == set(FORMS)


def test_the_figure_has_a_line_a_seed(known):
    towers, documents, rows = known
    found = reading.operand_reliability(towers, [query(["d1"], ["d2"])], documents, rows)
    figure = figures.reliability_curves("title", {"seed 0": found, "seed 1": found})
    kept, excluded, *_ = figure.axes
    for panel in (kept, excluded):
        # With the diagonal.
        assert len(panel.lines) == 3
    assert list(kept.lines[1].get_xdata()) == found["kept"]["said"]
    assert list(excluded.lines[1].get_ydata()) == found["excluded"]["found"]
