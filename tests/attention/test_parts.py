"""Each part compared with its formula, computed in another way."""

import math

import pytest
import torch
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig
from boolattn.attention.factors import Factors
from boolattn.attention.gate import learned_gate, straight_through
from boolattn.attention.layer import (
    N_COMPARED,
    BiasPredictor,
    LayerBias,
    ScopePredictor,
    gumbel_sigmoid,
    position_weight,
    squared_distance,
)

HIDDEN, HEADS = 24, 4


@pytest.fixture
def texts() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    mask = torch.ones(2, 9)
    mask[1, 6:] = 0
    return torch.randn(2, 9, HIDDEN), mask


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_scope_convolution_is_conv1d_over_hidden_and_cue(texts, kernel):
    hidden, mask = texts
    config = BoolAttnConfig(kernel=kernel)
    scope = ScopePredictor(config, HIDDEN, HEADS).eval()
    operators = torch.randn(3, config.d_o)
    cue = torch.rand(2, 9, 3) * mask[..., None]
    got_logits, got_inside = scope(hidden, cue, mask, operators, mask)
    for e in range(3):
        joined = torch.cat([hidden * mask[..., None], cue[..., e : e + 1]], -1).transpose(1, 2)
        weight = scope.hidden_weight.view(kernel, 3, HEADS, HIDDEN)[:, e]
        weight = torch.cat([weight, scope.cue_weight[:, e, :, None]], -1).permute(1, 2, 0)
        conv = F.conv1d(joined, weight, scope.bias[e], padding=kernel // 2).transpose(1, 2)
        gamma, beta = scope.film(operators[e]).chunk(2)
        logits = gamma * conv + beta
        inside = (torch.sigmoid(logits) > 0.5) * mask[..., None]
        seen = mask.bool()
        torch.testing.assert_close(got_logits[:, :, e][seen], logits[seen], atol=1e-5, rtol=1e-5)
        assert torch.equal(got_inside[:, :, e], inside.float())


@pytest.mark.parametrize("rank", [None, 6])
def test_bias_is_softplus_of_gated_ffn(texts, rank):
    hidden, mask = texts
    config = BoolAttnConfig(rank=rank)
    features = hidden[..., : rank or HIDDEN]
    bias = BiasPredictor(config, features.shape[-1], HEADS)
    operators = torch.randn(3, config.d_o)
    cue = (torch.rand(2, 3, 9) * mask[:, None]).requires_grad_()
    position = position_weight(config, cue, bias.sigma)
    got = bias(features, position, operators)
    for e in range(3):
        if rank:
            inner = features + bias.inner_bias[e]
        else:
            inner = bias.inner(features).unflatten(-1, (3, -1))[:, :, e]
        inner = F.relu(inner + position[:, e, :, None] * bias.position_weight[e])
        score = inner @ bias.outer_weight[e] + bias.outer_bias[e]
        expected = F.softplus(score * torch.sigmoid(bias.operator(operators[e])))
        torch.testing.assert_close(got[:, :, e], expected)
    assert bool((got >= 0).all())


def test_position_weight_by_hand():
    config = BoolAttnConfig(window=2)
    cue = torch.zeros(1, 3, 6)
    cue[:, :, 2] = 0.5
    cue[:, :, 5] = 1.0
    weight = position_weight(config, cue, torch.full((3,), 2.0))

    def gauss(r: float) -> float:
        return math.exp(-(r**2) / 8)

    mutual = [max(0.5 * gauss(min(abs(i - 2), 2)), gauss(min(abs(i - 5), 2))) for i in range(6)]
    forward = [0, 0, *(max(0.5 * gauss(i - 2), gauss(i - 5) if i >= 5 else 0) for i in range(2, 6))]
    torch.testing.assert_close(weight[0, 0], torch.tensor(mutual))
    torch.testing.assert_close(weight[0, 1], torch.tensor(mutual))
    torch.testing.assert_close(weight[0, 2], torch.tensor(forward, dtype=torch.float32))


@pytest.mark.parametrize("n_tokens", [12, N_COMPARED + 30])
def test_position_weight_is_the_same_with_and_without_gradient(n_tokens):
    config = BoolAttnConfig(window=3)
    # Few probable cues: in a long text their weights come from afar.
    cue = torch.rand(2, 3, n_tokens).pow(6).requires_grad_()
    sigma = torch.tensor([0.7, 2.0, 5.0], requires_grad=True)
    squared = squared_distance(config, n_tokens, cue.device)
    trained = position_weight(config, cue, sigma)
    with torch.no_grad():
        torch.testing.assert_close(trained, position_weight(config, cue, sigma))
    # The gradient of the maximum over the pairwise tensor, which training does not save.
    pairwise = (torch.exp(-squared / (2 * sigma**2)[:, None, None]) * cue[:, :, None]).amax(-1)
    seed = torch.rand_like(trained)
    for ours, theirs in zip(
        torch.autograd.grad(trained, (cue, sigma), seed),
        torch.autograd.grad(pairwise, (cue, sigma), seed),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_sigma_of_zero_gives_finite_weights_and_gradients():
    config = BoolAttnConfig()
    cue, sigma = torch.rand(1, 3, 5), torch.zeros(3, requires_grad=True)
    weight = position_weight(config, cue, sigma)
    weight.sum().backward()
    assert bool(torch.isfinite(weight).all())
    assert bool(torch.isfinite(sigma.grad).all())


def test_straight_through_has_hard_values_and_soft_gradients():
    soft = torch.tensor([0.3, 0.7], requires_grad=True)
    out = straight_through(soft > 0.5, soft * 3)
    assert out.tolist() == [0.0, 1.0]
    out.sum().backward()
    assert soft.grad.tolist() == [3.0, 3.0]


def test_gumbel_sigmoid_exceeds_half_as_often_as_its_sigmoid():
    torch.manual_seed(0)
    logits = torch.tensor([-2.0, 0.0, 1.5]).expand(40_000, 3)
    share = (gumbel_sigmoid(logits, 1.0) > 0.5).float().mean(0)
    torch.testing.assert_close(share, torch.sigmoid(logits[0]), atol=0.01, rtol=0)


def test_learned_gate_divides_by_its_temperature_and_thresholds(texts):
    hidden, mask = texts
    gate = learned_gate(BoolAttnConfig(gate="learned", variant="paper"), HIDDEN)
    got = gate(hidden, mask)
    mean = torch.stack([hidden[0].mean(0), hidden[1, :6].mean(0)])
    logits = gate.outer(F.relu(gate.inner(mean)))
    torch.testing.assert_close(got.logits, logits)
    assert torch.equal(got.open.detach(), (torch.sigmoid(logits / 0.1) > 0.5).float())
    got.open.sum().backward()
    assert gate.inner.weight.grad.abs().sum() > 0


def test_factors_multiply_out_to_the_formula():
    torch.manual_seed(0)
    factors = Factors(torch.rand(2, HEADS, 5, 3), torch.rand(2, HEADS, 5, 3), scale=0.5)
    dense = factors.dense()
    b, h, i, j = 1, 2, 3, 4
    by_hand = 0.5 * sum(factors.query[b, h, i, e] * factors.key[b, h, j, e] for e in range(3))
    torch.testing.assert_close(dense[b, h, i, j], by_hand)


@pytest.mark.parametrize("dim", [8, 5])
def test_factored_attention_is_attention_with_the_dense_bias(dim):
    torch.manual_seed(0)
    heads = tuple(torch.randn(2, HEADS, 7, dim) for _ in range(3))
    scale = dim**-0.5
    factors = Factors(torch.rand(2, HEADS, 7, 3), torch.randn(2, HEADS, 7, 3), scale=scale)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[1, ..., 5:] = False
    got = LayerBias(None, None, factors).fused(heads, mask, dropout=0.0)
    dense = factors.dense().masked_fill(~mask, -torch.inf)
    weights = (heads[0] @ heads[1].transpose(-1, -2) * scale + dense).softmax(-1)
    torch.testing.assert_close(got, weights @ heads[2], atol=1e-5, rtol=1e-5)
