"""The document encoder returns the vectors of ``encode_document``, in the caller's order."""

import threading

import numpy as np
import pytest
import torch

from boolattn import BoolAttnConfig
from boolattn.encoder import document_encoder
from boolattn.encoder.document_encoder import DocumentEncoder, group
from boolattn.encoder.towers import build_towers
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
def test_vectors_equal_encode_document(family, tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(family), tokenizer)
    found = DocumentEncoder(towers)(DOCUMENTS)
    assert (found.shape, found.dtype) == ((len(DOCUMENTS), 32), torch.float32)
    _same(found, towers)


@pytest.mark.parametrize("n_tokens", [1, 60, 400])
def test_batch_size_does_not_change_vectors(n_tokens, tiny_encoder, tokenizer, monkeypatch):
    # Small parts, so that texts of one length are in several.
    monkeypatch.setattr(document_encoder, "_CHARACTERS", 300)
    towers = _towers(tiny_encoder(), tokenizer)
    _same(DocumentEncoder(towers, n_tokens=n_tokens)(DOCUMENTS), towers)


@pytest.mark.parametrize("options", [{"pooling": "cls", "similarity": "dot"}, {"is_shared": False}])
def test_poolings_and_separate_weights(options, tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer, **options)
    if not options.get("is_shared", True):  # the document tower, not the query tower
        towers[0].sub_modules["document"][0].model.embeddings.word_embeddings.weight.data.mul_(-1)
    _same(DocumentEncoder(towers)(DOCUMENTS), towers)


def test_towers_without_plugin_and_every_vocabulary(tiny_encoder, any_tokenizer):
    towers = _towers(tiny_encoder(vocab_size=len(any_tokenizer)), any_tokenizer, config=None)
    _same(DocumentEncoder(towers)(DOCUMENTS), towers)


def test_prompts_and_truncated_vectors(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer)
    towers.prompts = {"query": "find ", "passage": "moths: "}
    towers.truncate_dim = 8
    found = DocumentEncoder(towers)(DOCUMENTS)
    assert found.shape == (len(DOCUMENTS), 8)
    _same(found, towers)


def test_half_precision_does_not_change_the_model(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer).train()
    found = DocumentEncoder(towers, dtype=torch.bfloat16)(DOCUMENTS)
    assert towers.dtype == torch.float32
    expected = towers.encode_document(DOCUMENTS)
    assert 1e-6 < abs(found.numpy() - expected).max() < 0.05


def test_overflow_in_half_precision_is_encoded_again(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    # Above float16's largest number, 65504; the next layer scales it back.
    encoder.encoder.layer[0].intermediate.dense.bias.data.fill_(1e6)
    encoder.encoder.layer[0].output.dense.weight.data.mul_(1e-6)
    towers = _towers(encoder, tokenizer)
    _same(DocumentEncoder(towers, dtype=torch.float16)(DOCUMENTS), towers)


def test_no_texts_and_one_text(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer)
    assert DocumentEncoder(towers)([]).shape == (0, 32)
    assert DocumentEncoder(towers)(["moths"]).shape == (1, 32)
    with pytest.raises(ConfigError, match="list of texts"):
        DocumentEncoder(towers)("moths")
    with pytest.raises(ConfigError, match="n_tokens"):
        DocumentEncoder(towers, n_tokens=-1)(["moths"])


def test_many_calls_and_vectors_with_gradients(tiny_encoder, tokenizer):
    encode = DocumentEncoder(_towers(tiny_encoder(), tokenizer))
    first, second = encode(TEXTS), encode(TEXTS[::-1])
    torch.testing.assert_close(first, second.flip(0), atol=1e-6, rtol=0)
    first.requires_grad_().sum().backward()


def test_an_invalid_text_raises_and_leaves_no_thread(tiny_encoder, tokenizer):
    towers = _towers(tiny_encoder(), tokenizer)
    with pytest.raises(TypeError):
        DocumentEncoder(towers)([*DOCUMENTS, ["not", "a", "text"]])
    assert not [t for t in threading.enumerate() if t.name.startswith("boolattn-tokens")]


def test_groups_keep_the_token_limit_and_have_each_text_once():
    lengths = np.random.default_rng(0).integers(2, 60, 500)
    batches = list(group(lengths, 300))
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert max(len(batch) * lengths[batch].max() for batch in batches) <= 300
    assert sum(len(batch) * lengths[batch].max() for batch in batches) < 1.1 * lengths.sum()
