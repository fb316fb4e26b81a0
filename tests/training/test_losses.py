"""Every loss against a number worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from boolattn.training.losses import cue_loss, gate_loss, scope_loss, softmax_loss

LOG2 = math.log(2)


def test_cue_loss_counts_unpadded_tokens_only():
    logits = torch.zeros(1, 3, 4)
    logits[0, 2, 3] = 50.0  # padding: would cost 50
    labels = torch.zeros(1, 3, 4)
    labels[0, 2, 1] = 1
    mask = torch.tensor([[1, 1, 1, 0]])
    assert cue_loss(logits, labels, mask).item() == pytest.approx(LOG2)
    # One positive of nine weighs five: (8 + 5) / 9.
    weighted = cue_loss(logits, labels, mask, positive_weight=5)
    assert weighted.item() == pytest.approx(13 / 9 * LOG2)


def test_cue_loss_of_nothing_is_zero():
    assert cue_loss(torch.ones(1, 3, 2), torch.ones(1, 3, 2), torch.zeros(1, 2)).item() == 0


def test_gate_loss_divides_by_the_temperature():
    logits, labels = torch.tensor([[0.1, -0.1, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    expected = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(1)) + LOG2) / 3
    assert gate_loss(logits, labels, temperature=0.1).item() == pytest.approx(expected)


def test_scope_loss_asks_every_head_where_the_operator_is():
    # Two heads that cancel in the mean: each is wrong in one token of two.
    heads = torch.tensor([[[[1.0, -1.0]], [[-1.0, 1.0]]]])  # (1 text, 2 tokens, 1 operator, 2)
    labels = torch.tensor([[[1.0, 0.0]]])
    mask = torch.ones(1, 2)
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    loss = scope_loss([heads], labels, torch.ones(1, 1), mask)
    assert loss.item() == pytest.approx((right + wrong) / 2)
    assert scope_loss([heads], labels, torch.zeros(1, 1), mask).item() == 0
    # The mean over layers.
    perfect = torch.where(labels.transpose(1, 2)[..., None] == 1, 100.0, -100.0).expand_as(heads)
    both = scope_loss([heads, perfect], labels, torch.ones(1, 1), mask)
    assert both.item() == pytest.approx((right + wrong) / 4)


def _softmax(blocked, **options):
    queries = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    documents = torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    targets = torch.tensor([0, 2])
    return softmax_loss(queries, documents, targets, torch.tensor(blocked), **options).item()


def test_softmax_loss_over_positive_negatives_and_batch():
    free = [[False] * 3, [False] * 3]
    # Cosines: query 0 has 1, 0, 0; query 1 has 0, 1, 1.
    first, second = math.log(1 + 2 * math.exp(-1)), math.log(2 + math.exp(-1))
    assert _softmax(free, scale=1.0) == pytest.approx((first + second) / 2)
    # A known positive is no negative.
    masked = [[False] * 3, [False, True, False]]
    second = math.log(1 + math.exp(-1))
    assert _softmax(masked, scale=1.0) == pytest.approx((first + second) / 2)
    # Dot products: 2, 0, 0 and 0, 3, 1.
    first = math.log(1 + 2 * math.exp(-2))
    second = math.log(1 + math.exp(2) + math.exp(-1))
    dot = _softmax(free, scale=1.0, similarity="dot")
    assert dot == pytest.approx((first + second) / 2)
