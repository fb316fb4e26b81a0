"""Settings of ablations: without them nothing changes, with them one part has no effect."""

import math

import pytest
import torch

from boolattn.attention.config import BoolAttnConfig
from boolattn.attention.gate import shuffle
from boolattn.plugin.backend import recording
from tests.conftest import attach_trained

LABELS = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
VARIANTS = pytest.mark.parametrize("variant", ["paper", "corrected"])


def encode(tiny_encoder, batch, labels=LABELS, **settings):
    """Return the last hidden state and what was recorded, always of the same weights."""
    encoder = tiny_encoder("bert").eval()
    torch.manual_seed(3)
    attach_trained(encoder, BoolAttnConfig(**settings))
    with torch.no_grad(), recording() as record:
        hidden = encoder(**batch, operators=labels).last_hidden_state
    return hidden[batch["attention_mask"].bool()], record


@VARIANTS
def test_a_fixed_bias_of_0_is_the_encoder_alone(tiny_encoder, batch, variant):
    plain, _ = encode(tiny_encoder, batch, torch.zeros_like(LABELS), variant=variant)
    usual, _ = encode(tiny_encoder, batch, variant=variant)
    none, _ = encode(tiny_encoder, batch, variant=variant, fixed_bias=0.0)
    torch.testing.assert_close(none, plain)
    assert (usual - plain).abs().max() > 1e-4


@VARIANTS
def test_a_fixed_bias_is_the_same_on_every_token_in_scope(tiny_encoder, batch, variant):
    _, record = encode(tiny_encoder, batch, variant=variant, fixed_bias=math.log(2))
    _, usual = encode(tiny_encoder, batch, variant=variant)
    for one, is_fixed in ((record, True), (usual, False)):
        layer = one.biases[0]
        # The first factor of a key is the strength of AND, which is open in the first text.
        strength = layer.factors.key[0, :, :, 0] * layer.factors.scale
        inside = strength[strength > 0]
        assert len(inside) > 1
        assert torch.allclose(inside, torch.tensor(math.log(2))) is is_fixed


def test_a_fixed_bias_leaves_a_gradient_of_0(tiny_encoder, batch):
    encoder = tiny_encoder("bert")
    plugin = attach_trained(encoder, BoolAttnConfig(fixed_bias=1.0, use_noise=False))
    encoder(**batch, operators=LABELS).last_hidden_state.square().sum().backward()
    [first, *_] = (layer.bias.outer_weight.grad for layer in plugin.layers.values())
    assert torch.equal(first, torch.zeros_like(first))
    assert plugin.layers["0"].scope.film.weight.grad.abs().max() > 0


@VARIANTS
def test_shuffled_cues_change_the_bias_and_not_the_prediction(tiny_encoder, batch, variant):
    usual, before = encode(tiny_encoder, batch, variant=variant)
    same, _ = encode(tiny_encoder, batch, variant=variant, cue_seed=None)
    moved, after = encode(tiny_encoder, batch, variant=variant, cue_seed=0)
    assert torch.equal(usual, same)
    assert not torch.equal(usual, moved)
    first, second = before.cue_states[-1], after.cue_states[-1]
    assert torch.equal(first.cue_logits, second.cue_logits)
    assert not torch.equal(first.cue, second.cue)
    # The same probabilities, so the same rate, at other tokens of the same text.
    assert torch.equal(first.cue.sort(-1).values, second.cue.sort(-1).values)


def test_shuffled_cues_depend_on_text_and_seed_not_on_padding():
    cue = torch.arange(1.0, 8.0)[None, None]
    alone = shuffle(cue, torch.ones(1, 7), 0)[0, 0]
    assert sorted(alone.tolist()) == cue.flatten().tolist()
    assert not torch.equal(alone, shuffle(cue, torch.ones(1, 7), 1)[0, 0])
    for before, after in ((0, 4), (4, 0)):
        padded = torch.nn.functional.pad(cue, (before, after))
        mask = torch.nn.functional.pad(torch.ones(1, 7), (before, after))
        found = shuffle(padded, mask, 0)[0, 0]
        assert torch.equal(found[before : before + 7], alone)
        assert found.sum() == alone.sum()
    # A longer text has an order of its own, not the same one continued.
    longer = shuffle(torch.arange(1.0, 9.0)[None, None], torch.ones(1, 8), 0)[0, 0]
    assert [v for v in longer.tolist() if v < 8] != alone.tolist()
