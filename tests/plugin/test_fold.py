"""Folded weights: the reference's values, only where they may be used, never old ones."""

from __future__ import annotations

import copy

import pytest
import torch

from boolattn import BoolAttnConfig, attach
from boolattn.attention.append import Append, Shared, Sizes
from boolattn.attention.config import OPERATORS
from boolattn.attention.experts import ExpertCues, appender, near_function
from boolattn.attention.folded import FoldedCues
from boolattn.attention.position import position_precision, position_weight
from boolattn.plugin.recording import recording
from tests.conftest import FAMILIES

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


def find_cues(plugin, call):
    """Return the cues that a call finds."""
    seen = []
    find = type(plugin).find_cues

    def spy(self, *args, **options):
        seen.append(find(self, *args, **options))
        return seen[-1]

    type(plugin).find_cues = spy
    try:
        call()
    finally:
        type(plugin).find_cues = find
    return seen[-1]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rank": 4},
        {"kernel": 1, "form": "dense"},
        {"kernel": 5, "bounded_scope": False, "scope_temperature": 0.5},
        {"operators": ("and", "or")},
        {"operators": ("not",), "rank": 4},
    ],
)
def test_values_are_the_references(tiny_encoder, batch, settings, gate):
    encoder = tiny_encoder(initializer_range=0.3)
    own = settings.get("operators", OPERATORS)
    labels = [[name for name in row if name in own] for row in gate]
    plugin = scattered(attach(encoder, BoolAttnConfig(**settings)))
    bare = outputs(encoder, batch)
    expected = outputs(encoder, batch, operators=labels)
    plugin.fold()
    got = outputs(encoder, batch, operators=labels)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)
    assert (not any(labels)) == torch.equal(got, bare)
    assert plugin._folded is not None or not any(labels)


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


def test_closed_gates_change_no_bit(tiny_encoder, batch):
    encoder = tiny_encoder()
    bare = outputs(encoder, batch)
    plugin = attach(encoder)
    plugin.fold()
    assert torch.equal(outputs(encoder, batch, operators=[[], [], []]), bare)
    # In a batch with open gates, the texts without are those of the bare encoder.
    hidden = outputs(encoder, batch, operators=[[], ["not"], []])
    n_first = int(batch["attention_mask"][0].sum())
    assert torch.equal(hidden[:n_first], bare[:n_first])
    assert not torch.equal(hidden, bare)


@pytest.mark.parametrize("change", ["step", "copy", "move", "load", "replace", "swap", "graph"])
def test_changed_weights_are_folded_anew(tiny_encoder, batch, change):
    encoder = tiny_encoder(initializer_range=0.3)
    plugin = scattered(attach(encoder))
    plugin.fold()
    before = outputs(encoder, batch, operators=OPEN)
    if change == "step":
        optimizer = torch.optim.SGD(plugin.parameters(), 5.0)
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
    encoder.boolattn._fold_on = ()
    torch.testing.assert_close(got, outputs(encoder, batch, operators=OPEN), atol=2e-5, rtol=1e-4)
    if change != "move":
        assert (got - before).abs().max() > 1e-3


def test_not_used_in_training_recording_autocast_or_for_the_paper(tiny_encoder, batch):
    encoder = tiny_encoder()
    plugin = scattered(attach(encoder))
    plugin.fold()
    labels = {"operators": OPEN}
    with recording() as record:
        outputs(encoder, batch, **labels)
    assert record.biases[1].scope.logits is not None
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


def test_only_open_texts_and_experts_are_computed(tiny_encoder, batch):
    encoder = tiny_encoder()
    plugin = attach(encoder)
    plugin.fold()
    cues = find_cues(plugin, lambda: outputs(encoder, batch, operators=[[], ["not"], []]))
    assert isinstance(cues, FoldedCues)
    assert cues.rows.tolist() == [1]
    # One text and one expert: 3 taps of 4 heads, then 16 channels.
    assert cues.inputs[0].shape[::2] == (1, 3 * 4 + 16)


def gradients(encoder, batch, **options):
    """Return hidden states and all gradients of a training pass, with the noise of one seed."""
    torch.manual_seed(3)
    encoder.zero_grad()
    hidden = encoder(**batch, **options).last_hidden_state[batch["attention_mask"].bool()]
    hidden.pow(3).sum().backward()
    named = encoder.named_parameters()
    return hidden.detach(), {n: p.grad.clone() for n, p in named if p.grad is not None}


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rank": 4, "operator_bias": True},
        {"kernel": 1, "form": "dense"},
        {"kernel": 5, "bounded_scope": False, "scope_temperature": 0.5},
        {"operators": ("and", "or")},
        {"operators": ("not",), "rank": 4, "layers": (1,)},
        {"operators": ("not",), "kernel": 1},
        {"gate": "learned", "gate_threshold": 0.01, "gate_temperature": 10.0},
    ],
)
def test_gradients_are_the_references(tiny_encoder, batch, settings, is_training):
    encoder = tiny_encoder(initializer_range=0.3).double().train(is_training)
    plugin = scattered(attach(encoder, BoolAttnConfig(**settings)))
    own = plugin.config.operators
    labels = {"operators": [[name for name in row if name in own] for row in OPEN]}
    labels = {} if "gate" in settings else labels
    expected, wanted = gradients(encoder, batch, **labels)
    plugin.fold()
    used = find_cues(plugin, lambda: gradients(encoder, batch, **labels))
    assert isinstance(used, ExpertCues)
    got, found = gradients(encoder, batch, **labels)
    torch.testing.assert_close(got, expected)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-8)
    # Every part of the plug-in is trained; a convolution's bias can be inactive, after relu.
    parts = [name for name, value in found.items() if ".boolattn" in f".{name}" and value.any()]
    assert {f"boolattn.layers.1.{part}" for part in ("scope.threshold", "bias.sigma")} <= {*parts}
    assert any(name.startswith("boolattn.gate") for name in parts) == ("gate" in settings)
    # Another seed draws other scopes in training, and only there.
    torch.manual_seed(4)
    with torch.random.fork_rng():
        other = encoder(**batch, **labels).last_hidden_state[batch["attention_mask"].bool()]
    assert torch.allclose(other, got) != is_training


def test_training_with_closed_gates_is_the_bare_encoders(tiny_encoder, batch):
    encoder = tiny_encoder().train()
    bare, wanted = gradients(encoder, batch)
    attach(encoder).fold()
    got, found = gradients(encoder, batch, operators=[[], [], []])
    assert torch.equal(got, bare)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    _, opened = gradients(encoder, batch, operators=OPEN)
    assert not all(torch.equal(opened[name], value) for name, value in wanted.items())


def test_autocast_and_checkpointing_train_as_the_reference(tiny_encoder, batch):
    encoder = tiny_encoder(initializer_range=0.3)
    plugin = scattered(attach(encoder))
    exact, _ = gradients(encoder, batch, operators=OPEN)
    bare, _ = gradients(encoder, batch)
    plugin.fold()
    with torch.autocast("cpu", torch.bfloat16):
        half, found = gradients(encoder, batch, operators=OPEN)
    assert (half - exact).norm() < 0.2 * (exact - bare).norm()
    assert all(value.isfinite().all() and value.dtype == torch.float32 for value in found.values())
    encoder.train()
    before, wanted = gradients(encoder, batch, operators=OPEN)
    encoder.gradient_checkpointing_enable()
    got, found = gradients(encoder, batch, operators=OPEN)
    assert torch.equal(got, before)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value)


def test_recording_hooks_and_other_modules_train_by_the_reference(tiny_encoder, batch):
    encoder = tiny_encoder().train()
    plugin = attach(encoder)

    def used():
        found = find_cues(plugin, lambda: encoder(**batch, operators=OPEN))
        return isinstance(found, ExpertCues)

    assert not used()  # not asked for
    plugin.fold()
    assert used()
    with recording():
        assert not used()
    film = plugin.layers["1"].scope.film
    for register in (film.register_forward_hook, film.register_full_backward_hook):
        with register(lambda *_: None):
            assert not used()
    assert used()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{}, {"rank": 4}, {"operators": ("and", "or")}])
def test_kernels_give_the_references_values(tiny_encoder, dtype, settings, monkeypatch):
    # Attention runs in the own kernel in half precision only; its values are checked in both.
    monkeypatch.setattr("boolattn.attention.gpu.kernel_bias._MOST_BYTES", 4)
    # Experts above 4 channels, all but those of rank 4, have a kernel of their own before it.
    monkeypatch.setattr("boolattn.attention.gpu.kernel_bias._FEW_INNER", 4)
    encoder = tiny_encoder(initializer_range=0.3).to("cuda", dtype).eval()
    plugin = scattered(attach(encoder, BoolAttnConfig(**settings)))
    labels = [[name for name in row if name in plugin.config.operators] for row in OPEN]
    for n_tokens in (11, 60, 150):
        ids = torch.randint(5, 200, (3, n_tokens), device="cuda")
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        batch["attention_mask"][1, 7:] = 0
        plugin._fold_on = ()
        bare = outputs(encoder, batch)
        expected = outputs(encoder, batch, operators=labels)
        plugin.fold()
        got = outputs(encoder, batch, operators=labels)
        assert plugin._folded._kernels
        assert torch.equal(outputs(encoder, batch, operators=[[], [], []]), bare)
        change, error = (expected - bare).float().norm(), (got - expected).float().norm()
        assert error < change * (1e-4 if dtype == torch.float32 else 0.2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(3, 3, 192, 12, 32, has_not=True, temperature=1.0),
        Sizes(3, 5, 16, 6, 64, has_not=True, temperature=0.5),
        Sizes(2, 1, 100, 20, 18, has_not=False, temperature=1.0),
    ],
)
@pytest.mark.parametrize("n_texts", [70, 1])  # of 1 Triton makes a constant
def test_training_kernels_give_torchs_values(dtype, noise, sizes, n_texts):
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*shape, draw=torch.randn, dtype=dtype):
        return draw(shape, generator=generator, device="cuda").to(dtype)

    n, n_heads, n_tokens = sizes.n_operators, sizes.n_heads, 37
    mask = torch.ones(n_texts, n_tokens, 1, device="cuda", dtype=dtype)
    mask[1::2, 20:] = 0
    heads = random(2, n_texts, n_tokens, n_heads, sizes.head_size).transpose(2, 3)
    out = random(n_texts, n_tokens, -(-sizes.n_columns // 8) * 8)
    n_second = (sizes.n_inner + 1) * n_heads + 1
    second = 0.1 * random(n, -(-n_second // 4) * 4, dtype=torch.float32)
    opened = random(n_texts, n, draw=torch.rand, dtype=torch.float32).round()
    uniform = random(n_texts, n_tokens, n, n_heads, draw=torch.rand, dtype=torch.float32)
    shared = Shared(mask, mask, mask[..., None], opened)
    found = []
    wide = (*heads.shape[1:4], sizes.head_size + n + sizes.n_padding)
    at_wide = random(2, *wide).unbind()
    for function in (Append, appender(out)):
        inputs = [part.clone().requires_grad_() for part in (*heads, out, second, opened)]
        results = function.apply(*inputs, shared, uniform if noise else None, sizes)
        gradients = torch.autograd.grad(results, inputs, at_wide)
        found.append([*results, *gradients, gradients[3][:, n_second - 1]])
    assert appender(out) is not Append
    # A token whose probability is the threshold can be in scope in one of them.
    for expected, got in zip(*found, strict=True):
        error = (got - expected).float().norm() / expected.float().norm()
        assert error < (0.005 if dtype == torch.float32 else 0.02)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"operators": ("and", "or"), "window": 2}])
def test_position_kernels_give_torchs_values(settings):
    config, generator = BoolAttnConfig(**settings), torch.Generator("cuda").manual_seed(0)
    cue = torch.rand(5, config.n_operators, 50, generator=generator, device="cuda") ** 6
    sigma = torch.linspace(2, 9, 2 * config.n_operators, device="cuda").view(2, -1)
    found = []
    for is_kernel in (False, True):
        inputs = [part.clone().requires_grad_() for part in (cue, sigma)]
        if is_kernel:
            near = near_function(cue).apply(inputs[0], position_precision(inputs[1]), config)
        else:
            near = torch.stack([position_weight(config, inputs[0], own) for own in inputs[1]])
        found.append([near, *torch.autograd.grad(near.pow(3).sum(), inputs)])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{}, {"rank": 4}, {"operators": ("and", "or"), "kernel": 1}])
def test_training_on_a_gpu_has_the_references_gradients_also_recorded(
    tiny_encoder, batch, dtype, settings
):
    encoder = tiny_encoder(initializer_range=0.3)
    plugin = scattered(attach(encoder, BoolAttnConfig(**settings)))
    encoder.to("cuda", dtype)
    batch = {name: value.cuda() for name, value in batch.items()}
    labels = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 1]], device="cuda").float()
    labels = {"operators": labels[:, : plugin.config.n_operators]}
    _, wanted = gradients(copy.deepcopy(encoder).float(), batch, **labels)
    _, usual = gradients(encoder, batch, **labels)
    plugin.fold()
    assert isinstance(find_cues(plugin, lambda: encoder(**batch, **labels)), ExpertCues)
    _, found = gradients(encoder, batch, **labels)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    is_token = batch["attention_mask"][..., None].to(dtype)
    leaves = [p for p in encoder.parameters() if p.requires_grad]

    def step():
        hidden = encoder(**batch, **labels).last_hidden_state * is_token
        return torch.autograd.grad(hidden.pow(3).sum(), leaves, allow_unused=True)

    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    names = [name for name, p in encoder.named_parameters() if p.requires_grad]
    replayed = {
        name: value for name, value in zip(names, recorded, strict=True) if value is not None
    }
    # The gradient of a key's bias is 0 but for rounding, so a norm counts as at least a thousandth
    # of the largest. In half precision the reference is as far from the exact gradient.
    largest = max(value.norm() for value in wanted.values())
    for got in (found, replayed):
        for name, value in wanted.items():
            error, rounding = ((part[name].float() - value).norm() for part in (got, usual))
            limit = (1e-3 if dtype == torch.float32 else 0.5) * max(value.norm(), 1e-3 * largest)
            assert error < limit + 3 * rounding, (name, error, limit, rounding)
