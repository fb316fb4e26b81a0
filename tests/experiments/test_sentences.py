"""Boolean sentences: exact cues and scopes, names that are no cues, held-out wordings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from benchmark_data.taxa import wordings
from boolattn import files
from boolattn.data.sentences import Mixture, generate, generate_triplets, read_setbert
from boolattn.errors import BoolattnError, ConfigError, DataError, MissingDataError
from boolattn.query.syntax import TEMPLATES, template_operators
from boolattn.query.tokens import find_cues
from boolattn.query.tree import Operator
from tests.lazy import Lazy

SEEN = Lazy(lambda: generate(1200, seed=7))
UNSEEN = Lazy(lambda: generate(800, seed=7, mixture=Mixture(unseen=True)))


def cue_texts(sentences):
    return {s.text[cue.start : cue.end].lower() for s in sentences for cue in s.cues}


def covered(spans):
    return {at for start, end in spans for at in range(start, end)}


def test_equal_seeds_give_equal_sentences():
    assert list(generate(200, seed=3)) == list(generate(200, seed=3))
    assert list(generate(200, seed=3)) != list(generate(200, seed=4))
    assert list(islice(generate(10**9, seed=3), 200)) == list(generate(200, seed=3))


@pytest.mark.parametrize("sentences", [SEEN, UNSEEN], ids=["seen", "unseen"])
def test_labels_are_exact(sentences):
    for s in sentences:
        assert s.operators == template_operators(s.template)
        assert tuple(scope.operator for scope in s.scopes) == s.operators
        assert {cue.operator for cue in s.cues} <= set(s.operators)
        assert len(s.operands) == s.template.count("_")
        every = set().union(*map(covered, s.operands))
        for cue in s.cues:
            assert s.text[cue.start : cue.end].strip() == s.text[cue.start : cue.end] != ""
            assert every.isdisjoint(range(cue.start, cue.end))
        for scope in s.scopes:
            for start, end in scope.spans:
                assert s.text[start:end] == s.text[start:end].strip() != ""


@pytest.mark.parametrize("sentences", [SEEN, UNSEEN], ids=["seen", "unseen"])
def test_a_scope_is_what_the_operator_acts_on(sentences):
    n_dropped = {"_ that are not _": 1, "_ that are also _ but not _": 1}
    for s in sentences:
        cut = len(s.operands) - n_dropped.get(s.template, 0)
        kept = set().union(*map(covered, s.operands[:cut]))
        dropped = set().union(set(), *map(covered, s.operands[cut:])) - kept
        for scope in s.scopes:
            wanted = dropped if scope.operator is Operator.NOT else kept
            blank = {at for at in wanted if s.text[at].isspace()}
            assert wanted - blank <= covered(scope.spans) <= wanted, s.text


def test_the_papers_equivalents_of_and_and_not_occur():
    wanted = {"as well as", "including", "other than", "excluding"}
    assert wanted <= cue_texts(SEEN)
    assert any("are also" in text for text in cue_texts(SEEN))


def test_every_training_sentence_announces_its_operators():
    for s in SEEN:
        assert {cue.operator for cue in s.cues} == set(s.operators), s.text


def test_the_mixture_is_what_was_asked():
    n_plain = sum(not s.operators for s in SEEN)
    assert 0.12 < n_plain / len(SEEN) < 0.18
    assert {s.template for s in SEEN} == set(TEMPLATES)
    assert all(not s.operators for s in generate(50, seed=0, mixture=Mixture(plain=1)))
    assert not any(s.template == "_" for s in generate(50, seed=0, mixture=Mixture(plain=0)))
    assert any(s.operators == () for s in UNSEEN)


def test_a_name_with_a_cue_word_is_no_cue():
    named = list(generate(400, seed=1, mixture=Mixture(names=1.0, plain=0.5)))
    misread = 0
    for s in named:
        marked = {at for cue in s.cues for at in range(cue.start, cue.end)}
        for cue in find_cues(s.text):
            if marked.isdisjoint(range(cue.start, cue.end)):
                misread += 1
                inside = set().union(*map(covered, s.operands))
                assert inside.issuperset(range(cue.start, cue.end)), s.text
    assert misread > 300, "nearly every sentence holds a cue word that is none"
    assert any("and" in s.text and not s.operators and not s.cues for s in named)


def test_plain_cues_are_replaced_at_the_rate_asked():
    def plain_share(replace):
        mixture = Mixture(replace=replace, plain=0, names=0, taxa=0)
        found = [s for s in generate(600, seed=5, mixture=mixture) if s.template == "_ or _"]
        texts = Counter(s.text[c.start : c.end].lower() for s in found for c in s.cues)
        return texts["or"] / texts.total()

    assert plain_share(0.0) == 1.0
    assert plain_share(0.0) > plain_share(0.5) > plain_share(1.0) > 0


def test_training_never_says_a_held_out_cue():
    held_out = {
        re.sub(r"\|.*", "", part).strip(" ,^")
        for family in wordings.families().values()
        for cue in family.unseen
        for part in cue.split("~")
    }
    seen = {
        re.sub(r"\|.*", "", part).strip(" ,^")
        for family in wordings.families().values()
        for cue in family.seen
        for part in cue.split("~")
    }
    only = {text for text in held_out - seen if text}
    assert len(only) > 40
    assert not cue_texts(SEEN) & only
    assert len(cue_texts(UNSEEN) & only) > 30


def test_an_unseen_sentence_has_a_cue_or_a_skeleton_that_training_lacks():
    fixed = [s for s in UNSEEN if s.operators]
    known = cue_texts(SEEN)
    new = [s for s in fixed if not cue_texts([s]) <= known]
    assert len(new) > 0.6 * len(fixed)


def test_triplets_keep_the_operands_and_change_the_logic():
    triplets = list(generate_triplets(300, seed=2))
    assert triplets == list(generate_triplets(300, seed=2))
    for t in triplets:
        assert t.anchor.operators == t.positive.operators
        assert t.anchor.template == t.positive.template != t.negative.template
        assert t.anchor.text.lower() != t.positive.text.lower()
        assert t.anchor.operators != t.negative.operators
        assert len(t.anchor.operands) == len(t.negative.operands)


def test_a_share_outside_its_range_is_refused():
    with pytest.raises(ConfigError, match="replace must be at least 0 and at most 1; got 2"):
        Mixture(replace=2)


@pytest.fixture
def setbert(tmp_path):
    for name in ("and", "or", "not"):
        rows = [{"G": f"{name} {n}", "P": [f"same {n}"], "N": [f"other {n}"]} for n in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_first_four_fifths_of_setbert_are_train(setbert):
    train, test = list(read_setbert(setbert, 0)), list(read_setbert(setbert, 0, is_test=True))
    texts = [sentence.text for sentence, _ in train if Operator.OR in sentence.operators]
    assert texts == [f"or {n}" for n in range(8)]
    assert [sentence.text[-1] for sentence, _ in test] == ["8", "9"] * 3
    triplet = train[0][1]
    assert (triplet.positive.text, triplet.negative.text) == ("same 0", "other 0")
    assert [sentence.operators for sentence, _ in train[::8]] == [(op,) for op in Operator]


@pytest.mark.parametrize(
    ("line", "error", "text"),
    [
        ('{"G": "x", "P": ["y"]}', DataError, "or.jsonl:1: the field 'N' is missing"),
        ('{"G": "x", "P": ["y"], "N": [1]}', DataError, "or.jsonl:1: 'P' and 'N' must be lists"),
        ('{"G": "x", "P"', DataError, "or.jsonl:1: not JSON"),
        (None, MissingDataError, "no or.jsonl in"),
    ],
)
def test_a_bad_setbert_file_is_named_in_one_line(setbert, line, error, text):
    path = setbert / "or.jsonl"
    path.unlink() if line is None else path.write_text(line + "\n" + path.read_text())
    with pytest.raises(error, match=re.escape(text)) as caught:
        list(read_setbert(setbert, 0))
    assert isinstance(caught.value, BoolattnError)
    assert "\n" not in str(caught.value)


def test_without_a_checkout_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "__file__", str(tmp_path / "a" / "b" / "files.py"))
    with pytest.raises(MissingDataError, match="install boolattn from a checkout"):
        generate(1, seed=0)


def test_the_command_finds_the_generator_from_any_folder(tmp_path):
    code = "from boolattn.data.sentences import generate; print(len([*generate(2, seed=0)]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2\n"
