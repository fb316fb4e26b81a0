import pytest
import torch
from transformers import BertTokenizer

from boolattn import BoolAttnConfig, attach
from boolattn.errors import ConfigError, GateError
from boolattn.logic.labels import cue_labels
from boolattn.plugin import recording
from boolattn.plugin.vocabulary import lexicon_gate
from tests.conftest import TEXTS, VOCABULARY

SENTENCES = (
    *TEXTS,
    "no nonsense, nothing nor nets",
    "Neither A nor B AND C",
    "(not) and/or: bands, floors & coral",
    "as well as; as well; well as",
    "",
    "plain words only",
    "in addition to this, with the exception of that",
)


def test_the_gate_marks_what_the_lexicon_marks(any_tokenizer):
    gate = lexicon_gate(BoolAttnConfig(gate="lexicon"), any_tokenizer)
    for text in SENTENCES:
        encoded = any_tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        ids = encoded["input_ids"].long()
        if ids.shape[1] == 0:
            continue
        offsets = [tuple(pair) for pair in encoded["offset_mapping"][0].tolist()]
        wanted = torch.tensor(cue_labels(text, offsets))
        marked = gate.cue_mask(ids, torch.ones_like(ids))[0]
        tokens = any_tokenizer.convert_ids_to_tokens(ids[0])
        # A tokenizer may give the space before a cue a token of its own.
        blank = torch.tensor([token in {"Ġ", "▁"} for token in tokens])
        assert torch.equal(marked & ~blank, wanted & ~blank), (text, tokens)
        assert torch.equal(gate(ids, torch.ones_like(ids)).open[0].bool(), wanted.any(-1))


def test_padding_holds_no_cue(tokenizer):
    gate = lexicon_gate(BoolAttnConfig(gate="lexicon"), tokenizer)
    ids = tokenizer("a but not b", return_tensors="pt")["input_ids"]
    assert gate(ids, torch.ones_like(ids)).open.tolist() == [[0, 0, 1]]
    mask = torch.ones_like(ids)
    mask[:, 2:] = 0
    assert gate(ids, mask).open.tolist() == [[0, 0, 0]]


def test_a_subset_of_operators_keeps_its_own_cues_only(tokenizer):
    gate = lexicon_gate(BoolAttnConfig(gate="lexicon", operators=("and", "not")), tokenizer)
    ids = tokenizer("a or b and c", return_tensors="pt")["input_ids"]
    assert gate(ids, torch.ones_like(ids)).open.tolist() == [[1, 0]]


def test_plain_text_opens_the_gate_and_a_label_overrules_it(tiny_encoder, tokenizer):
    encoder = tiny_encoder("bert", vocab_size=VOCABULARY)
    texts = ["cats but not dogs", "cats with dogs"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        bare = encoder(**batch).last_hidden_state
        attach(encoder, tokenizer=tokenizer)
        with recording() as record:
            plain = encoder(**batch).last_hidden_state
            labelled = encoder(**batch, operators=[["not"], []]).last_hidden_state
            closed = encoder(**batch, operators=[[], []]).last_hidden_state
    assert record.readings[0].gate.open.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert torch.equal(plain, labelled)
    assert not torch.equal(plain[0], bare[0])
    assert torch.equal(closed, bare)


def test_text_without_cues_changes_no_bit(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    batch = tokenizer(["cats with dogs", ""], padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        bare = encoder(**batch).last_hidden_state
        attach(encoder, tokenizer=tokenizer)
        assert torch.equal(encoder(**batch).last_hidden_state, bare)


def test_what_the_lexicon_gate_cannot_do_is_said(tiny_encoder, tokenizer):
    with pytest.raises(ConfigError, match="needs the encoder's tokenizer"):
        attach(tiny_encoder(), BoolAttnConfig(gate="lexicon"))
    encoder = tiny_encoder()
    attach(encoder, tokenizer=tokenizer)
    with pytest.raises(GateError, match="reads token ids and got inputs_embeds"):
        encoder(inputs_embeds=torch.zeros(1, 3, 32))
    encoder(inputs_embeds=torch.zeros(1, 3, 32), operators=[["and"]])


def test_a_slow_tokenizer_is_refused(tokenizer):
    class Slow(BertTokenizer):
        is_fast = False

    slow = object.__new__(Slow)
    with pytest.raises(ConfigError, match="needs a fast tokenizer, got Slow"):
        lexicon_gate(BoolAttnConfig(gate="lexicon"), slow)
