"""Encoding many documents gives what ``encode_document`` gives, in the caller's order."""

import threading

import numpy as np
import pytest
import torch

from boolattn import BoolAttnConfig
from boolattn.encoder import build_towers, encode_documents
from boolattn.encoder import document_encoder as encoding
from boolattn.encoder.document_encoder import DocumentEncoder, group
from boolattn.errors import ConfigError
from tests.conftest import FAMILIES, TEXTS

LEXICON = BoolAttnConfig(gate="lexicon", rank=4)
DOCUMENTS = [
    "",
    *TEXTS,
    "moths",
    " spaces  around ",
    "a text that is much too long for its tower " * 20,
    "",
    "line\nbreaks\tand tabs",
    *TEXTS[:2],
    "ünïcode und Æ",
    *(f"number {n} of borneo" * (n % 5) for n in range(30)),
]


def _towers(encoder, tokenizer, config=LEXICON, **options):
    return build_towers(encoder, config, tokenizer=tokenizer, document_length=40, **options)


def _same(found, towers, texts=DOCUMENTS):
    expected = towers.encode_document(list(texts), batch_size=64)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_encode(family, tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(family), tokenizer)
    found = encode_documents(towers, DOCUMENTS)
    assert (found.shape, found.dtype) == ((len(DOCUMENTS), 32), torch.float32)
    _same(found, towers)


@pytest.mark.parametrize("n_tokens", [1, 60, 400])
def test_the_size_of_batches_changes_nothing(n_tokens, tiny_encoder, tokenizer, monkeypatch):
    # Parts so small that texts of one length are spread over several.
    monkeypatch.setattr(encoding, "_FIRST_CHARACTERS", 50)
    monkeypatch.setattr(encoding, "_CHARACTERS", 300)
    towers = _towers(tiny_encoder(), tokenizer)
    _same(encode_documents(towers, DOCUMENTS, n_tokens=n_tokens), towers)


@pytest.mark.parametrize("options", [{"pooling": "cls", "similarity": "dot"}, {"is_shared": False}])
def test_every_kind_of_towers(options, tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer, **options)
    if not options.get("is_shared", True):  # the document tower, not the query tower
        towers[0].sub_modules["document"][0].model.embeddings.word_embeddings.weight.data.mul_(-1)
    _same(encode_documents(towers, DOCUMENTS), towers)


def test_plain_towers_and_every_vocabulary(tiny_encoder, any_tokenizer):
    towers = _towers(tiny_encoder(vocab_size=len(any_tokenizer)), any_tokenizer, config=None)
    _same(encode_documents(towers, DOCUMENTS), towers)


def test_prompt_and_shorter_vectors_as_in_encode(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer)
    towers.prompts = {"query": "find ", "passage": "moths: "}
    towers.truncate_dim = 8
    found = encode_documents(towers, DOCUMENTS)
    assert found.shape == (len(DOCUMENTS), 8)
    _same(found, towers)


def test_half_precision_leaves_the_model_alone(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer).train()
    found = encode_documents(towers, DOCUMENTS, dtype=torch.bfloat16)
    assert towers.dtype == torch.float32
    expected = towers.encode_document(DOCUMENTS)
    assert 1e-6 < abs(found.numpy() - expected).max() < 0.05


def test_what_half_precision_cannot_hold_is_encoded_again(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    # Beyond float16's largest number, 65504; the layer after it brings it back.
    encoder.encoder.layer[0].intermediate.dense.bias.data.fill_(1e6)
    encoder.encoder.layer[0].output.dense.weight.data.mul_(1e-6)
    towers = _towers(encoder, tokenizer)
    _same(encode_documents(towers, DOCUMENTS, dtype=torch.float16), towers)


def test_no_texts_and_one_text(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer)
    assert encode_documents(towers, []).shape == (0, 32)
    assert encode_documents(towers, ["moths"]).shape == (1, 32)
    with pytest.raises(ConfigError, match="list of texts"):
        encode_documents(towers, "moths")
    with pytest.raises(ConfigError, match="n_tokens"):
        encode_documents(towers, ["moths"], n_tokens=-1)


def test_an_encoder_serves_many_calls_and_its_vectors_take_gradients(tiny_encoder, tokenizer):
    encode = DocumentEncoder(_towers(tiny_encoder(), tokenizer))
    first, second = encode(TEXTS), encode(TEXTS[::-1])
    torch.testing.assert_close(first, second.flip(0), atol=1e-6, rtol=0)
    first.requires_grad_().sum().backward()


def test_a_text_that_is_none_stops_at_once_and_leaves_no_thread(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer)
    with pytest.raises(TypeError):
        encode_documents(towers, [*DOCUMENTS, ["not", "a", "text"]])
    assert not [t for t in threading.enumerate() if t.name.startswith("boolattn-tokens")]


def test_groups_keep_to_the_tokens_and_hold_each_text_once():
    lengths = np.random.default_rng(0).integers(2, 60, 500)
    batches = group(lengths, 300)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert max(len(batch) * lengths[batch].max() for batch in batches) <= 300
    assert sum(len(set(lengths[batch])) == 1 for batch in batches) > len(batches) / 2
