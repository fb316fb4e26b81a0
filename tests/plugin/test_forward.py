"""A call of ``model.forward``, which skips hooks, in pairs as in ``test_attach``.

sentence-transformers calls encoders so.
"""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from boolattn import BoolAttnConfig, detach
from boolattn.errors import UnsupportedEncoderError
from boolattn.plugin.backend import current, recording
from tests.conftest import FAMILIES, attach_trained
from tests.plugin.test_attach import ATTENTIONS, CLOSED, OPEN, check_recomputed, run

TEXTS = ["moths of Borneo but not Sumatra", "moths of Borneo"]


class Forward:
    """An encoder whose ``forward`` is called."""

    def __init__(self, encoder):
        self.encoder = encoder

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def __call__(self, **arguments):
        return self.encoder.forward(**arguments)


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_forward_with_labels_is_the_call(tiny_encoder, batch, family, attention, is_training):
    encoder = tiny_encoder(family, attention)
    before, gradients = run(encoder, batch, is_training=is_training)
    attach_trained(encoder)
    for options in ({}, {"operators": CLOSED}, {"operators": OPEN, "is_bare": True}):
        after, others = run(Forward(encoder), batch, is_training=is_training, **options)
        assert torch.equal(after, before)
        assert all(torch.equal(gradients[name], others[name]) for name in gradients)
    expected, gradients = run(encoder, batch, is_training=is_training, operators=OPEN)
    assert (expected - before).abs().max() > 1e-4
    after, others = run(Forward(encoder), batch, is_training=is_training, operators=OPEN)
    assert torch.equal(after, expected)
    assert gradients.keys() == others.keys()
    assert all(torch.equal(gradients[name], others[name]) for name in gradients)
    assert not current.passes


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("gate", ["lexicon", "learned"])
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_opens_the_models_own_gate(tiny_encoder, tokenizer, family, gate, is_training):
    encoder = tiny_encoder(family)
    batch = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    batch.pop("token_type_ids", None)
    before, _ = run(encoder, batch, is_training=is_training)
    torch.manual_seed(1)
    plugin = attach_trained(encoder, BoolAttnConfig(gate=gate), tokenizer=tokenizer)
    if gate == "learned":
        plugin.gate.outer.bias.data.fill_(5.0)
    expected, _ = run(encoder, batch, is_training=is_training)
    after, _ = run(Forward(encoder), batch, is_training=is_training)
    assert torch.equal(after, expected)
    assert (after - before).abs().max() > 1e-4
    grown = {n for n, p in plugin.named_parameters() if p.grad is not None and p.grad.any()}
    assert any(name.startswith("layers.1.") for name in grown)
    if gate == "lexicon":
        plain = {name: value[1:] for name, value in batch.items()}
        closed, _ = run(Forward(encoder), plain)
        detach(encoder)
        assert torch.equal(closed, run(encoder, plain)[0])


def test_forward_finds_padding_and_records(tiny_encoder, batch):
    encoder = tiny_encoder("modernbert")
    attach_trained(encoder, BoolAttnConfig(layers=(1,)))  # the first layer has no bias
    records = []
    for call in (encoder, encoder.forward):
        with recording() as record, torch.no_grad():
            call(**batch, operators=OPEN)
        records.append(record)
    assert torch.equal(*(record.cue_states[0].cue for record in records))
    assert list(records[1].biases) == [1]


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_and_forwards_take_turns(tiny_encoder, batch, tokenizer, family):
    encoder = tiny_encoder(family)
    attach_trained(encoder, tokenizer=tokenizer)
    with torch.no_grad():
        expected = encoder(**batch).last_hidden_state
        encoder.embeddings(batch["input_ids"])  # by itself, begins nothing that stays
        assert torch.equal(encoder(**batch).last_hidden_state, expected)
        opened = encoder(**batch, operators=OPEN).last_hidden_state
        assert torch.equal(encoder.forward(**batch).last_hidden_state, expected)
        assert torch.equal(encoder(**batch, operators=OPEN).last_hidden_state, opened)


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_recomputed_layers_keep_their_pass(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    check_recomputed(encoder, encoder.forward, batch)


def test_a_compiled_forward_is_the_call(tiny_encoder, batch):
    encoder = tiny_encoder()
    attach_trained(encoder)
    torch._dynamo.reset()
    compiled = torch.compile(encoder.forward, backend="eager", fullgraph=True)
    gate = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 1]])
    with torch.no_grad():
        expected = encoder(**batch, operators=gate).last_hidden_state
        got = compiled(**batch, operators=gate).last_hidden_state
    seen = batch["attention_mask"].bool()
    torch.testing.assert_close(got[seen], expected[seen])


@pytest.fixture
def sentence_model(tiny_encoder, tokenizer, tmp_path):
    """Build an ordinary SentenceTransformer of a family."""

    def build(family):
        folder = tmp_path / family
        tiny_encoder(family).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        tower = Transformer(str(folder))
        return SentenceTransformer(modules=[tower, Pooling(32, "mean")], device="cpu")

    return build


@pytest.mark.parametrize("family", FAMILIES)
def test_inside_a_sentence_transformer(sentence_model, tokenizer, family):
    model = sentence_model(family)
    before = model.encode(TEXTS, convert_to_tensor=True)
    alone = model.encode(TEXTS[1:], convert_to_tensor=True)
    attach_trained(model[0].model, tokenizer=tokenizer)
    after = model.encode(TEXTS, convert_to_tensor=True)
    assert (after - before)[0].abs().max() > 1e-4
    # The second text has no operator: equal alone, to the bit.
    assert torch.equal(model.encode(TEXTS[1:], convert_to_tensor=True), alone)
    detach(model[0].model)
    assert torch.equal(model.encode(TEXTS, convert_to_tensor=True), before)


@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet"])
def test_a_sentence_transformer_passes_labels_and_gradients(sentence_model, family):
    model = sentence_model(family).train()
    plugin = attach_trained(model[0].model)
    features = model.preprocess(TEXTS)
    torch.manual_seed(0)
    closed = model(dict(features))["sentence_embedding"]
    torch.manual_seed(0)
    opened = model({**features, "operators": [["not"], []]})["sentence_embedding"]
    assert not torch.equal(opened, closed)
    opened.square().sum().backward()
    assert plugin.operators.grad.any()
    assert all(layer.bias.sigma.grad is not None for layer in plugin.layers.values())


def test_a_sentence_transformer_itself_is_refused(sentence_model):
    model = sentence_model("bert")
    with pytest.raises(UnsupportedEncoderError, match=r"SentenceTransformer: model\[0\].model"):
        attach_trained(model)
