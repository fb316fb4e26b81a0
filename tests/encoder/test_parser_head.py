"""Labels from readings, readings from logits."""

from __future__ import annotations

import pytest
import torch

from boolattn.encoder.parser_head import ParserConfig, ParserHead, make_parser_labels, parser_loss
from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import ParsedQuery
from boolattn.parsing.decoding import ABSENT, NEGATED, POSITIVE, ParserLogits, decode

TEXT = "moths of Borneo but not Sumatra"
READING = ParsedQuery((((0, 15),),), (((0, 8), (24, 31)),))


def _offsets(tokenizer, text):
    return tokenizer(text, return_offsets_mapping=True)["offset_mapping"]


def _certain(labels) -> ParserLogits:
    """Logits that say just what labels say."""
    roles = torch.nn.functional.one_hot(labels.roles, 3).float() * 20 - 10
    return ParserLogits(labels.tags * 20 - 10, roles, labels.is_or * 20 - 10)


def test_a_shared_word_belongs_to_both_operands(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([READING], [offsets], 4)
    assert labels.roles.tolist() == [[POSITIVE, NEGATED, ABSENT, ABSENT]]
    by_slot = [
        {TEXT[a:b] for (a, b), tag in zip(offsets, labels.tags[0, :, slot], strict=True) if tag}
        for slot in range(3)
    ]
    assert by_slot[2] == set()
    assert by_slot[0] & by_slot[1]
    assert by_slot[0] != by_slot[1]


@pytest.mark.parametrize(
    "reading",
    [
        READING,
        ParsedQuery((((0, 15),), ((0, 8), (24, 31))), joiner=Operator.OR),
        ParsedQuery((((0, 15),), ((0, 8), (24, 31)))),
    ],
)
def test_labels_decode_to_the_reading_they_came_from(any_tokenizer, reading):
    offsets = _offsets(any_tokenizer, TEXT)
    read = _certain(make_parser_labels([reading], [offsets], 4))
    verdict = decode(read, TEXT, offsets, 0)
    assert verdict.parsed is not None
    assert verdict.parsed.tree(TEXT) == reading.tree(TEXT)
    assert verdict.confidence > 0.99


def test_an_operand_without_words_is_no_reading(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([READING], [offsets], 4)
    read = _certain(labels._replace(tags=torch.zeros_like(labels.tags)))
    verdict = decode(read, TEXT, offsets, 0)
    assert verdict.parsed is None
    assert verdict.confidence == 0


def test_what_is_excluded_must_say_more_than_what_is_kept(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([READING], [offsets], 4)
    tags = labels.tags.clone()
    # The excluded operand is left with words that the kept one has, too.
    tags[..., 1] *= tags[..., 0]
    assert tags[..., 1].any()
    verdict = decode(_certain(labels._replace(tags=tags)), TEXT, offsets, 0)
    assert verdict.parsed is None
    assert verdict.confidence == 0


def test_a_query_that_only_excludes_is_no_reading(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([READING], [offsets], 4)
    read = _certain(labels._replace(roles=labels.roles * 0 + torch.tensor([[0, NEGATED, 0, 0]])))
    assert decode(read, TEXT, offsets, 0).parsed is None


def test_doubt_lowers_the_confidence(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    sure = _certain(make_parser_labels([READING], [offsets], 4))
    doubtful = sure._replace(roles=sure.roles / 20)
    assert decode(doubtful, TEXT, offsets, 0).confidence < decode(sure, TEXT, offsets, 0).confidence


KINDS = [{}, {"n_states": 3, "depth": 1}]


@pytest.mark.parametrize("kind", KINDS)
def test_the_reader_learns_one_text_by_heart(kind):
    torch.manual_seed(0)
    reader = ParserHead(ParserConfig(hidden_size=16, n_slots=3, inner=16, **kind)).eval()
    states, mask = torch.randn(4, 1, 9, 16).unbind(), torch.ones(1, 9)
    offsets = [[(0, 0), (0, 5), (6, 8), (9, 15), (16, 19), (20, 23), (24, 31), (31, 31), (0, 0)]]
    labels = make_parser_labels([READING], offsets, 3)
    optimizer = torch.optim.Adam(reader.parameters(), lr=0.02)
    before = parser_loss(reader(states, mask), labels, mask).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = parser_loss(reader(states, mask), labels, mask)
        loss.backward()
        optimizer.step()
    assert loss.item() < before / 20
    read = ParserLogits(*(part.detach() for part in reader(states, mask)))
    assert decode(read, TEXT, offsets[0], 0).parsed == READING


@pytest.mark.parametrize("kind", KINDS)
def test_padding_says_nothing(kind):
    torch.manual_seed(0)
    reader = ParserHead(ParserConfig(hidden_size=16, n_slots=3, inner=16, **kind)).eval()
    states = torch.randn(4, 1, 9, 16)
    short = reader(states[:, :, :6], torch.ones(1, 6))
    mask = torch.ones(1, 9)
    mask[:, 6:] = 0
    padded = reader(states, mask)
    assert torch.allclose(short.roles, padded.roles, atol=1e-6)
    assert torch.allclose(short.tags, padded.tags[:, :6], atol=1e-6)


def test_texts_without_labels_do_not_count():
    torch.manual_seed(0)
    reader = ParserHead(ParserConfig(hidden_size=16, n_slots=3, inner=16))
    read, mask = reader([torch.randn(2, 9, 16)], torch.ones(2, 9)), torch.ones(2, 9)
    offsets = [[(0, 5)] * 9, [(0, 5)] * 9]
    labels = make_parser_labels([READING, READING], offsets, 3)
    wrong = labels._replace(roles=torch.stack([labels.roles[0], labels.roles[1] * 0]))
    known = torch.tensor([True, False])
    assert parser_loss(read, labels, mask, known) == parser_loss(read, wrong, mask, known)
    assert parser_loss(read, labels, mask) != parser_loss(read, wrong, mask)


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="n_slots"):
        ParserConfig(hidden_size=8, n_slots=1)
    with pytest.raises(ConfigError, match="odd"):
        ParserConfig(hidden_size=8, width=2)


def test_only_the_layers_that_are_mixed_matter():
    torch.manual_seed(0)
    mask = torch.ones(1, 9)
    layers = torch.randn(5, 1, 9, 16)
    for n_states, matters in ((1, {4}), (3, {2, 3, 4})):
        config = ParserConfig(hidden_size=16, n_slots=3, inner=16, n_states=n_states)
        reader = ParserHead(config).eval()
        before = reader(layers, mask).tags
        for layer in range(5):
            changed = layers.clone()
            changed[layer] += torch.randn(1, 9, 16)
            assert torch.equal(reader(changed, mask).tags, before) == (layer not in matters)


@pytest.mark.parametrize("kind", [{"n_states": 0}, {"depth": 1, "n_heads": 3}])
def test_settings_that_cannot_be(kind):
    with pytest.raises(ConfigError, match="must be"):
        ParserConfig(hidden_size=16, inner=16, **kind)
