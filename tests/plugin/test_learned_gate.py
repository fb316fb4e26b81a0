"""A learned gate in an encoder, tested in pairs: closed and open."""

import pytest
import torch

from boolattn import BoolAttnConfig
from boolattn.plugin.backend import recording
from tests.conftest import FAMILIES, attach_trained

READS = ["mean", "context"]


def run(encoder, batch, *, is_training=False):
    encoder.train(is_training)
    encoder.zero_grad()
    torch.manual_seed(3)
    hidden = encoder(**batch).last_hidden_state
    seen = hidden[batch["attention_mask"].bool()]
    seen.square().sum().backward()
    own = {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}
    return seen.detach(), {name: grad for name, grad in own.items() if "boolattn" not in name}


def hidden(encoder, batch, *, is_training):
    """Encode without gradients; return the output on unpadded tokens."""
    encoder.train(is_training)
    torch.manual_seed(3)
    with torch.no_grad():
        return encoder(**batch).last_hidden_state[batch["attention_mask"].bool()]


def gated(encoder, bias, reads="context", **changes):
    torch.manual_seed(5)
    plugin = attach_trained(
        encoder, BoolAttnConfig(gate="learned", gate_reads=reads, rank=8, **changes)
    )
    plugin.gate.outer.bias.data.fill_(bias)
    return plugin


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_closed_gate_changes_no_bit_and_an_open_one_does(
    tiny_encoder, batch, family, reads, is_training
):
    encoder = tiny_encoder(family)
    bare = hidden(encoder, batch, is_training=is_training)
    before, gradients = run(encoder, batch, is_training=is_training)
    plugin = gated(encoder, -9.0, reads, use_noise=False)
    assert torch.equal(hidden(encoder, batch, is_training=is_training), bare)
    # In training the layers run with a bias of zero.
    after, others = run(encoder, batch, is_training=is_training)
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert gradients.keys() == others.keys()
    torch.testing.assert_close(others, gradients, atol=1e-4, rtol=1e-4)
    plugin.gate.outer.bias.data.fill_(9.0)
    assert not torch.equal(hidden(encoder, batch, is_training=is_training), bare)
    after, others = run(encoder, batch, is_training=is_training)
    assert (after - before).abs().max() > 1e-4
    assert any((others[name] - gradients[name]).abs().max() > 1e-3 for name in gradients)


def test_an_untrained_pass_draws_no_random_numbers_for_the_gate(tiny_encoder, batch):
    encoder = tiny_encoder()
    bare = hidden(encoder, batch, is_training=True)
    gated(encoder, -9.0)
    assert torch.equal(hidden(encoder, batch, is_training=True), bare)


@pytest.mark.parametrize("reads", READS)
def test_gate_of_a_text_alone_or_padded_is_the_same(tiny_encoder, batch, reads):
    encoder = tiny_encoder(initializer_range=0.5)
    gated(encoder, 0.0, reads)
    opened = []
    with torch.no_grad():
        for row, length in enumerate((11, 7, 4)):
            short = {name: value[row : row + 1, :length] for name, value in batch.items()}
            with recording() as record:
                encoder(**short)
            opened.append(record.cue_states[0].gate)
        with recording() as record:
            encoder(**batch)
    together = record.cue_states[0].gate
    alone = torch.cat([gate.logits for gate in opened])
    torch.testing.assert_close(together.logits, alone, atol=1e-6, rtol=0)
    assert torch.equal(together.open, (together.logits > 0).float())
    assert together.logits.std(0).max() > 1e-3  # it differs between texts


def test_compiles_for_every_length(tiny_encoder):
    gate = gated(tiny_encoder(), 0.0).gate.eval()
    torch._dynamo.reset()
    compiled = torch.compile(gate, backend="eager", fullgraph=True, dynamic=True)
    for shape in ((2, 7), (3, 12)):
        states, mask = torch.randn(*shape, 32), torch.ones(shape)
        mask[0, 5:] = 0
        torch.testing.assert_close(compiled(states, mask).logits, gate(states, mask).logits)


def test_the_light_form_has_fewer_parameters(tiny_encoder):
    sizes = {}
    for rank in (None, 8):
        plugin = attach_trained(tiny_encoder(), BoolAttnConfig(gate="learned", rank=rank))
        sizes[rank] = sum(p.numel() for p in plugin.gate.parameters())
    assert sizes[8] < sizes[None] / 3
