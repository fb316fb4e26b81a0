import random

import pytest
import torch
from transformers import AutoTokenizer, BertTokenizer

from boolattn import BoolAttnConfig
from boolattn.encoders.models import minilm_folder
from boolattn.errors import ConfigError, GateError
from boolattn.plugin.backend import recording
from boolattn.plugin.vocabulary import lexicon_gate
from boolattn.query.tokens import CUES, NOT_CUES
from tests.conftest import TEXTS, VOCABULARY, attach_trained, cue_labels

SENTENCES = (
    *TEXTS,
    "no nonsense, nothing nor nets",
    "Neither A nor B AND C",
    "(not) and/or: bands, floors & coral",
    "as well as; as well; well as",
    "",
    "plain words only",
    "in addition to this, with the exception of that",
    "cats\u2014not dogs",
    "cats not\u2014dogs",
    "\u201cnot\u201d cats, \u201cor\u201d dogs",
    "cats or\u2026 dogs \u2018and\u2019 birds",
    "cats not\u00a0dogs",
    "cats\u00a0or dogs",
    "R&B, AT&T, Q & A",
    "birds but not only owls; not including bats, and Not Just moths",
    "cats and NOT dogs, But NOT Only birds",
    "Non-fiction, non fiction, NON-FICTION; also known as",
    "Owls are also known as, more or less, birds",
    "they weren't, CAN'T or didn't",
)


PHRASES = (*(phrase for phrases in CUES.values() for phrase in phrases), *NOT_CUES)
PLAIN = (
    *("cats", "dogs", "owls", "notes", "band", "floor", "nonsense", "Borneo", "R&B", "Q&A", "x"),
    *(
        "orchids",
        "only",
        "just",
        "including",
        "fiction",
        "known",
        "as",
        "well",
        "else",
        "than",
        "7",
    ),
)
GAPS = (
    *[" "] * 12,
    *(", ", "; ", ": ", ". ", "! ", "? ", " (", ") ", "/", "-", " & ", "&", "\u2014", " \u2014 "),
    *("\u2013", "\u2026 ", "... ", " \u201c", "\u201d ", " \u2018", "\u2019 ", ' "', '" '),
)


def assert_alike(gate, tokenizer, texts):
    encoded = tokenizer(texts, padding=True, return_offsets_mapping=True, return_tensors="pt")
    ids, mask = encoded["input_ids"], encoded["attention_mask"]
    everything = gate.cue_mask(ids, mask)
    for row, text in enumerate(texts):
        offsets = [tuple(pair) for pair in encoded["offset_mapping"][row].tolist()]
        tokens = tokenizer.convert_ids_to_tokens(ids[row])
        expected, marked = torch.tensor(cue_labels(text, offsets)), everything[row]
        # A tokenizer may give the space before a cue a token of its own.
        blank = torch.tensor([token in {"Ġ", "▁"} for token in tokens])
        assert torch.equal(marked & ~blank, expected & ~blank), (text, tokens)
        assert torch.equal(marked.any(-1), expected.any(-1)), (text, tokens)


def random_texts(n, has_curly):
    """Return texts of cue phrases, plain words and symbols, without the gate's known differences.

    Left out: "as well" after "as" (two cues share the word, and the gate uses both), a
    straight quote before a cue of m, s, t or d (byte-level vocabularies cut off "'m" and the
    like), an underscore, a symbol that is no punctuation, an accent, a space within a
    contraction, white space other than single spaces, mixed case within a word, mixed case
    across four words, and a curly apostrophe that the vocabulary does not know.
    """
    generator = random.Random(0)
    texts = []
    while len(texts) < n:
        text = ""
        for _ in range(generator.randint(2, 7)):
            piece = generator.choice(PHRASES if generator.random() < 0.5 else PLAIN)
            if generator.random() < 0.2:
                words = piece.split(" ") if piece.count(" ") < 3 else [piece]
                ways = (str.lower, str.upper, str.capitalize)
                piece = " ".join(generator.choice(ways)(word) for word in words)
            if has_curly and generator.random() < 0.3:
                piece = piece.replace("'", "\u2019")
            text += piece + generator.choice(GAPS)
        if "as as well" not in text.lower() and "as well" not in text.lower():
            texts.append(text)
    return texts


def test_the_gate_marks_what_the_lexicon_marks(any_tokenizer):
    gate = lexicon_gate(any_tokenizer)
    is_byte_level = any_tokenizer.unk_token is None
    texts = [*SENTENCES, *random_texts(80, has_curly=is_byte_level)]
    assert_alike(gate, any_tokenizer, texts)
    ids = any_tokenizer("cats or not", return_tensors="pt")["input_ids"]
    assert gate(ids, torch.ones_like(ids)).open.tolist() == [[0, 1, 1]]
    if is_byte_level:
        # The two bytes of such a letter are tokens of their own here.
        assert_alike(gate, any_tokenizer, ["noé, norß", "noř notж"])


def test_the_gate_marks_what_the_lexicon_marks_with_a_real_vocabulary():
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    gate = lexicon_gate(tokenizer)
    assert_alike(gate, tokenizer, [*SENTENCES, *random_texts(200, has_curly=True)])


def test_two_hash_signs_are_a_token_in_other_vocabularies(any_tokenizer):
    if any_tokenizer.unk_token == "[UNK]":
        pytest.skip("the prefix of WordPiece")
    backend = type(any_tokenizer.backend_tokenizer).from_str(
        any_tokenizer.backend_tokenizer.to_str()
    )
    tokenizer = type(any_tokenizer)(tokenizer_object=backend, pad_token="<pad>")
    tokenizer.add_tokens(["##", "##x"])
    gate = lexicon_gate(tokenizer)
    assert_alike(gate, tokenizer, ["## not x, nothing notary", "##x or, bands nor floors"])


def test_padding_has_no_cue(tokenizer):
    gate = lexicon_gate(tokenizer)
    ids = tokenizer("a but not b", return_tensors="pt")["input_ids"]
    assert gate(ids, torch.ones_like(ids)).open.tolist() == [[0, 0, 1]]
    mask = torch.ones_like(ids)
    mask[:, 2:] = 0
    assert gate(ids, mask).open.tolist() == [[0, 0, 0]]


def test_plain_text_opens_the_gate_and_labels_override_it(tiny_encoder, tokenizer):
    encoder = tiny_encoder("bert", vocab_size=VOCABULARY)
    texts = ["cats but not dogs", "cats with dogs"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        bare = encoder(**batch).last_hidden_state
        attach_trained(encoder, tokenizer=tokenizer)
        with recording() as record:
            plain = encoder(**batch).last_hidden_state
            labelled = encoder(**batch, operators=[["not"], []]).last_hidden_state
            closed = encoder(**batch, operators=[[], []]).last_hidden_state
    assert record.cue_states[0].gate.open.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert torch.equal(plain, labelled)
    assert not torch.equal(plain[0], bare[0])
    assert torch.equal(closed, bare)


def test_text_without_cues_changes_no_bit(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    batch = tokenizer(["cats with dogs", ""], padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        bare = encoder(**batch).last_hidden_state
        attach_trained(encoder, tokenizer=tokenizer)
        assert torch.equal(encoder(**batch).last_hidden_state, bare)


def test_missing_tokenizer_or_ids_are_rejected(tiny_encoder, tokenizer):
    with pytest.raises(ConfigError, match="needs the encoder's tokenizer"):
        attach_trained(tiny_encoder(), BoolAttnConfig(gate="lexicon"))
    encoder = tiny_encoder()
    attach_trained(encoder, tokenizer=tokenizer)
    with pytest.raises(GateError, match="needs input_ids"):
        encoder(inputs_embeds=torch.zeros(1, 3, 32))
    encoder(inputs_embeds=torch.zeros(1, 3, 32), operators=[["and"]])


def test_a_slow_tokenizer_is_rejected(tokenizer):
    class Slow(BertTokenizer):
        is_fast = False

    slow = object.__new__(Slow)
    with pytest.raises(ConfigError, match="needs a fast tokenizer, got Slow"):
        lexicon_gate(slow)


def test_tokens_added_after_attach(tiny_encoder, tokenizer):
    encoder = tiny_encoder()
    attach_trained(encoder, tokenizer=tokenizer)
    encoder.resize_token_embeddings(VOCABULARY + 5)
    ids = torch.cat(
        [tokenizer("a not b", return_tensors="pt")["input_ids"], torch.tensor([[224]])], 1
    )
    with recording() as record:
        encoder(input_ids=ids)
    assert record.cue_states[0].gate.open.tolist() == [[0, 0, 1]]
