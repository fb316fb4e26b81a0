"""The seven errors of the paper: present in the paper variant, absent in the corrected one."""

import torch
from torch import nn
from torch.nn import functional as F

from boolattn.attention.boolattn import BoolAttn
from boolattn.attention.config import BoolAttnConfig
from boolattn.attention.gate import Gate, cue_predictor
from boolattn.attention.layer import position_weight, words
from boolattn.plugin.storage import attach
from tests.conftest import trained

HIDDEN, HEADS, TOKENS = 24, 4, 8


def attention_change(variant: str) -> float:
    """Return the largest change that a NOT bias makes to the output of one attention layer."""
    torch.manual_seed(0)
    plugin = BoolAttn(
        BoolAttnConfig(variant=variant), hidden_size=HIDDEN, n_heads=HEADS, n_layers=1
    ).eval()
    trained(plugin)
    hidden, mask = torch.randn(2, TOKENS, HIDDEN), torch.ones(2, TOKENS)
    cues = plugin.find_cues(hidden, mask, Gate(torch.tensor([[0.0, 0.0, 1.0]]).expand(2, -1)))
    bias = plugin(0, hidden, cues).factors.dense()
    assert bias.abs().max() > 0.1
    scores, values = torch.randn(2, HEADS, TOKENS, TOKENS), torch.randn(2, HEADS, TOKENS, 6)
    moved = (scores + bias).softmax(-1) @ values - scores.softmax(-1) @ values
    return float(moved.detach().abs().max())


def test_error_1_paper_not_has_no_effect():
    assert attention_change("paper") < 1e-5
    assert attention_change("corrected") > 0.05


def test_error_2_paper_not_weights_tokens_before_the_cue():
    cue = torch.zeros(1, 3, TOKENS)
    cue[:, :, 4] = 1.0
    for variant, before in (("paper", 1.0), ("corrected", 0.0)):
        config = BoolAttnConfig(variant=variant)
        weight = position_weight(config, cue, torch.full((3,), 2.0))[0, 2]
        assert weight[:4].tolist() == [before] * 4
        assert weight[4] == 1.0
        assert bool((weight[5:] < weight[4:-1]).all())


def train_cues(variant: str) -> torch.Tensor:
    """Train cue predictors on one cue word for each operator; return F1 by operator."""
    torch.manual_seed(0)
    embedding = nn.Embedding(30, HIDDEN)
    words = torch.randint(3, 30, (64, TOKENS))
    words[:, 2], words[:, 5] = torch.randint(0, 3, (64,)), torch.randint(0, 3, (64,))
    labels = torch.stack([words == e for e in range(3)], 1).float()
    config = BoolAttnConfig(variant=variant)
    predictor = cue_predictor(config, HIDDEN)
    operators = nn.Parameter(torch.randn(3, config.d_o))
    optimizer = torch.optim.Adam([*predictor.parameters(), operators], lr=0.02)
    hidden, mask = embedding(words).detach(), torch.ones(64, TOKENS)
    for _ in range(200):
        logits = predictor(hidden, mask, operators)
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    predicted = (predictor(hidden, mask, operators) > 0).float()
    hits = (predicted * labels).sum((0, 2))
    return 2 * hits / (predicted.sum((0, 2)) + labels.sum((0, 2)))


def test_error_3_paper_cues_are_the_same_for_every_operator():
    config = BoolAttnConfig(variant="paper")
    torch.manual_seed(0)
    logits = cue_predictor(config, HIDDEN)(
        torch.randn(2, TOKENS, HIDDEN), torch.ones(2, TOKENS), torch.randn(3, config.d_o)
    )
    # The logits of two operators differ by one constant.
    torch.testing.assert_close(
        logits[:, 0] - logits[:, 1], (logits[0, 0, 0] - logits[0, 1, 0]).expand(2, TOKENS)
    )
    assert train_cues("paper").max() < 0.7
    assert train_cues("corrected").min() > 0.95


def test_error_4_paper_uses_one_of_several_cues():
    cue = torch.zeros(1, 3, 12)
    cue[:, :, 1], cue[:, :, 10] = 1.0, 0.9
    weights = {}
    for variant in ("paper", "corrected"):
        config = BoolAttnConfig(variant=variant)
        weights[variant] = position_weight(config, cue, torch.full((3,), 2.0))[0, 0]
    assert weights["paper"][10] < 0.05
    torch.testing.assert_close(weights["corrected"][10], torch.tensor(0.9))
    assert weights["paper"][1] == weights["corrected"][1] == 1.0
    # The chosen cue gets a gradient.
    cue.requires_grad_()
    config = BoolAttnConfig()
    position_weight(config, cue, torch.full((3,), 2.0))[0, 0, 10].backward()
    assert cue.grad[0, 0, 10] == 1.0


def test_error_5_paper_cues_have_no_context():
    torch.manual_seed(0)
    hidden, mask = torch.randn(1, TOKENS, HIDDEN), torch.ones(1, TOKENS)
    other = hidden.clone()
    other[0, 3] += 1
    for variant, reach in (("paper", 0), ("corrected", 2)):
        config = BoolAttnConfig(variant=variant)
        predictor, operators = cue_predictor(config, HIDDEN), torch.randn(3, config.d_o)
        moved = predictor(hidden, mask, operators) - predictor(other, mask, operators)
        touched = (moved.abs().amax((0, 1)) > 1e-6).nonzero().flatten().tolist()
        assert touched == list(range(3 - reach, 3 + reach + 1))


def scopes_of(variant: str, moved: float) -> torch.Tensor:
    """Return the scopes of a text of six tokens and two of padding, after θ has been trained."""
    torch.manual_seed(0)
    plugin = BoolAttn(
        BoolAttnConfig(variant=variant), hidden_size=HIDDEN, n_heads=HEADS, n_layers=1
    ).eval()
    plugin.layers["0"].scope.threshold.data += moved
    hidden, mask = torch.randn(1, TOKENS, HIDDEN), torch.ones(1, TOKENS)
    mask[:, 6:] = 0
    cues = plugin.find_cues(hidden, mask, Gate(torch.ones(1, 3)))
    return plugin(0, hidden, cues).inside[0]


def test_error_6_paper_threshold_leaves_the_range_of_a_probability():
    # Below 0 every token is in scope, [CLS] and [SEP] too; above 1 none.
    assert scopes_of("paper", -0.6)[:6].all()
    assert not scopes_of("paper", 0.6).any()
    for moved in (-0.6, 0.6):
        inside = scopes_of("corrected", moved)
        assert inside.any()
        assert not inside[1:5].all()
        assert not inside[[0, 5, 6, 7]].any()
    # Moved without end it is still a probability, and special tokens are still outside.
    assert not scopes_of("corrected", -50)[[0, 5, 6, 7]].any()
    assert scopes_of("corrected", -50)[1:5].all()


def test_error_7_the_papers_bias_disturbs_before_it_is_trained(tiny_encoder, batch):
    labels = torch.ones(3, 3)
    for variant in ("paper", "corrected"):
        encoder = tiny_encoder("bert")
        with torch.no_grad():
            before = encoder(**batch).last_hidden_state
            torch.manual_seed(0)
            plugin = attach(encoder, BoolAttnConfig(variant=variant))
            after = encoder(**batch, operators=labels).last_hidden_state
            assert torch.equal(after, before) == (variant == "corrected")
            # Its strength is log 2 or so from the start; corrected, a factor of 0 multiplies it.
            trained(plugin)
            assert not torch.equal(encoder(**batch, operators=labels).last_hidden_state, before)


def test_the_decision_is_what_scope_supervision_sees():
    torch.manual_seed(0)
    config = BoolAttnConfig(scope_temperature=0.7)
    scope = BoolAttn(config, hidden_size=HIDDEN, n_heads=HEADS, n_layers=1).layers["0"].scope.eval()
    scope.threshold.data = torch.tensor([-1.0, 0.5, 2.0])
    hidden, cue, mask = (
        torch.randn(2, TOKENS, HIDDEN),
        torch.rand(2, TOKENS, 3),
        torch.ones(2, TOKENS),
    )
    logits, inside = scope(hidden, cue, mask, torch.randn(3, config.d_o), mask)
    assert torch.equal(inside, (logits > 0).float())
    logits.sum().backward()
    assert (scope.threshold.grad < 0).all()


def test_words_are_what_is_between_the_special_tokens():
    mask = torch.tensor([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    assert words(mask).int().tolist() == [
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    # More tokens than half precision can count.
    long = words(torch.ones(1, 600, dtype=torch.bfloat16))
    assert long.sum() == 598


def test_the_papers_operator_factor_has_no_constant():
    for variant in ("paper", "corrected"):
        config = BoolAttnConfig(variant=variant)
        layer = BoolAttn(config, hidden_size=HIDDEN, n_heads=HEADS, n_layers=1).layers["0"]
        assert layer.bias.operator.bias is None
