"""A call of ``model.forward``, as sentence-transformers makes it."""

from inspect import signature

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from boolattn import BoolAttnConfig, detach
from boolattn.errors import UnsupportedEncoderError
from boolattn.plugin.backend import current
from tests.conftest import FAMILIES, attach_trained
from tests.plugin.test_attach import CLOSED, OPEN, check_recomputed

TEXTS = ["moths of Borneo but not Sumatra", "moths of Borneo"]


@pytest.mark.parametrize("gate", ["lexicon", "learned"])
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_is_the_call(tiny_encoder, batch, tokenizer, family, gate):
    encoder = tiny_encoder(family)
    torch.manual_seed(1)
    plugin = attach_trained(encoder, BoolAttnConfig(gate=gate), tokenizer=tokenizer)
    if gate == "learned":
        plugin.gate.outer.bias.data.fill_(5.0)
    texts = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    texts.pop("token_type_ids", None)
    with torch.no_grad():
        encoder.embeddings(batch["input_ids"])  # by itself, begins nothing that stays
        for inputs, options in (
            (texts, {}),
            (batch, {"operators": CLOSED}),
            (batch, {"operators": OPEN}),
            (batch, {"operators": OPEN, "is_bare": True}),
        ):
            expected = encoder(**inputs, **options).last_hidden_state
            assert torch.equal(encoder.forward(**inputs, **options).last_hidden_state, expected)
            bare = encoder(**inputs, is_bare=True).last_hidden_state
            is_open = not options or options == {"operators": OPEN}
            assert torch.equal(expected, bare) != is_open
    assert not current.passes


def test_what_is_chosen_by_the_signature_stays(tiny_encoder):
    encoder = tiny_encoder()
    before = signature(encoder.forward)
    attach_trained(encoder)
    assert signature(encoder.forward) == before
    detach(encoder)
    assert "forward" not in vars(encoder)


def test_a_replaced_forward_is_called(tiny_encoder, batch):
    """As accelerate replaces it, to move tensors between devices."""
    encoder = tiny_encoder()
    calls, own = [], encoder.forward
    encoder.forward = lambda *args, **kwargs: calls.append(1) or own(*args, **kwargs)
    replaced = encoder.forward
    attach_trained(encoder)
    encoder(**batch, operators=OPEN)
    assert calls == [1]
    detach(encoder)
    assert encoder.forward is replaced


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_recomputed_layers_keep_their_pass(tiny_encoder, batch, family):
    encoder = tiny_encoder(family)
    check_recomputed(encoder, encoder.forward, batch)


def test_a_compiled_forward_is_the_call(tiny_encoder, batch):
    encoder = tiny_encoder(num_hidden_layers=1)
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
