"""Generated readings: exact spans, every form, plain queries, and no word that is held out."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from benchmark_data.taxa import wordings
from boolattn.query.parsed_query import words
from boolattn.query.tokens import find_cues
from experiments.parser_queries.contents import contents, taxa_content
from experiments.parser_queries.generator import FORMS, QueryWriter, generate_queries
from experiments.parser_queries.structures import everyday_queries, structured_query
from experiments.parser_queries.wordings import BANNED, parse_pattern, requests, table
from tests.lazy import Lazy
from tests.parses import form, negated, positive

TRAIN = Lazy(lambda: generate_queries(1500, seed=5))
HELD_OUT = Lazy(lambda: generate_queries(1000, seed=5, held_out=True))
TABLES = ("wordings", "plain", "contents")

#: How the benchmark puts common words together; none of them announces anything here.
COMMON = {"with", "over", "than"}


def every_string(node):
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from every_string(value)
    elif isinstance(node, list):
        for value in node:
            yield from every_string(value)


def plain_text(markup):
    """What a pattern says, without its signs."""
    text = re.sub(r"\[(?:and|or|not):([^\]]*)\]", r"\1", markup)
    text = re.sub(r"<[\w]+\||>|\{\w+\}|[~*!^]|\b[LE]\(\w:?|\b[23] ", " ", text)
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("name", TABLES)
def test_no_word_of_the_benchmarks_held_out_wordings(name):
    for raw in every_string(table(name)):
        text = plain_text(raw)
        assert not BANNED.search(text), (raw, BANNED.search(text)[0])


def cue_parts(cues):
    return {
        part.strip()
        for cue in cues
        for part in re.split(r"[~^,]", re.sub(r"\|[^~]*", "", cue))
        if part.strip()
    }


def test_the_stems_know_every_held_out_cue():
    families = wordings.families().values()
    unseen = cue_parts(cue for family in families for cue in family.unseen)
    seen = cue_parts(cue for family in families for cue in family.seen)
    for row in wordings.wordings().values():
        for wording in row:
            found = {cue for _, cue in re.findall(r"\[(and|or|not):([^\]]*)\]", wording.skeleton)}
            (unseen if wording.is_unseen else seen).update(cue.strip(" ,") for cue in found)
    new = unseen - seen
    assert len(new) > 60
    assert {cue for cue in new if not BANNED.search(cue)} <= COMMON


def test_no_held_out_link_or_request():
    said = "\n".join(
        plain_text(raw).lower() for name in TABLES for raw in every_string(table(name))
    )
    for parts in (wordings.links(), wordings.requests()):
        for text in parts.unseen:
            assert text.replace("|", " ").strip(" *?").lower() not in said


@pytest.mark.parametrize("marks", [TRAIN, HELD_OUT], ids=["train", "held out"])
def test_no_generated_query_says_a_held_out_word(marks):
    for marked in marks:
        assert not BANNED.search(marked.text), marked.text


def test_equal_seeds_give_equal_queries():
    assert list(generate_queries(100, seed=3)) == list(generate_queries(100, seed=3))
    assert list(generate_queries(100, seed=3)) != list(generate_queries(100, seed=4))
    assert list(generate_queries(100, seed=3)) != list(generate_queries(100, seed=3, held_out=True))
    assert list(generate_queries(100, seed=5)) == TRAIN[:100]


@pytest.mark.parametrize("marks", [TRAIN, HELD_OUT], ids=["train", "held out"])
def test_spans_are_exact(marks):
    for marked in marks:
        operands = marked.parsed.operands
        assert not re.search(r"[<>{}@*~\[\]]|\b[LE]\(", marked.text), marked.text
        assert len(set(operands)) == len(operands), marked.text
        for spans in operands:
            assert words(marked.text, spans)
            ends = [0, *(at for span in spans for at in span)]
            assert ends == sorted(ends)
            for start, end in spans:
                assert marked.text[start:end].strip() == marked.text[start:end] != ""
        own_characters = [
            set(range(start, end)) - set().union(*(chars(o) for o in operands if o != spans))
            for spans in operands
            for start, end in spans
        ]
        assert sum(bool(characters) for characters in own_characters) >= len(operands), marked.text


def chars(spans):
    return {at for start, end in spans for at in range(start, end)}


@pytest.mark.parametrize("marks", [TRAIN, HELD_OUT], ids=["train", "held out"])
def test_every_form_is_there_and_a_quarter_is_plain(marks):
    counts = Counter(form(marked.parsed) for marked in marks)
    assert {(form.n_positive, form.n_negated, form.joiner) for form in FORMS} <= set(counts)
    assert 0.22 < counts[1, 0, "and"] / len(marks) < 0.28
    assert {form(marked.parsed)[2] for marked in marks} == {"and", "or"}


def test_words_that_are_shared_belong_to_each_operand():
    shared = [
        marked
        for marked in TRAIN
        if len(positive(marked.parsed)) > 1
        and chars(positive(marked.parsed)[0]) & chars(positive(marked.parsed)[1])
    ]
    assert len(shared) > 250
    leaning = [
        marked
        for marked in TRAIN
        if negated(marked.parsed)
        and chars(positive(marked.parsed)[0]) & chars(negated(marked.parsed)[0])
    ]
    assert len(leaning) > 150


def test_plain_queries_hold_cue_words_that_announce_nothing():
    plain = [marked.text for marked in TRAIN if marked.parsed.is_plain]
    with_cue = [text for text in plain if find_cues(text)]
    assert len(with_cue) > 0.3 * len(plain)
    assert any(len(text.split()) >= 20 for text in plain)
    assert len({text.lower() for text in plain}) > 0.6 * len(plain)


def lists_of(node):
    if isinstance(node, dict):
        if "train" in node:
            yield node["train"], node["held_out"]
        else:
            for value in node.values():
                yield from lists_of(value)


def test_a_quarter_of_the_parts_is_held_out_and_none_is_in_both():
    tables = [table("wordings"), table("plain")]
    rows = [row for part in tables for row in lists_of(part)]
    for train, held_out in rows:
        assert not set(train) & set(held_out)
    n_held_out = sum(len(set(held_out)) for _, held_out in rows)
    n_all = n_held_out + sum(len(set(train)) for train, _ in rows)
    assert 0.22 < n_held_out / n_all < 0.3


@pytest.mark.parametrize("held_out", [False, True])
def test_held_out_queries_have_a_part_that_training_lacks(held_out):
    held = {parse_pattern(raw) for row in lists_of(table("wordings")) for raw in row[1]}
    styles = {
        (joiner, raw.split(" ", 1)[1] if raw[:2] in ("2 ", "3 ") else raw)
        for joiner, row in table("wordings")["lists"].items()
        for raw in row["held_out"]
    }
    writer = QueryWriter(random.Random(0), held_out=held_out)
    for content in (*contents(), taxa_content(random.Random(0))):
        for query_form in FORMS:
            made = writer._wording(query_form, content)
            new = (
                made.clause in held
                or made.exclusion in held
                or (query_form.joiner, made.style) in styles
            )
            assert new == held_out, made
            assert held_out or made.request not in requests().held_out


def test_there_are_many_ways_to_say_each_operator():
    rows = table("wordings")
    for name, fewest in (("negated", 200), ("positive", 0)):
        assert sum(len(set(train) | set(new)) for train, new in lists_of(rows[name])) >= fewest
    for name, fewest in (("and", 60), ("or", 50)):
        both = [*lists_of(rows["lists"][name]), *lists_of(rows["positive"][name])]
        assert sum(len(set(train) | set(new)) for train, new in both) >= fewest


def test_everyday_queries_say_the_held_out_words_with_every_operator():
    queries = list(everyday_queries(1500, seed=1))
    assert queries[:20] == list(everyday_queries(20, seed=1))
    said = [query for query in queries if BANNED.search(query.text)]
    assert len(said) > len(queries) / 3
    structures = {query.parsed.structure for query in said}
    assert {"_", "_ NOT _", "_ AND _", "_ OR _", "(_ OR _) NOT _"} <= structures
    for query in queries:
        assert not re.search(r"[{}<>]|\[\[|\]\]|~", query.text), query.text


def test_every_everyday_line_can_be_filled():
    lines = table("everyday")["everyday"]["train"].strip().split("\n")
    writer = QueryWriter(random.Random(0), held_out=False)
    for line in lines:
        filled = re.sub(r"\{W(\d)\}", r"phrase \1", line)
        assert structured_query(filled, writer, "everyday").text
