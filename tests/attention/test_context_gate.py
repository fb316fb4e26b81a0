"""The contextual gate: formula, padding, word order, dropout."""

import pytest
import torch
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig
from boolattn.attention.gate import ContextGate, learned_gate

HIDDEN = 24


def build_gate(**changes):
    torch.manual_seed(4)
    return learned_gate(BoolAttnConfig(gate="learned", **changes), HIDDEN)


@pytest.fixture
def texts() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    mask = torch.ones(2, 9)
    mask[1, 6:] = 0
    return torch.randn(2, 9, HIDDEN), mask


@pytest.mark.parametrize("rank", [None, 6])
def test_matches_the_formula(texts, rank):
    hidden, mask = texts
    gate = build_gate(rank=rank).eval()
    assert isinstance(gate, ContextGate)
    for row, length in enumerate((9, 6)):
        alone = F.layer_norm(hidden[row, :length], (HIDDEN,), gate.norm.weight, gate.norm.bias)
        context = F.conv1d(alone.T, gate.conv.weight, gate.conv.bias, padding=2).relu()
        features = torch.cat([context.amax(-1), alone.mean(0)])
        logits = gate.outer(F.relu(gate.inner(features)))
        got = gate(hidden, mask)
        torch.testing.assert_close(got.logits[row], logits, atol=1e-6, rtol=1e-5)
        assert torch.equal(got.open[row].detach(), (logits > 0).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_changes_nothing(texts, dtype):
    hidden, mask = texts
    gate = build_gate().eval().to(dtype)
    hidden = hidden.to(dtype)
    with torch.no_grad():
        expected = gate(hidden, mask).logits
        noisy = torch.where(mask[..., None].bool(), hidden, 1e3)
        assert torch.equal(gate(noisy, mask).logits, expected)
        longer = F.pad(noisy, (0, 0, 0, 40), value=7.0)
        got = gate(longer, F.pad(mask, (0, 40))).logits
        left = gate(F.pad(hidden, (0, 0, 5, 0), value=7.0), F.pad(mask, (5, 0))).logits
    limit = 1e-6 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got, expected, atol=limit, rtol=0)
    torch.testing.assert_close(left, expected, atol=limit, rtol=0)
    nothing = gate(hidden, mask * 0)
    assert bool(torch.isfinite(nothing.logits).all())


def test_depends_on_word_order_and_the_mean_does_not(texts):
    hidden, mask = texts
    turned = torch.stack([hidden[0].flip(0), torch.cat([hidden[1, :6].flip(0), hidden[1, 6:]])])
    for reads, has_order in (("mean", False), ("context", True)):
        gate = build_gate(gate_reads=reads).eval()
        moved = (gate(turned, mask).logits - gate(hidden, mask).logits).abs().amax(-1)
        assert bool((moved > 1e-3).all()) is has_order


def order_task(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return texts of twelve random words with "a b" or "b a"; only "a b" is labelled NOT."""
    words = torch.randn(30, HIDDEN, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(2, 30, (n, 12))
    at, is_first = torch.randint(0, 11, (n,)), torch.rand(n) < 0.5
    ids[torch.arange(n), at] = torch.where(is_first, 0, 1)
    ids[torch.arange(n), at + 1] = torch.where(is_first, 1, 0)
    labels = torch.stack([torch.zeros(n), torch.zeros(n), is_first.float()], 1)
    return words[ids], torch.ones(n, 12), labels


def test_learns_a_label_that_depends_on_order():
    right = {}
    for reads in ("mean", "context"):
        gate = build_gate(gate_reads=reads)
        optimizer = torch.optim.AdamW(gate.parameters(), lr=5e-3)
        torch.manual_seed(0)
        for _ in range(120):
            hidden, mask, labels = order_task(64)
            logits = gate(hidden, mask).logits / gate.config.gate_temperature
            loss = F.binary_cross_entropy_with_logits(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        hidden, mask, labels = order_task(400)
        with torch.no_grad():
            is_right = gate.eval()(hidden, mask).open == labels
        right[reads] = is_right.all(-1).float().mean().item()
    assert right["mean"] < 0.65
    assert right["context"] > 0.95


def test_dropout_only_while_the_gate_is_trained(texts):
    hidden, mask = texts

    def twice(gate, *, has_gradient=True):
        torch.manual_seed(0)
        state = torch.get_rng_state()
        with torch.set_grad_enabled(has_gradient):
            first, second = gate(hidden, mask).logits, gate(hidden, mask).logits
        return torch.equal(first, second), torch.equal(torch.get_rng_state(), state)

    assert twice(build_gate().train()) == (False, False)
    unchanged = (True, True)
    assert twice(build_gate().eval()) == unchanged
    assert twice(build_gate().train(), has_gradient=False) == unchanged
    assert twice(build_gate().train().requires_grad_(False)) == unchanged
    assert twice(build_gate(use_noise=False).train()) == unchanged
    assert twice(build_gate(gate_reads="mean").train()) == unchanged


def test_autocast_keeps_logits_and_gradients(texts):
    hidden, mask = texts
    gate = build_gate(use_noise=False)
    expected = gate(hidden, mask)
    with torch.autocast("cpu", torch.bfloat16):
        got = gate(hidden, mask)
    torch.testing.assert_close(got.logits.float(), expected.logits, atol=0.02, rtol=0)
    got.open.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in gate.parameters())
