"""The parser head: labels from parsed queries, and parsed queries from logits."""

from __future__ import annotations

import pytest
import torch

from boolattn.encoder.parser_head import ParserConfig, ParserHead, make_parser_labels, parser_loss
from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.parsing.decoding import ABSENT, NEGATED, POSITIVE, ParserLogits, decode
from tests.parses import flat

TEXT = "moths of Borneo but not Sumatra"
PARSED = flat((((0, 15),),), (((0, 8), (24, 31)),))


def _offsets(tokenizer, text):
    return tokenizer(text, return_offsets_mapping=True)["offset_mapping"]


def _certain(labels) -> ParserLogits:
    """Return logits that are certain of the labels."""
    roles = torch.nn.functional.one_hot(labels.roles, 3).float() * 20 - 10
    return ParserLogits(labels.tags * 20 - 10, roles, labels.is_or * 20 - 10)


def test_a_shared_word_belongs_to_both_operands(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([PARSED], [offsets], 4)
    assert labels.roles.tolist() == [[POSITIVE, NEGATED, ABSENT, ABSENT]]
    by_slot = [
        {TEXT[a:b] for (a, b), tag in zip(offsets, labels.tags[0, :, slot], strict=True) if tag}
        for slot in range(3)
    ]
    assert by_slot[2] == set()
    assert by_slot[0] & by_slot[1]
    assert by_slot[0] != by_slot[1]


@pytest.mark.parametrize(
    "parsed",
    [
        PARSED,
        flat((((0, 15),), ((0, 8), (24, 31))), joiner=Operator.OR),
        flat((((0, 15),), ((0, 8), (24, 31)))),
    ],
)
def test_labels_decode_to_their_parsed_query(any_tokenizer, parsed):
    offsets = _offsets(any_tokenizer, TEXT)
    logits = _certain(make_parser_labels([parsed], [offsets], 4))
    output = decode(logits, TEXT, offsets, 0)
    assert output.parsed is not None
    assert output.parsed.tree(TEXT) == parsed.tree(TEXT)
    assert output.confidence > 0.99


def test_an_operand_without_words_is_no_parse(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([PARSED], [offsets], 4)
    logits = _certain(labels._replace(tags=torch.zeros_like(labels.tags)))
    output = decode(logits, TEXT, offsets, 0)
    assert output.parsed is None
    assert output.confidence == 0


def test_a_negated_operand_needs_words_of_its_own(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([PARSED], [offsets], 4)
    tags = labels.tags.clone()
    # The negated operand has only words of the positive one.
    tags[..., 1] *= tags[..., 0]
    assert tags[..., 1].any()
    output = decode(_certain(labels._replace(tags=tags)), TEXT, offsets, 0)
    assert output.parsed is None
    assert output.confidence == 0


def test_a_query_with_only_negated_operands_is_no_parse(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    labels = make_parser_labels([PARSED], [offsets], 4)
    logits = _certain(labels._replace(roles=labels.roles * 0 + torch.tensor([[0, NEGATED, 0, 0]])))
    assert decode(logits, TEXT, offsets, 0).parsed is None


def test_small_logits_lower_the_confidence(tokenizer):
    offsets = _offsets(tokenizer, TEXT)
    certain = _certain(make_parser_labels([PARSED], [offsets], 4))
    uncertain = certain._replace(roles=certain.roles / 20)
    before, after = (decode(logits, TEXT, offsets, 0) for logits in (certain, uncertain))
    assert after.confidence < before.confidence


KINDS = [{}, {"n_states": 3, "depth": 1}]


@pytest.mark.parametrize("kind", KINDS)
def test_the_parser_can_fit_one_text(kind):
    torch.manual_seed(0)
    parser = ParserHead(ParserConfig(hidden_size=16, n_slots=3, inner=16, **kind)).eval()
    states, mask = torch.randn(4, 1, 9, 16).unbind(), torch.ones(1, 9)
    offsets = [[(0, 0), (0, 5), (6, 8), (9, 15), (16, 19), (20, 23), (24, 31), (31, 31), (0, 0)]]
    labels = make_parser_labels([PARSED], offsets, 3)
    optimizer = torch.optim.Adam(parser.parameters(), lr=0.02)
    before = parser_loss(parser(states, mask), labels, mask).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = parser_loss(parser(states, mask), labels, mask)
        loss.backward()
        optimizer.step()
    assert loss.item() < before / 20
    logits = ParserLogits(*(part.detach() for part in parser(states, mask)))
    assert decode(logits, TEXT, offsets[0], 0).parsed == PARSED


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind):
    torch.manual_seed(0)
    parser = ParserHead(ParserConfig(hidden_size=16, n_slots=3, inner=16, **kind)).eval()
    states = torch.randn(4, 1, 9, 16)
    short = parser(states[:, :, :6], torch.ones(1, 6))
    mask = torch.ones(1, 9)
    mask[:, 6:] = 0
    padded = parser(states, mask)
    assert torch.allclose(short.roles, padded.roles, atol=1e-6)
    assert torch.allclose(short.tags, padded.tags[:, :6], atol=1e-6)


def test_texts_without_labels_do_not_count():
    torch.manual_seed(0)
    parser = ParserHead(ParserConfig(hidden_size=16, n_slots=3, inner=16))
    logits, mask = parser([torch.randn(2, 9, 16)], torch.ones(2, 9)), torch.ones(2, 9)
    offsets = [[(0, 5)] * 9, [(0, 5)] * 9]
    labels = make_parser_labels([PARSED, PARSED], offsets, 3)
    wrong = labels._replace(roles=torch.stack([labels.roles[0], labels.roles[1] * 0]))
    known = torch.tensor([True, False])
    assert parser_loss(logits, labels, mask, known) == parser_loss(logits, wrong, mask, known)
    assert parser_loss(logits, labels, mask) != parser_loss(logits, wrong, mask)


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="n_slots"):
        ParserConfig(hidden_size=8, n_slots=1)
    with pytest.raises(ConfigError, match="odd"):
        ParserConfig(hidden_size=8, width=2)


def test_only_mixed_layers_have_an_effect():
    torch.manual_seed(0)
    mask = torch.ones(1, 9)
    layers = torch.randn(5, 1, 9, 16)
    for n_states, matters in ((1, {4}), (3, {2, 3, 4})):
        config = ParserConfig(hidden_size=16, n_slots=3, inner=16, n_states=n_states)
        parser = ParserHead(config).eval()
        before = parser(layers, mask).tags
        for layer in range(5):
            changed = layers.clone()
            changed[layer] += torch.randn(1, 9, 16)
            assert torch.equal(parser(changed, mask).tags, before) == (layer not in matters)


@pytest.mark.parametrize("kind", [{"n_states": 0}, {"depth": 1, "n_heads": 3}])
def test_invalid_settings_are_rejected(kind):
    with pytest.raises(ConfigError, match="must be"):
        ParserConfig(hidden_size=16, inner=16, **kind)
