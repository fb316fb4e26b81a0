"""The plug-in, tested in pairs: no effect with closed gates, an effect with open ones."""

import copy
import itertools
import pickle
import threading

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from boolattn import BoolAttnConfig, detach
from boolattn.attention.config import OPERATORS
from boolattn.errors import ConfigError, GateError, UnsupportedEncoderError
from boolattn.plugin.backend import SHORT, recording
from boolattn.plugin.install import plugin_of
from tests.conftest import FAMILIES, VOCABULARY, attach_trained

CLOSED = [[], [], []]
OPEN = [["and"], ["not", "or"], ["not"]]
ATTENTIONS = [
    (family, attention)
    for family in FAMILIES
    for attention in ("sdpa", "eager")
    if (family, attention) != ("mpnet", "sdpa")
]


def run(encoder, batch, *, is_training=False, **options):
    """Return the output on unpadded tokens, and the encoder's own gradients."""
    encoder.train(is_training)
    encoder.zero_grad()
    torch.manual_seed(3)
    hidden = encoder(**batch, **options).last_hidden_state
    seen = hidden[batch["attention_mask"].bool()]
    seen.square().sum().backward()
    return seen.detach(), {
        name: parameter.grad.clone()
        for name, parameter in encoder.named_parameters()
        if parameter.grad is not None and "boolattn" not in name
    }


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_closed_gates_change_no_bit(tiny_encoder, batch, family, attention, is_training):
    encoder = tiny_encoder(family, attention)
    before, gradients = run(encoder, batch, is_training=is_training)
    attach_trained(encoder)
    for options in ({}, {"operators": CLOSED}, {"operators": torch.zeros(3, 3)}):
        after, others = run(encoder, batch, is_training=is_training, **options)
        assert torch.equal(after, before)
        assert gradients.keys() == others.keys()
        assert all(torch.equal(gradients[name], others[name]) for name in gradients)


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_open_gates_change_output_and_gradients(
    tiny_encoder, batch, family, attention, is_training
):
    encoder = tiny_encoder(family, attention)
    before, gradients = run(encoder, batch, is_training=is_training)
    attach_trained(encoder)
    after, others = run(encoder, batch, is_training=is_training, operators=OPEN)
    assert (after - before).abs().max() > 1e-4
    assert any(not torch.equal(gradients[name], others[name]) for name in gradients)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_texts_whose_gate_is_open_change(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    with torch.no_grad():
        before = encoder(**batch).last_hidden_state
        attach_trained(encoder)
        after = encoder(**batch, operators=[[], ["not"], []]).last_hidden_state
    # On tokens only: the output on padding is undefined and differs between kernels.
    for row, length in ((0, 11), (2, 4)):
        torch.testing.assert_close(after[row, :length], before[row, :length], atol=1e-6, rtol=0)
    assert (after[1, :7] - before[1, :7]).abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_detach_restores_the_encoder(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    names = set(encoder.state_dict())
    before, gradients = run(encoder, batch)
    plugin = attach_trained(encoder)
    assert plugin_of(encoder) is plugin
    assert detach(encoder) is plugin
    after, others = run(encoder, batch)
    assert torch.equal(after, before)
    assert all(torch.equal(gradients[name], others[name]) for name in gradients)
    assert set(encoder.state_dict()) == names
    attach_trained(encoder)  # a second time


SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(OPERATORS, size)]


@pytest.mark.parametrize("variant", ["corrected", "paper"])
@pytest.mark.parametrize("operators", SUBSETS)
@pytest.mark.parametrize("rank", [None, 4])
def test_factored_and_dense_agree_in_output_and_every_gradient(
    tiny_encoder, batch, operators, variant, rank
):
    results = []
    for attention in ("sdpa", "eager"):  # eager attention adds the dense bias
        encoder = tiny_encoder("bert", attention)
        torch.manual_seed(7)
        attach_trained(encoder, BoolAttnConfig(variant=variant, rank=rank, use_noise=False))
        encoder.train()
        for part in encoder.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        hidden = encoder(**batch, operators=[operators] * 3).last_hidden_state
        seen = hidden[batch["attention_mask"].bool()]
        seen.pow(3).sum().backward()
        gradients = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        results.append((seen, gradients))
    (factored, first), *others = results
    for output, gradients in others:
        torch.testing.assert_close(factored, output, atol=1e-5, rtol=1e-5)
        assert first.keys() == gradients.keys()
        for name, gradient in first.items():
            scale = max(1.0, float(gradient.abs().max()))
            assert (gradient - gradients[name]).abs().max() / scale < 1e-5, name


@pytest.mark.parametrize("gate", ["label", "learned"])
@pytest.mark.parametrize("rank", [None, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_gets_a_gradient(tiny_encoder, batch, family, rank, gate):
    encoder = tiny_encoder(family)
    torch.manual_seed(1)
    plugin = attach_trained(encoder, BoolAttnConfig(rank=rank, gate=gate))
    encoder.requires_grad_(False)
    plugin.requires_grad_(True)  # a frozen encoder whose plug-in alone trains
    encoder.train()
    options = {}
    if gate == "label":
        options["operators"] = torch.ones(3, 3)
    else:
        plugin.gate.outer.bias.data.fill_(5.0)  # open, so that scopes are active
    hidden = encoder(**batch, **options).last_hidden_state
    (hidden * torch.randn(hidden.shape)).sum().backward()
    without = [n for n, p in plugin.named_parameters() if p.grad is None or not p.grad.any()]
    # At this bias and a temperature of 0.1 the learned gate's sigmoid has no slope.
    without = [name for name in without if not (gate == "learned" and name.startswith("gate."))]
    assert without == []
    assert all(p.grad is None for n, p in encoder.named_parameters() if "boolattn" not in n)


def test_a_closed_learned_gate_gets_gradients_from_the_output(tiny_encoder, batch):
    encoder = tiny_encoder()
    torch.manual_seed(1)
    plugin = attach_trained(encoder, BoolAttnConfig(gate="learned"))
    plugin.gate.outer.weight.data.mul_(0.01)
    plugin.gate.outer.bias.data.fill_(-0.05)
    encoder.train()
    with recording() as record:
        hidden = encoder(**batch).last_hidden_state
    assert not record.cue_states[0].gate.open.any()
    (hidden * torch.randn(hidden.shape)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in plugin.gate.parameters())


@pytest.mark.parametrize("gate", ["label", "learned"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("variant", ["corrected", "paper"])
def test_a_text_alone_or_padded_has_the_same_vectors(tiny_encoder, batch, family, variant, gate):
    encoder = tiny_encoder(family)
    plugin = attach_trained(encoder, BoolAttnConfig(variant=variant, gate=gate))
    if gate == "learned":
        plugin.gate.outer.bias.data.fill_(5.0)
    for row, length in enumerate((11, 7, 4)):
        options, alone = {}, {}
        if gate == "label":
            options, alone = {"operators": torch.ones(3, 3)}, {"operators": torch.ones(1, 3)}
        with torch.no_grad():
            together = encoder(**batch, **options).last_hidden_state[row, :length]
            short = {name: value[row : row + 1, :length] for name, value in batch.items()}
            single = encoder(**short, **alone).last_hidden_state[0]
        torch.testing.assert_close(together, single, atol=1e-5, rtol=0)


def test_the_same_seed_gives_the_same_run(tiny_encoder, batch):
    runs = []
    for _ in range(2):
        encoder = tiny_encoder()
        torch.manual_seed(11)
        attach_trained(encoder)
        runs.append(run(encoder, batch, is_training=True, operators=OPEN))
    assert torch.equal(runs[0][0], runs[1][0])
    assert all(torch.equal(runs[0][1][name], runs[1][1][name]) for name in runs[0][1])


def test_training_samples_scopes_and_evaluation_does_not(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    scopes = []
    for is_training in (True, True, False, False):
        encoder.train(is_training)
        with recording() as record, torch.no_grad():
            encoder(**batch, operators=OPEN)
        scopes.append(record.biases[0].inside)
    assert not torch.equal(scopes[0], scopes[1])
    assert torch.equal(scopes[2], scopes[3])


def check_recomputed(encoder, call, batch):
    """Compare the gradients of two passes with and without gradient checkpointing."""
    attach_trained(encoder)
    gradients = []
    for is_on in (False, True):
        if is_on:
            encoder.gradient_checkpointing_enable()
        encoder.train()
        encoder.zero_grad()
        torch.manual_seed(5)
        # Two passes before one backward: the second must not be taken for the first.
        first = call(**batch, operators=OPEN).last_hidden_state
        second = call(**batch, operators=OPEN[::-1]).last_hidden_state
        (first * second).sum().backward()
        gradients.append(
            {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}
        )
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "mpnet"])
def test_gradient_checkpointing_changes_no_gradient(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    check_recomputed(encoder, encoder, batch)


@pytest.mark.parametrize(
    "family", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])]
)
def test_compiles_into_one_graph(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder)
    gate = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 1]])
    torch._dynamo.reset()
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    with torch.no_grad():
        expected = encoder(**batch, operators=gate).last_hidden_state
        got = compiled(**batch, operators=gate).last_hidden_state
        closed = compiled(**batch, operators=gate * 0).last_hidden_state
        bare = encoder(**batch).last_hidden_state
    seen = batch["attention_mask"].bool()
    torch.testing.assert_close(got[seen], expected[seen])
    torch.testing.assert_close(closed[seen], bare[seen])
    assert (got - bare)[0].abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_moves_the_output_the_same_way(tiny_encoder, batch, family):
    encoder = tiny_encoder(family, initializer_range=0.3)
    attach_trained(encoder)
    moved = []
    for is_on in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
            bare, _ = run(encoder, batch)
            biased, _ = run(encoder, batch, operators=OPEN)
        moved.append((biased - bare).float().flatten())
    # By direction, because bfloat16 rounds the whole network too.
    assert torch.cosine_similarity(*moved, dim=0) > 0.9


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("gate", [(1.0, 1.0, 0.0), (1.0, 1.0, 1.0)])
def test_a_model_in_half_precision_moves_the_same_way(tiny_encoder, batch, gate, attention):
    moved = []
    for dtype in (torch.float32, torch.bfloat16):
        encoder = tiny_encoder("bert", attention, initializer_range=0.3)
        torch.manual_seed(3)
        attach_trained(encoder)
        encoder.to(dtype)
        bare, _ = run(encoder, batch)
        biased, _ = run(encoder, batch, operators=torch.tensor([gate] * 3))
        assert biased.dtype == dtype
        moved.append((biased - bare).float().flatten())
    assert torch.cosine_similarity(*moved, dim=0) > 0.9


@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert"])
def test_a_copy_is_independent(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder)
    expected, _ = run(encoder, batch, operators=OPEN)
    for other in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        for parameter in plugin_of(other).parameters():
            parameter.data.add_(0.5)
        assert torch.equal(run(encoder, batch, operators=OPEN)[0], expected)
        assert not torch.equal(run(other, batch, operators=OPEN)[0], expected)
        detach(other)
        assert torch.equal(run(encoder, batch, operators=OPEN)[0], expected)


@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert"])
def test_threads_do_not_mix_their_gates(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder)
    gates = [[["and"]] * 3, [["not"]] * 3, CLOSED]

    def encode(gate):
        with torch.no_grad():
            return encoder(**batch, operators=gate).last_hidden_state

    expected = [encode(gate) for gate in gates]
    wrong = []

    def work(index):
        for _ in range(20):
            if not torch.equal(encode(gates[index]), expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "mpnet"])
def test_attaches_to_a_task_head(tiny_encoder, batch, family):
    model = AutoModelForMaskedLM.from_config(tiny_encoder(family).config).eval()
    with torch.no_grad():
        before = model(**batch).logits
        attach_trained(model)
        assert torch.equal(model(**batch).logits, before)
        assert not torch.equal(model(**batch, operators=OPEN).logits, before)


def test_a_task_head_that_drops_labels_is_rejected(tiny_encoder):
    model = AutoModelForMaskedLM.from_config(tiny_encoder("mpnet").config)
    with pytest.raises(UnsupportedEncoderError, match=r"attach to model.base_model"):
        attach_trained(model)
    attach_trained(model.base_model)


def test_another_implementation_of_a_family_is_rejected(tiny_encoder):
    encoder = tiny_encoder()
    for layer in encoder.encoder.layer:
        layer.attention.self.__class__ = type("OwnAttention", (type(layer.attention.self),), {})
    with pytest.raises(UnsupportedEncoderError, match="0 modules of the class BertSelf"):
        attach_trained(encoder)


@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet"])
def test_an_encoder_can_run_inside_another(tiny_encoder, batch, family):
    outer, inner = tiny_encoder(family), tiny_encoder(family)
    attach_trained(outer)
    attach_trained(inner)
    with torch.no_grad():
        expected = outer(**batch, operators=OPEN).last_hidden_state
        outer.embeddings.register_forward_hook(lambda *_: inner(**batch) and None)
        assert torch.equal(outer(**batch, operators=OPEN).last_hidden_state, expected)


@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet"])
def test_an_interrupted_pass_leaves_no_state(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    with torch.no_grad():
        bare = encoder(**batch).last_hidden_state
        attach_trained(encoder)

        def stop(*_):
            raise KeyboardInterrupt

        handle = encoder.embeddings.register_forward_hook(stop)
        with pytest.raises(KeyboardInterrupt):
            encoder(**batch, operators=OPEN)
        handle.remove()
        assert torch.equal(encoder(**batch, is_bare=True).last_hidden_state, bare)
        assert torch.equal(encoder(**batch).last_hidden_state, bare)


@pytest.mark.filterwarnings("ignore:.*grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("family", ["mpnet", "modernbert"])
def test_a_part_compiled_alone_drops_no_bias(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder)
    torch._dynamo.reset()
    with torch.no_grad():
        expected = encoder(**batch, operators=OPEN).last_hidden_state
        part = encoder.embeddings if family == "modernbert" else encoder.encoder.layer[0]
        # Tracing raises, because the gate is not accessible; the part then runs uncompiled.
        part.compile(backend="eager")
        got = encoder(**batch, operators=OPEN).last_hidden_state
    torch.testing.assert_close(got, expected)


def test_a_mask_with_more_axes_is_refused(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    mask = batch["attention_mask"].bool()[:, None, None]
    with pytest.raises(ConfigError, match=r"needs an attention_mask of 0 and 1, .batch, tokens."):
        encoder(input_ids=batch["input_ids"], attention_mask=mask, operators=OPEN)


def test_labels_with_positional_embeddings(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    embedded = encoder.get_input_embeddings()(batch["input_ids"])
    mask = batch["attention_mask"]
    with torch.no_grad():
        named = encoder(inputs_embeds=embedded, attention_mask=mask, operators=OPEN)
        positional = encoder(None, mask, None, None, embedded, operators=OPEN)
    assert torch.equal(named.last_hidden_state, positional.last_hidden_state)


def test_two_encoders_may_share_a_config(tiny_encoder, batch):
    encoder = tiny_encoder()
    twin = AutoModel.from_config(encoder.config).eval()
    twin.load_state_dict(encoder.state_dict())
    bare, _ = run(twin, batch)
    attach_trained(encoder)
    assert torch.equal(run(twin, batch)[0], bare)
    attach_trained(twin)
    assert not torch.equal(run(twin, batch, operators=OPEN)[0], bare)


def test_padding_on_the_left(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    ids = batch["input_ids"][1:2, :7]
    left = torch.nn.functional.pad(ids, (4, 0), value=0)
    mask = torch.nn.functional.pad(torch.ones_like(ids), (4, 0))
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        alone = encoder(input_ids=ids, operators=[["and", "not"]]).last_hidden_state
        padded = encoder(
            input_ids=left, attention_mask=mask, position_ids=positions, operators=[["and", "not"]]
        ).last_hidden_state
    torch.testing.assert_close(padded[:, 4:], alone, atol=1e-5, rtol=0)


def test_only_the_named_layers_get_a_bias(tiny_encoder, batch):
    encoder = tiny_encoder()
    plugin = attach_trained(encoder, BoolAttnConfig(layers=(1,)))
    with recording() as record:
        encoder(**batch, operators=OPEN)
    assert list(record.biases) == [1]
    assert list(plugin.layers) == ["1"]


@pytest.mark.parametrize("n_tokens", [1, 512])
@pytest.mark.parametrize("family", FAMILIES)
def test_short_and_long_texts_work(tiny_encoder, family, n_tokens):
    encoder = tiny_encoder(family)
    attach_trained(encoder)
    ids = torch.randint(5, VOCABULARY, (1, n_tokens))
    hidden = encoder(input_ids=ids, operators=torch.ones(1, 3)).last_hidden_state
    assert hidden.shape == (1, n_tokens, 32)
    assert bool(torch.isfinite(hidden).all())


@pytest.mark.parametrize("n_tokens", [SHORT, SHORT + 12])
def test_without_gradients_both_forms_agree_on_either_side_of_short(tiny_encoder, n_tokens):
    results = []
    for attention in ("sdpa", "eager"):
        encoder = tiny_encoder("bert", attention)
        torch.manual_seed(7)
        attach_trained(encoder)
        ids = torch.randint(
            5, VOCABULARY, (2, n_tokens), generator=torch.Generator().manual_seed(1)
        )
        mask = torch.ones_like(ids)
        mask[1, 9:] = 0
        with torch.no_grad():
            out = encoder(input_ids=ids, attention_mask=mask, operators=torch.ones(2, 3))
        results.append(out.last_hidden_state[mask.bool()])
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def test_a_text_of_padding_alone_works(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    nothing = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"] * 0}
    with recording() as record:
        hidden = encoder(**nothing, operators=torch.ones(3, 3)).last_hidden_state
    assert bool(torch.isfinite(hidden).all())
    assert not record.cue_states[0].cue.any()
    assert not record.biases[0].inside.any()


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        (
            torch.ones(3, 2),
            r"shape \(3, 3\): a row for each text, a column for each of and, or, not",
        ),
        (torch.ones(2, 3), r"got \(2, 3\)"),
        (torch.full((3, 3), 0.5), "only 0 and 1"),
        ([["and"]], "a list for each of 3 texts; got 1"),
        ([["xor"], [], []], "unknown operator 'xor'"),
        (["not", [], []], r"operators\[0\] must be a list of names"),
    ],
)
def test_invalid_labels_are_rejected_in_one_line(tiny_encoder, batch, operators, message):
    encoder = tiny_encoder()
    attach_trained(encoder)
    with pytest.raises(GateError, match=message) as caught:
        encoder(**batch, operators=operators)
    assert "\n" not in str(caught.value)
    encoder(**batch)  # still works


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_unsupported_families_are_rejected():
    for family in ("deberta-v2", "gpt2"):
        config = AutoConfig.for_model(family, vocab_size=50)
        with torch.device("meta"):
            model = AutoModel.from_config(config)
        with pytest.raises(UnsupportedEncoderError, match=f"cannot attach to '{family}'; supp"):
            attach_trained(model)


def test_a_decoder_is_rejected(tiny_encoder):
    with pytest.raises(UnsupportedEncoderError, match="decoder"):
        attach_trained(tiny_encoder(is_decoder=True))


def test_attaching_twice_and_detaching_nothing_are_rejected(tiny_encoder):
    encoder = tiny_encoder()
    with pytest.raises(ConfigError, match="has no BoolAttn"):
        detach(encoder)
    attach_trained(encoder)
    with pytest.raises(ConfigError, match="already has BoolAttn"):
        attach_trained(encoder)


def test_a_missing_layer_is_rejected(tiny_encoder):
    with pytest.raises(ConfigError, match="layer 7, but the encoder has 2: 0 to 1"):
        attach_trained(tiny_encoder(), BoolAttnConfig(layers=(0, 7)))


def test_attention_changed_after_attach_is_rejected(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    encoder.set_attn_implementation("sdpa")
    with pytest.raises(UnsupportedEncoderError, match="set to 'sdpa' after attach"):
        encoder(**batch, operators=OPEN)


@pytest.mark.parametrize(
    ("size", "expected", "added"),
    [
        ({}, 121.6, None),
        ({"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
          "intermediate_size": 4096}, 377.6, None),
        ({}, None, 0.01),
    ],
)  # fmt: skip
def test_parameter_counts_of_the_paper(size, expected, added):
    with torch.device("meta"):
        encoder = AutoModel.from_config(AutoConfig.for_model("bert", **size))
        bare = sum(p.numel() for p in encoder.parameters())
        variant = "paper" if expected else "corrected"
        attach_trained(
            encoder, BoolAttnConfig(variant=variant, gate="learned", rank=None if expected else 16)
        )
    total = sum(p.numel() for p in encoder.parameters())
    if expected:
        assert round(total / 1e6, 1) == expected
    else:
        assert 0 < total - bare < added * bare


@pytest.mark.gpu
def test_gpu_and_cpu_agree(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    expected, _ = run(encoder, batch, operators=OPEN)
    encoder.cuda()
    moved = {name: value.cuda() for name, value in batch.items()}
    got, _ = run(encoder, moved, operators=OPEN)
    torch.testing.assert_close(got.cpu(), expected, atol=1e-4, rtol=1e-4)
