"""Folded weights: the reference's values, only where they may be used, never old ones."""

from __future__ import annotations

import copy

import pytest
import torch

from boolattn import BoolAttnConfig, attach
from boolattn.plugin.backend import recording
from tests.conftest import FAMILIES, trained

OPEN = [["and"], ["not", "or"], ["not"]]
GATES = [OPEN, [["and", "or", "not"]] * 3, [[], ["not"], []], [["or"], [], ["and"]]]


def scattered(plugin):
    """Give every parameter a value that matters; untrained ones leave some parts inactive."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in plugin.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.5 * noise.to(parameter.device, parameter.dtype))
    return plugin


def outputs(encoder, batch, **options):
    with torch.no_grad():
        hidden = encoder.eval()(**batch, **options).last_hidden_state
    return hidden[batch["attention_mask"].bool()]


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rank": 4},
        {"rank": 4, "use_factor": False},
        {"kernel": 1},
        {"kernel": 5, "bounded_scope": False, "scope_temperature": 0.5},
    ],
)
def test_values_are_the_references(tiny_encoder, batch, settings, gate):
    encoder = tiny_encoder(initializer_range=0.3)
    plugin = scattered(attach(encoder, BoolAttnConfig(**settings)))
    bare = outputs(encoder, batch)
    expected = outputs(encoder, batch, operators=gate)
    plugin.fold()
    got = outputs(encoder, batch, operators=gate)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)
    assert not torch.equal(got, bare)
    assert plugin._folded is not None


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_family_and_long_texts(tiny_encoder, family, attention):
    if (family, attention) == ("mpnet", "sdpa"):
        pytest.skip("MPNet has no sdpa")
    encoder = tiny_encoder(family, attention)
    plugin = scattered(attach(encoder))
    ids = torch.randint(5, 200, (2, 60 if family == "mpnet" else 150))
    long = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    expected = outputs(encoder, long, operators=OPEN[:2])
    assert not torch.allclose(expected, outputs(encoder, long), atol=1e-3)
    plugin.fold()
    got = outputs(encoder, long, operators=OPEN[:2])
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("plain_kernels")
def test_closed_gates_change_no_bit(tiny_encoder, batch):
    encoder = tiny_encoder()
    bare = outputs(encoder, batch)
    plugin = trained(attach(encoder))
    plugin.fold()
    assert torch.equal(outputs(encoder, batch, operators=[[], [], []]), bare)
    # In a batch with open gates, the texts without are those of the bare encoder.
    hidden = outputs(encoder, batch, operators=[[], ["not"], []])
    n_first = int(batch["attention_mask"][0].sum())
    assert torch.equal(hidden[:n_first], bare[:n_first])
    assert not torch.equal(hidden, bare)


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize(
    "change", ["step", "fused", "copy", "move", "load", "replace", "swap", "graph"]
)
def test_changed_weights_are_folded_anew(tiny_encoder, batch, change):
    encoder = tiny_encoder(initializer_range=0.3)
    plugin = scattered(attach(encoder))
    plugin.fold()
    before = outputs(encoder, batch, operators=OPEN)
    if change in ("step", "fused"):  # a fused step does not count the change of a tensor
        optimizer = torch.optim.SGD(plugin.parameters(), 5.0, fused=change == "fused")
        encoder(**batch, operators=OPEN).last_hidden_state[..., 0].sum().backward()
        optimizer.step()
    elif change == "copy":
        encoder = copy.deepcopy(encoder)
        scattered(encoder.boolattn)
    elif change == "move":
        encoder.double()
    elif change == "replace":
        bias = plugin.layers["0"].bias
        bias.outer_bias = torch.nn.Parameter(bias.outer_bias.detach() + 1.0)
    elif change == "swap":
        other = copy.deepcopy(plugin.layers["0"].bias)
        with torch.no_grad():
            other.outer_bias.add_(1.0)
        plugin.layers["0"].bias = other
    elif change == "graph":  # a training step that counts no change, as a recorded one
        encoder.train()
        plugin.layers["0"].bias.outer_bias.data.add_(1.0)
    else:
        plugin.load_state_dict({n: v * 1.5 for n, v in plugin.state_dict().items()})
    got = outputs(encoder, batch, operators=OPEN)
    encoder.boolattn._may_fold = False
    torch.testing.assert_close(got, outputs(encoder, batch, operators=OPEN), atol=2e-5, rtol=1e-4)
    if change != "move":
        assert (got - before).abs().max() > 1e-3


@pytest.mark.usefixtures("plain_kernels")
def test_not_used_in_training_recording_autocast_or_for_the_paper(tiny_encoder, batch):
    encoder = tiny_encoder()
    plugin = scattered(attach(encoder))
    plugin.fold()
    labels = {"operators": OPEN}
    with recording() as record:
        outputs(encoder, batch, **labels)
    assert record.biases[1].logits is not None
    with torch.autocast("cpu", torch.bfloat16):
        outputs(encoder, batch, **labels)
    encoder.train()(**batch, **labels).last_hidden_state.sum().backward()
    encoder.eval()(**batch, **labels)
    assert plugin.operators.grad.any()
    assert plugin._folded is None
    outputs(encoder, batch, **labels)
    assert plugin._folded is not None
    for settings in ({"variant": "paper"}, {"fixed_bias": 0.7}, {"cue_seed": 1}):
        other = tiny_encoder()
        special = attach(other, BoolAttnConfig(**settings))
        special.fold()
        outputs(other, batch, **labels)
        assert special._folded is None, settings


@pytest.mark.usefixtures("plain_kernels")
def test_a_foreign_module_or_a_hook_is_not_folded_away(tiny_encoder, batch):
    class Other(torch.nn.Linear):
        def forward(self, values):
            return super().forward(values) + 1.0

    encoder = tiny_encoder(initializer_range=0.3)
    plugin = scattered(attach(encoder, BoolAttnConfig(rank=4)))
    plugin.fold()
    before = outputs(encoder, batch, operators=OPEN)
    layer = plugin.layers["0"]
    hook = layer.reduce.register_forward_hook(lambda _module, _inputs, values: values + 1.0)
    hooked = outputs(encoder, batch, operators=OPEN)
    hook.remove()
    assert torch.equal(outputs(encoder, batch, operators=OPEN), before)
    own, layer.reduce = layer.reduce, Other(*reversed(layer.reduce.weight.shape)).eval()
    layer.reduce.load_state_dict(own.state_dict())
    swapped = outputs(encoder, batch, operators=OPEN)
    torch.testing.assert_close(swapped, hooked)
    assert (swapped - before).abs().max() > 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{}, {"rank": 4}])
def test_kernels_are_as_exact_as_the_reference(tiny_encoder, dtype, settings, monkeypatch):
    # Attention runs in the own kernel in half precision only; its values are checked in both.
    monkeypatch.setattr("boolattn.attention.gpu.kernel_bias._MOST_BYTES", 4)
    # Experts above 4 channels, all but those of rank 4, have a kernel of their own before it.
    monkeypatch.setattr("boolattn.attention.gpu.kernel_bias._FEW_INNER", 4)
    encoder = tiny_encoder(initializer_range=0.3).to("cuda", dtype).eval()
    plugin = scattered(attach(encoder, BoolAttnConfig(**settings)))
    exact = tiny_encoder(initializer_range=0.3).to("cuda", dtype).float().eval()
    attach(exact, BoolAttnConfig(**settings)).load_state_dict(plugin.state_dict())
    errors = []
    for n_tokens in (11, 60, 150) * 8:
        ids = torch.randint(5, 200, (3, n_tokens), device="cuda")
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        batch["attention_mask"][1, 7:] = 0
        plugin._may_fold = False
        bare = outputs(encoder, batch)
        reference = outputs(encoder, batch, operators=OPEN)
        plugin.fold()
        got = outputs(encoder, batch, operators=OPEN)
        assert plugin._folded
        assert torch.equal(outputs(encoder, batch, operators=[[], [], []]), bare)
        expected = outputs(exact, batch, operators=OPEN)
        change = (expected - outputs(exact, batch)).norm()
        errors.append([(values - expected).norm() / change for values in (got, reference)])
        assert dtype != torch.float32 or errors[-1][0] < 1e-4
    # In half precision a token can leave a scope or enter it by rounding, in either of the two.
    of_kernels, of_reference = torch.tensor(errors).T
    assert of_kernels.median() < 0.3
    assert dtype == torch.float32 or (of_kernels / of_reference).median() < 1.1
