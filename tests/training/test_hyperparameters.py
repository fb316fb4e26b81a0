"""Selection of the composition's hyper-parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from boolattn.encoder.retriever import Retriever
from boolattn.errors import ConfigError
from boolattn.logic.tree import And, Atom, Not, Or
from boolattn.training.post.calibration import (
    OFFSETS,
    WEIGHTS,
    Candidate,
    HyperparameterSearch,
    JudgedPlan,
    select_hyperparameters,
)


def _padded(documents):
    """Pad vectors of three numbers to the tiny encoder's 32."""
    return torch.nn.functional.pad(documents, (0, 29))


class TestSelection:
    """Selection on documents whose similarities are known."""

    @pytest.fixture
    def retriever(self, tiny_encoder, tokenizer):
        from boolattn.encoder import build_towers

        return Retriever(build_towers(tiny_encoder(), tokenizer=tokenizer))

    def _judged(self, retriever, tree, vectors, gold, excluded=(), plain=None):
        [plan] = retriever.plan_trees([tree])
        vectors = np.pad(vectors, ((0, 0), (0, 29))).astype(np.float32)
        plain = vectors[-1] if plain is None else np.pad(plain, (0, 29)).astype(np.float32)
        plan = replace(plan, vectors=vectors, plain=plain)
        return JudgedPlan(plan, frozenset(gold), frozenset(excluded))

    def _measure(self, search, offset, margin=0.0, weights=(0.0, 0.0, 0.0)):
        found = search.measure([0], [Candidate(offset, margin, weights)])
        return found.r_precision.item(), found.leak.item()

    def test_the_smallest_sufficient_offset_is_selected(self, retriever):
        # Document 0 is relevant, 1 is excluded, 2 is neither and must come before 1.
        documents = torch.tensor([[0.8, 0.38, 0.0], [0.85, 0.45, 0.0], [0.4, 0.1, 0.0]])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0], [1])]
        search = HyperparameterSearch(retriever, judged, _padded(documents))
        assert self._measure(search, 0.0) == (1.0, 1.0)
        assert self._measure(search, 0.2) == (0.0, 0.0)
        found = select_hyperparameters(search)
        assert (found.negation_offset, found.negation_margin) == (0.1, 0.0)
        assert (found.r_precision, found.leak) == (1.0, 0.0)
        assert retriever.calibration.negation_offset.item() == pytest.approx(0.1)
        assert retriever.calibration.negation_margin.item() == 0

    def test_a_margin_keeps_documents_near_both_operands(self, retriever):
        # Document 0 is nearer to the negated operand than 1, and nearer still to the positive one.
        documents = torch.tensor([[0.95, 0.6, 0.0], [0.56, 0.58, 0.0], [0.5, 0.2, 0.0]])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0], [1])]
        search = HyperparameterSearch(retriever, judged, _padded(documents))
        for offset in OFFSETS:
            assert self._measure(search, offset) != (1.0, 0.0)
        found = select_hyperparameters(search)
        assert (found.r_precision, found.leak) == (1.0, 0.0)
        assert found.negation_margin > 0
        [plan] = [one.plan for one in judged]
        scores = retriever.score(plan, plan.vectors @ _padded(documents).numpy().T)
        assert scores.argsort()[::-1].tolist() == [0, 2, 1]

    def test_a_lower_leak_does_not_cost_quality_of_the_plain_vector(self, retriever):
        # Relevant (0, 1) and excluded documents (2 to 4) have the same operand similarities: all
        # five rank behind the others, or, by the plain vector, before them.
        relevant, excluded, other = [0.8, 0.9, 0.9], [0.8, 0.9, 0.899], [0.3, -0.9, 0.0]
        documents = torch.tensor([*[relevant] * 2, *[excluded] * 3, *[other] * 200])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0, 1], [2, 3, 4])]
        search = HyperparameterSearch(retriever, judged, _padded(documents))
        assert self._measure(search, 0.2) == (0.0, 0.0)
        found = select_hyperparameters(search)
        assert (found.r_precision, found.leak) == (1.0, 1.0)
        assert search.measure_plain([0]).quality.item() == 1.0

    def test_a_large_whole_query_weight_is_selected_where_needed(self, retriever):
        # As above, but the whole-query similarities differ so little that a large weight is needed.
        relevant, excluded, other = [0.8, 0.9, 0.05], [0.8, 0.9, 0.0499], [0.3, -0.9, 0.0]
        documents = torch.tensor([*[relevant] * 2, *[excluded] * 3, *[other] * 200])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0, 1], [2, 3, 4])]
        found = select_hyperparameters(HyperparameterSearch(retriever, judged, _padded(documents)))
        assert found.r_precision == 1.0
        assert found.weights[2] >= 3

    def test_a_leak_costs_two_relevant_documents_where_the_plain_vector_finds_none(self, retriever):
        # Relevant and two of three excluded documents rank together. The plain vector, last in a
        # document here, finds neither, so nothing is lost.
        relevant, excluded, other = (
            [0.8, 0.9, 0.9, -1.0],
            [0.8, 0.9, 0.899, -1.0],
            [0.3, -0.9, 0.0, 0.0],
        )
        far = [-0.9, 0.9, -0.9, -1.0]
        documents = torch.tensor([*[relevant] * 2, *[excluded] * 2, far, *[other] * 200])
        documents = torch.nn.functional.pad(documents, (0, 28))
        tree = And((Atom("a"), Not(Atom("b"))))
        one = self._judged(retriever, tree, np.eye(3), [0, 1], [2, 3, 4])
        assert (
            select_hyperparameters(HyperparameterSearch(retriever, [one], documents)).r_precision
            == 1.0
        )
        plain = np.eye(32, dtype=np.float32)[3]
        one = replace(one, plan=replace(one.plan, plain=plain))
        search = HyperparameterSearch(retriever, [one], documents)
        assert search.measure_plain([0]).quality.item() == 0
        found = select_hyperparameters(search)
        assert (found.r_precision, found.leak) == (0.0, 0.0)

    @pytest.mark.parametrize("join", [And, Or])
    def test_recall_counts_beside_precision(self, retriever, join):
        # With any weight document 0 ranks first and 1 second; 2 is relevant too, and only the
        # operands rank it within the first hundred.
        known = [[0.9, 0.9, 0.9], [0.8, 0.8, 0.8], [0.5, 0.5, 0.0]]
        documents = torch.tensor([*known, *[[0.0, 0.0, 0.3]] * 150])
        tree = join((Atom("a"), Atom("b")))
        judged = [self._judged(retriever, tree, np.eye(3), [0, 2]) for _ in range(3)]
        search = HyperparameterSearch(retriever, judged, _padded(documents))
        place = 0 if join is And else 1
        assert select_hyperparameters(search).weights[place] < WEIGHTS[-1]
        light, heavy = (Candidate(0.0, 0.0, (w, w, 0.0)) for w in (0.0, WEIGHTS[-1]))
        found = search.measure([0], [light, heavy])
        assert found.r_precision.tolist() == [[0.5, 0.5]]
        assert found.recall.tolist() == [[1.0, 0.5]]

    def test_unused_operators_keep_their_trained_values(self, retriever):
        documents = torch.tensor([[0.3, 0.3, 0.9], [0.6, 0.3, 0.0]])
        judged = [self._judged(retriever, Or((Atom("a"), Atom("b"))), np.eye(3), [0])] * 2
        with torch.no_grad():
            retriever.calibration.negation_margin.fill_(0.3)
            retriever.calibration.negation_offset.fill_(0.07)
        before = retriever.calibration.whole_query.detach().clone()
        select_hyperparameters(HyperparameterSearch(retriever, judged, _padded(documents)))
        after = retriever.calibration
        assert (after.negation_margin.item(), after.negation_offset.item()) == pytest.approx(
            (0.3, 0.07)
        )
        assert torch.allclose(after.whole_query[[0, 2]], before[[0, 2]], atol=1e-4)
        assert not torch.allclose(after.whole_query[1], before[1], atol=1e-2)

    def test_or_takes_the_whole_query_vector_where_it_is_better(self, retriever):
        # The operands prefer document 1; by the whole-query vector 0 is relevant.
        documents = torch.tensor([[0.3, 0.3, 0.9], [0.6, 0.3, 0.0]])
        judged = [self._judged(retriever, Or((Atom("a"), Atom("b"))), np.eye(3), [0])]
        found = select_hyperparameters(HyperparameterSearch(retriever, judged, _padded(documents)))
        assert found.weights[1] > 0
        assert found.r_precision == 1.0
        [plan] = [one.plan for one in judged]
        scores = retriever.score(plan, plan.vectors @ _padded(documents).numpy().T)
        assert scores[0] > scores[1]

    def _ranked_by(self, retriever, n_operands, n_whole):
        """Return the weight for queries that operands, or the whole-query vector, rank right."""
        documents = torch.tensor([[0.9, 0.0, 0.1], [0.1, 0.0, 0.9]])
        tree = Or((Atom("a"), Atom("b")))
        known = [0] * n_operands + [1] * n_whole
        judged = [self._judged(retriever, tree, np.eye(3), [gold]) for gold in known]
        return select_hyperparameters(
            HyperparameterSearch(retriever, judged, _padded(documents))
        ).weights[1]

    def test_differences_within_the_error_take_the_largest_weight(self, retriever):
        # The operands are right more often in both: by one query, and by far.
        assert self._ranked_by(retriever, 6, 5) == WEIGHTS[-1]
        assert self._ranked_by(retriever, 11, 1) < 1
        # One query is never enough.
        assert self._ranked_by(retriever, 1, 0) == WEIGHTS[-1]

    def test_rounding_does_not_decide(self, retriever):
        documents = torch.tensor([[0.9, 0.0, 0.1], [0.1, 0.0, 0.9], [0.5, 0.0, 0.5]])
        tree = Or((Atom("a"), Atom("b")))
        [differs, same] = [
            self._judged(retriever, tree, np.eye(3), gold) for gold in ([0], [0, 1, 2])
        ]
        for n in range(1, 30):
            search = HyperparameterSearch(retriever, [differs, *[same] * n], _padded(documents))
            assert select_hyperparameters(search).weights[1] == WEIGHTS[-1]

    def test_no_parsed_query_is_an_error(self, retriever):
        with pytest.raises(ConfigError, match="no validation query was parsed as Boolean"):
            select_hyperparameters(HyperparameterSearch(retriever, [], torch.zeros(1, 3)))
