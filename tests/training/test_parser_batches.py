"""Batches for the query parser: labels, elided operands, sources."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from boolattn.data.labelled_queries import write_labelled_queries
from boolattn.data.records import Operand
from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery
from boolattn.training.batches.parser_batches import (
    ComposingCollator,
    operand_words,
    operator_labels,
    read_parser_sources,
)
from boolattn.training.corpus import Corpus
from boolattn.training.launch import make_steps
from boolattn.training.settings import ComposeSettings
from tests.parses import flat
from tests.training.conftest import COMPOSE


def test_a_step_holds_operands_and_texts_for_the_parser(preset, labelled_corpus, parser_queries):
    steps = make_steps(preset(*COMPOSE), labelled_corpus, None, parser_queries)
    batch = steps[0]
    assert isinstance(steps.collator, ComposingCollator)
    assert len(batch["queries"]["input_ids"]) == 4 + 6
    assert (batch["slots"][:, :2] >= 0).all()
    assert (batch["slots"][:, 2] == -1).all()
    # Positive, then negated, in text order.
    assert batch["labels"]["roles"][:4].tolist() == [[1, 2, 0]] * 4
    assert batch["labels"]["is_known"].all()
    assert len(batch["operands"]["input_ids"]) == 8
    assert not batch["operands"]["operators"].any()
    texts = [labelled_corpus.tokenizer.decode(ids) for ids in batch["operands"]["input_ids"]]
    assert len(set(texts)) > 4


def _operand_texts(steps, step):
    """Return the words of a step's operands, positive and negated in turn."""
    decode = steps.collator.queries._tokenizer.decode
    ids = steps[step]["operands"]["input_ids"]
    return [decode(row, skip_special_tokens=True).replace(" ##", "") for row in ids]


def test_a_share_of_the_operands_is_elided(preset, labelled_corpus, parser_queries):
    full, elided, some = (
        make_steps(
            preset(*COMPOSE, f"compose.elided_share={share}"), labelled_corpus, None, parser_queries
        )
        for share in (0.0, 1.0, 0.5)
    )
    positive, negated = _operand_texts(full, 0)[::2], _operand_texts(full, 0)[1::2]
    assert all(a.split()[:2] == b.split()[:2] for a, b in zip(positive, negated, strict=True))
    # Positive operands stay in full; negated ones lose "moths of".
    assert _operand_texts(elided, 0)[::2] == positive
    assert _operand_texts(elided, 0)[1::2] == [" ".join(name.split()[2:]) for name in negated]
    shares = [
        np.mean([len(name.split()) < 3 for name in _operand_texts(some, step)[1::2]])
        for step in range(len(some))
    ]
    assert 0.1 < np.mean(shares) < 0.9
    # Drawn at each step, and the same when a training is resumed.
    assert len(set(shares)) > 1
    assert _operand_texts(some, 1) == _operand_texts(some, 1)
    # Only the operands' own texts are elided, not the queries and their labels.
    for name in ("input_ids", "attention_mask"):
        assert torch.equal(full[0]["queries"][name], elided[0]["queries"][name])
    assert torch.equal(full[0]["labels"]["tags"], elided[0]["labels"]["tags"])
    assert torch.equal(full[0]["slots"], elided[0]["slots"])


def _parsed(text, positive, negated=(), joiner=Operator.AND):
    def spans(parts):
        return tuple((text.index(part), text.index(part) + len(part)) for part in parts)

    return flat(tuple(map(spans, positive)), tuple(map(spans, negated)), joiner)


@pytest.mark.parametrize(
    ("text", "positive", "negated", "joiner", "words"),
    [
        (
            "moths of Borneo and of Java, not Sumatra",
            [["moths", "of Borneo"], ["moths", "of Java"]],
            [["moths", "Sumatra"]],
            Operator.AND,
            ["moths of Borneo", "Java", "Sumatra"],
        ),
        # A negated operand that comes first is elided too.
        (
            "no Sumatra, moths of Borneo",
            [["moths of Borneo"]],
            [["Sumatra", "moths"]],
            Operator.AND,
            ["Sumatra", "moths of Borneo"],
        ),
        (
            "moths of Borneo or of Java",
            [["moths", "of Borneo"], ["moths", "of Java"]],
            [],
            Operator.OR,
            ["moths of Borneo", "moths of Java"],
        ),
        ("moths of Borneo", [["moths of Borneo"]], [], Operator.AND, ["moths of Borneo"]),
    ],
)
def test_elided_operands_repeat_nothing(text, positive, negated, joiner, words):
    parsed = _parsed(text, positive, negated, joiner)
    assert operand_words(text, parsed, is_elided=True) == words
    in_full = operand_words(text, parsed)
    assert all(
        set(own.split()) <= set(name.split()) for own, name in zip(words, in_full, strict=True)
    )


def test_a_step_without_labelled_queries_has_no_operands(
    preset, dataset, tokenizer, parser_queries
):
    queries = {
        name: tuple(replace(query, operands=(), template="") for query in own)
        for name, own in dataset.splits.items()
    }
    corpus = Corpus(replace(dataset, splits=queries), tokenizer, 32)
    batch = make_steps(preset(*COMPOSE), corpus, None, parser_queries)[0]
    assert (batch["slots"] == -1).all()
    assert len(batch["operands"]["input_ids"]) == 1


def test_operands_beyond_the_slots_are_left_out(preset, dataset, tokenizer, parser_queries):
    text = "moths of Borneo and of Java, not Sumatra"
    spans = (((0, 15),), ((0, 5), (20, 27)), ((0, 5), (33, 40)))
    operands = tuple(Operand(text[own[-1][0] : own[-1][1]], own) for own in spans)
    changes = {"text": text, "template": "_ that are also _ but not _", "operands": operands}
    queries = {
        name: tuple(replace(query, **changes) for query in own)
        for name, own in dataset.splits.items()
    }
    corpus = Corpus(replace(dataset, splits=queries), tokenizer, 32)
    for n_slots in (2, 3):
        chosen = preset(*COMPOSE, f"compose.n_slots={n_slots}")
        steps = make_steps(chosen, corpus, None, parser_queries)
        assert (steps[0]["slots"] >= 0).all()
        wanted = ["moths of borneo", "moths of java", "moths sumatra"][:n_slots]
        assert _operand_texts(steps, 0) == wanted * 4


def test_a_share_above_one_is_refused(preset):
    with pytest.raises(ConfigError, match="elided_share must be between 0 and 1"):
        preset(*COMPOSE, "compose.elided_share=1.5")


def test_operator_labels(labelled_corpus):
    labels, _ = read_parser_sources(labelled_corpus.split("train"), None, _none())
    assert len(labels) == len({query.text for query in labelled_corpus.split("train")})
    assert {operator_labels(one.parsed) for one in labels.values()} == {(0, 0, 1)}
    assert operator_labels(None) == (0, 0, 0)


def _none():
    return ComposeSettings(n_generated=0)


def test_a_step_draws_as_many_texts_of_each_source(preset, labelled_corpus, parser_queries):
    steps = make_steps(preset(*COMPOSE), labelled_corpus, None, parser_queries)
    sources = steps.collator.texts.sources
    assert [len(source) for source in sources][1:] == [12, 9]
    drawn = steps.collator.texts.draw(np.random.default_rng(0), 6)
    assert [sum(row in source for row in drawn) for source in sources] == [2, 2, 2]


def test_missing_parser_queries_are_named(preset, labelled_corpus, parser_queries, tmp_path):
    with pytest.raises(ConfigError, match=r"n_generated=12 .*parser_queries --out FILE"):
        make_steps(preset(*COMPOSE), labelled_corpus)
    path = tmp_path / "some.jsonl"
    lines = parser_queries.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "generated" in line))
    with pytest.raises(ConfigError, match=r"has no 'sentences' queries; .*compose.n_sentences=0"):
        make_steps(preset(*COMPOSE), labelled_corpus, None, path)


def test_paraphrases_label_training_queries_of_the_same_text(corpus, tmp_path):
    query, other = corpus.split("train")[:2]
    first, second = query.text.split(" but not ")
    spans = (((0, len(first)),), ((len(query.text) - len(second), len(query.text)),))
    rows = [
        ("paraphrases", LabelledQuery(query.text, flat(spans[:1], spans[1:]))),
        ("paraphrases", LabelledQuery("of another data set", ParsedQuery((((0, 2),),)))),
    ]
    write_labelled_queries(tmp_path / "queries.jsonl", rows)
    found = read_parser_sources([query, other], tmp_path / "queries.jsonl", _none())
    assert found.labels == {query.text: rows[0][1]}
    assert found.sources == [[rows[0][1]], [], [], [], []]
