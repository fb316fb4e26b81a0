"""An untrained plug-in changes no text, a trained one does; and training can begin."""

import copy
import warnings

import pytest
import torch
from transformers import AutoModel

import boolattn
from boolattn import BoolAttnConfig, attach
from boolattn.attention.boolattn import BoolAttn
from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.plugin.backend import recording
from boolattn.plugin.install import plugin_of
from tests.conftest import FAMILIES, trained
from tests.plugin.test_attach import ATTENTIONS, OPEN

SIZES = pytest.mark.parametrize("rank", [None, 4], ids=["full", "light"])
MODES = pytest.mark.parametrize("is_training", [False, True], ids=["eval", "train"])


def encode(encoder, batch, seed=3, **options):
    """Return the output on unpadded tokens; dropout is always the same."""
    torch.manual_seed(seed)
    return encoder(**batch, **options).last_hidden_state[batch["attention_mask"].bool()]


def without_dropout(encoder):
    """Switch dropout off: scopes draw noise of their own, and so move its draws."""
    for part in encoder.modules():
        for name in ("p", "dropout_prob", "attention_dropout", "attention_probs_dropout_prob"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return encoder


@MODES
@SIZES
@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_without_gradients_no_bit_changes_until_it_is_trained(
    tiny_encoder, batch, family, attention, rank, is_training
):
    encoder = tiny_encoder(family, attention).train(is_training)
    with torch.no_grad():
        before = encode(encoder, batch)
        plugin = attach(encoder, BoolAttnConfig(rank=rank))
        assert torch.equal(encode(encoder, batch, operators=OPEN), before)
        with torch.inference_mode():
            assert torch.equal(encode(encoder, batch, operators=OPEN), before)
        trained(plugin)
        assert (encode(encoder, batch, operators=OPEN) - before).abs().max() > 1e-4


@MODES
@SIZES
@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_with_gradients_training_begins_at_the_encoder(
    tiny_encoder, batch, family, attention, rank, is_training
):
    encoder = without_dropout(tiny_encoder(family, attention)).train(is_training)
    before = encode(encoder, batch)
    before.pow(3).sum().backward()
    gradients = {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}
    encoder.zero_grad()
    plugin = attach(encoder, BoolAttnConfig(rank=rank))
    after = encode(encoder, batch, operators=OPEN)
    assert (after - before).abs().max() <= 1e-6
    after.pow(3).sum().backward()
    for name, parameter in encoder.named_parameters():
        if name in gradients:
            torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-4, rtol=1e-4)
    factors = [layer.factor for layer in plugin.layers.values()]
    assert all(factor.grad.any() for factor in factors)
    # One step of the factors alone, whose sign is free, and the encoder is left.
    torch.optim.SGD(factors, 1.0).step()
    assert any((factor < 0).any() for factor in factors)
    with torch.no_grad():
        assert (encode(encoder, batch, operators=OPEN) - before).abs().max() > 1e-6


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("fold", [False, True])
def test_only_layers_with_a_factor_are_computed(tiny_encoder, batch, monkeypatch, fold):
    encoder = tiny_encoder()
    plugin = attach(encoder)
    if fold:
        plugin.fold()
    computed = []
    forward = BoolAttn.forward
    monkeypatch.setattr(
        BoolAttn, "forward", lambda *args: computed.append(args[1]) or forward(*args)
    )
    with torch.no_grad():
        bare = encode(encoder, batch)
        assert torch.equal(encode(encoder, batch, operators=OPEN), bare)
        assert computed == []
        plugin.layers["1"].factor[2] = 0.5  # NOT alone
        assert not torch.equal(encode(encoder, batch, operators=OPEN), bare)
        assert computed == [1]
        encode(encoder, batch)
        assert computed == [1]
    encode(encoder, batch, operators=OPEN)
    assert computed == [1, 0, 1]
    with recording() as record, torch.no_grad():
        encode(encoder, batch, operators=OPEN)
    assert not record.biases[0].factors.dense().any()
    assert record.biases[0].inside.any()


def test_the_factors_are_looked_at_once(tiny_encoder, batch):
    encoder = tiny_encoder()
    plugin = attach(encoder)
    with torch.no_grad():
        encode(encoder, batch, operators=OPEN)
        looked = plugin._idle
        encode(encoder, batch, operators=OPEN)
        assert plugin._idle is looked
        assert looked[1] == {0, 1}


@pytest.mark.parametrize("change", ["fill", "load", "replace", "copy", "fused", "graph", "double"])
def test_a_change_of_the_factors_is_noticed(tiny_encoder, batch, change):
    encoder = tiny_encoder()
    plugin = attach(encoder)
    with torch.no_grad():
        bare = encode(encoder, batch, operators=OPEN)
    layer = plugin.layers["0"]
    if change == "load":
        ones = {name: torch.ones_like(v) for name, v in plugin.state_dict().items()}
        plugin.load_state_dict(plugin.state_dict() | {"layers.0.factor": ones["layers.0.factor"]})
    elif change == "replace":
        layer.factor = torch.nn.Parameter(torch.ones_like(layer.factor))
    elif change == "copy":
        encoder = copy.deepcopy(encoder)
        trained(encoder)
    elif change == "fused":  # which does not count the change of a tensor
        encode(encoder, batch, operators=OPEN).pow(3).sum().backward()
        torch.optim.SGD([layer.factor], 5.0, fused=True).step()
    elif change == "graph":  # nor does a recorded step
        encoder.train()
        layer.factor.data.fill_(1.0)
        encoder.eval()
    elif change == "double":
        trained(encoder.double())
    else:
        trained(plugin)
    with torch.no_grad():
        assert (encode(encoder, batch, operators=OPEN) - bare).abs().max() > 1e-4


def test_weights_of_inference_mode_are_looked_at_in_every_pass(tiny_encoder, batch):
    encoder = tiny_encoder()
    with torch.inference_mode():
        plugin = attach(encoder)
        bare = encode(encoder, batch)
        assert torch.equal(encode(encoder, batch, operators=OPEN), bare)
        trained(plugin)
        assert not torch.equal(encode(encoder, batch, operators=OPEN), bare)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("is_trained", [False, True])
def test_saved_and_loaded_it_has_the_same_effect(tiny_encoder, batch, tmp_path, family, is_trained):
    encoder = tiny_encoder(family)
    with torch.no_grad():
        bare = encode(encoder, batch)
        plugin = attach(encoder, BoolAttnConfig(rank=4))
        if is_trained:
            trained(plugin)
        boolattn.save(encoder, tmp_path / "model")
        BoolBertModel.wrap(encoder).save_pretrained(tmp_path / "bert")
        for load in (boolattn.load, AutoModel.from_pretrained):
            folder = tmp_path / ("model" if load is boolattn.load else "bert")
            got = encode(load(folder).eval(), batch, operators=OPEN)
            assert torch.equal(got, bare) != is_trained


@pytest.mark.usefixtures("plain_kernels")
def test_folded_weights_change_no_bit_until_it_is_trained(tiny_encoder, batch):
    encoder = tiny_encoder()
    with torch.no_grad():
        bare = encode(encoder, batch)
        plugin = attach(encoder)
        plugin.fold()
        assert torch.equal(encode(encoder, batch, operators=OPEN), bare)
        assert plugin._folded is None
        trained(plugin)
        assert not torch.allclose(encode(encoder, batch, operators=OPEN), bare)
        assert plugin._folded is not None


def test_a_compiled_encoder_has_an_effect_as_soon_as_it_is_trained(tiny_encoder, batch):
    encoder = tiny_encoder(num_hidden_layers=1)
    plugin = attach(encoder)
    gate = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 1]])
    torch._dynamo.reset()
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    with torch.no_grad():
        bare = encode(encoder, batch)
        assert (encode(compiled, batch, operators=gate) - bare).abs().max() <= 1e-6
        trained(plugin)
        got, expected = (encode(model, batch, operators=gate) for model in (compiled, encoder))
    torch.testing.assert_close(got, expected)
    assert (got - bare).abs().max() > 1e-4


def test_the_paper_variant_has_no_factor(tiny_encoder, batch):
    for settings in ({"variant": "paper"}, {"use_factor": False}, {"fixed_bias": 0.7}):
        encoder = tiny_encoder()
        with torch.no_grad():
            bare = encode(encoder, batch)
            attach(encoder, BoolAttnConfig(**settings))
            assert not torch.equal(encode(encoder, batch, operators=OPEN), bare)
        assert not any("factor" in name for name, _ in plugin_of(encoder).named_parameters())


def test_a_factor_scales_the_bias_and_may_turn_it(tiny_encoder, batch):
    encoder = tiny_encoder()
    plugin = trained(attach(encoder, BoolAttnConfig(use_noise=False)))
    scales = torch.linspace(-2, 2, 12).view(3, 4)
    biases = []
    for factor in (torch.ones(3, 4), scales):
        with torch.no_grad(), recording() as record:
            plugin.layers["0"].factor.copy_(factor)
            encoder(**batch, operators=torch.ones(3, 3))
        biases.append(record.biases[0].factors.key[..., :3])
    # Heads are the second axis, operators the last.
    torch.testing.assert_close(biases[1], biases[0] * scales.T[:, None])
    assert biases[0].abs().max() > 0.1


GATE = ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0), (0.0, 0.0, 1.0))


def n_waits(call):
    """Count how often a GPU is waited for."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchroniz" in str(warning.message) for warning in caught)


@pytest.mark.gpu
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_no_bit_changes_and_nothing_waits_for_the_factors(
    tiny_encoder, batch, dtype, fold
):
    encoder = tiny_encoder().to("cuda", dtype)
    batch, gate = {n: v.cuda() for n, v in batch.items()}, torch.tensor(GATE, device="cuda")
    with torch.no_grad():
        bare = encode(encoder, batch)
        expected = n_waits(lambda: encoder(**batch))
        plugin = attach(encoder)
        if fold:
            plugin.fold()
        assert torch.equal(encode(encoder, batch, operators=gate), bare)
        assert n_waits(lambda: encoder(**batch, operators=gate)) == expected
        trained(plugin)
        assert not torch.equal(encode(encoder, batch, operators=gate), bare)


@pytest.mark.gpu
def test_a_captured_pass_follows_the_factors(tiny_encoder, batch):
    encoder = tiny_encoder().cuda()
    plugin = attach(encoder)
    batch, gate = {n: v.cuda() for n, v in batch.items()}, torch.tensor(GATE, device="cuda")
    seen, stream = batch["attention_mask"].bool(), torch.cuda.Stream()
    with torch.no_grad():
        bare = encoder(**batch).last_hidden_state[seen]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            encoder(**batch, operators=gate)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = encoder(**batch, operators=gate).last_hidden_state
        graph.replay()
        assert (recorded[seen] - bare).abs().max() <= 1e-5
        trained(plugin)
        graph.replay()
        got, expected = recorded[seen], encoder(**batch, operators=gate).last_hidden_state[seen]
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert (got - bare).abs().max() > 1e-4
