"""Varied wordings: exact labels, and none of the benchmark's held-out words."""

from __future__ import annotations

import hashlib
import re

import pytest

from benchmark_data.taxa import wordings
from benchmark_data.taxa.phrases import parse
from boolattn.data.sentences import Mixture, generate, generate_triplets
from boolattn.errors import ConfigError
from boolattn.files import package_table
from boolattn.query.syntax import TEMPLATES, template_operators
from experiments.parser_queries.wordings import BANNED
from experiments.sentences.contents import domains
from experiments.sentences.varied import TABLE, varied_words
from tests.lazy import Lazy

VARIED, VARIED_HELD_OUT = Mixture(varied=1.0), Mixture(varied=1.0, varied_held_out=True)
TRAIN = Lazy(lambda: generate(1200, seed=11, mixture=VARIED))
HELD_OUT = Lazy(lambda: generate(600, seed=11, mixture=VARIED_HELD_OUT))


def lists():
    """Every list of the table with its name: kind, name, part, entries."""
    table = package_table(*TABLE)
    rows = [("links", "", table["links"]), ("requests", "", table["requests"])]
    rows += [("cues", name, row) for name, row in table["cues"].items()]
    rows += [("structure", row["template"], row) for row in table["structure"]]
    for kind, name, row in rows:
        for part in ("train", "held_out"):
            yield kind, name, part, row[part]


def spoken(entry):
    """What an entry says, without its markup."""
    text = re.sub(r"\[(?:and|or|not):([^\]]*)\]", r"\1", entry)
    text = re.sub(r"<\d+\||>|\{[\w.@]+\}|[~*^|]", " ", text)
    return re.sub(r"\s+", " ", text).strip(" !,").lower()


def cue_parts(cue):
    return {part.partition("|")[0].strip(" ,^").lower() for part in cue.split("~")} - {""}


def test_sentences_without_varied_wordings_are_frozen():
    def digest(made):
        return hashlib.sha256(repr(list(made)).replace("ScopeSpans", "Scope").encode()).hexdigest()[
            :16
        ]

    assert digest(generate(300, 5)) == "90fd155ecf113fb6"
    assert digest(generate(300, 5, Mixture())) == "90fd155ecf113fb6"
    assert digest(generate(300, 5, Mixture(unseen=True))) == "62118ab7c19a4671"
    assert digest(generate_triplets(100, 5)) == "eeaaa0c2d752937c"


def test_no_entry_has_a_word_that_the_benchmark_holds_out():
    found = [entry for *_, entries in lists() for entry in entries if BANNED.search(spoken(entry))]
    assert not found


@pytest.mark.parametrize("sentences", [TRAIN, HELD_OUT], ids=["train", "held out"])
def test_no_sentence_says_a_word_that_the_benchmark_holds_out(sentences):
    rows = [
        one.skeleton for row in wordings.wordings().values() for one in row if not one.is_unseen
    ]
    rows += [text for domain in domains() for key in ("phrases", "names") for text in domain[key]]
    # Some stems stand in what training sees, too, and in names such as "double reed".
    common = {found[0].lower() for row in rows for found in BANNED.finditer(spoken(row))}
    assert len(common) < 20
    found = {hit[0].lower() for s in sentences for hit in BANNED.finditer(s.text)}
    assert found <= common, found - common


def test_no_part_is_one_that_the_benchmark_holds_out():
    def parts(which):
        rows = wordings.families().values()
        return {part for row in rows for cue in getattr(row, which) for part in cue_parts(cue)}

    only = parts("unseen") - parts("seen")
    assert len(only) > 40
    written = re.compile(r"\[(?:and|or|not):([^\]]*)\]")
    whole = {spoken(part) for part in wordings.links().unseen + wordings.requests().unseen}
    frozen = {one.skeleton for row in wordings.wordings().values() for one in row if one.is_unseen}
    found = []
    for kind, _, _, entries in lists():
        for entry in entries:
            said = cue_parts(entry) if kind == "cues" else set()
            said |= {text.strip(" ,").lower() for text in written.findall(entry)}
            is_link = kind in ("links", "requests") and spoken(entry) in whole
            if said & only or is_link or entry.removeprefix("!") in frozen:
                found.append(entry)
    assert not found


def test_a_part_is_held_out_and_nothing_stands_twice():
    by_list = {}
    for kind, name, part, entries in lists():
        assert len(entries) == len(set(entries)), (kind, name)
        by_list[kind, name, part] = {entry.lower() for entry in entries}
    for (kind, name, part), train in by_list.items():
        if part == "train":
            kept = by_list[kind, name, "held_out"]
            assert not train & kept
            assert 0.07 < len(kept) / len(kept | train) < 0.45, (kind, name)


def test_training_meets_no_word_that_is_held_out():
    words = package_table(*TABLE)["held_out_words"]
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, words)) + ")", re.IGNORECASE)
    found = [
        entry
        for *_, part, entries in lists()
        for entry in entries
        if part == "train" and pattern.search(spoken(entry))
    ]
    assert not found
    assert sum(bool(pattern.search(s.text)) for s in HELD_OUT) > 0.1 * len(HELD_OUT)


def test_there_are_many_ways():
    least = {"links": 50, "requests": 60, "not": 60, "and": 40, "or": 40, "structure": 60}
    counts = {}
    for kind, name, _, entries in lists():
        counts[kind, name] = counts.get((kind, name), 0) + len(entries)
    for (kind, name), count in counts.items():
        of = str(wordings.families()[name].operator.value) if kind == "cues" else kind
        assert count >= least[of], (kind, name, count)


def test_every_cue_has_the_parts_of_its_family():
    for kind, name, _, entries in lists():
        if kind == "cues":
            n_parts = wordings.families()[name].seen[0].count("~")
            assert not [cue for cue in entries if cue.count("~") != n_parts], name


@pytest.mark.parametrize("held_out", [False, True])
def test_every_skeleton_owns_each_operand_and_announces_each_operator(held_out):
    for template in TEMPLATES:
        asked = set(template_operators(template))
        for skeleton in varied_words(held_out=held_out).skeletons[template]:
            tokens = parse(skeleton.text)
            owners = {owner for token in tokens for owner in token.owners}
            assert owners == set(range(template.count("_"))), skeleton.text
            said = {token.operator for token in tokens if token.operator}
            said |= {wordings.families()[name].operator for name in skeleton.families}
            assert said == asked, skeleton.text


@pytest.mark.parametrize("sentences", [TRAIN, HELD_OUT], ids=["train", "held out"])
def test_labels_are_exact(sentences):
    for s in sentences:
        assert {cue.operator for cue in s.cues} == set(s.operators), s.text
        assert "  " not in s.text
        assert not re.search(r"[{}<>~^]", s.text), s.text
        owned = {at for spans in s.operands for span in spans for at in range(*span)}
        assert len(s.operands) == s.template.count("_")
        assert len(set(s.operands)) == len(s.operands)
        for cue in s.cues:
            assert s.text[cue.start : cue.end].strip(" ,") == s.text[cue.start : cue.end] != ""
            assert owned.isdisjoint(range(cue.start, cue.end)), s.text
        for start, end in (span for spans in s.operands for span in spans):
            assert s.text[start:end].strip(" ,") == s.text[start:end] != ""
            assert not s.text[start - 1 : start].isalnum(), s.text
            assert not s.text[end : end + 1].isalnum(), s.text


def test_signs_are_cues():
    signs = {s.text[cue.start : cue.end] for s in [*TRAIN, *HELD_OUT] for cue in s.cues}
    assert {"-", "|", "+", "&& !"} <= signs


def test_plain_sentences_hold_words_that_announce_nothing():
    plain = [s for s in TRAIN if s.template == "_"]
    deceptive = [s for s in plain if re.search(r"(?i)\b(and|or|not?|without|with)\b", s.text)]
    assert len(deceptive) > 0.3 * len(plain)
    assert not any(s.cues for s in plain)


def test_equal_seeds_give_equal_sentences():
    assert list(generate(200, 3, VARIED)) == list(generate(200, 3, VARIED))
    assert list(generate(200, 3, VARIED)) != list(generate(200, 3, VARIED_HELD_OUT))
    half = list(generate(400, 3, Mixture(varied=0.5)))
    assert half != list(generate(400, 3))


def test_what_is_held_out_has_a_part_that_training_lacks():
    ours = varied_words(held_out=True)
    cues = {part for row in ours.cues.values() for cue in row for part in cue_parts(cue)}
    known = {s.text[cue.start : cue.end].lower() for s in TRAIN for cue in s.cues}
    new = [
        s
        for s in HELD_OUT
        if s.operators and {s.text[c.start : c.end].lower() for c in s.cues} & (cues - known)
    ]
    assert len(new) > 0.2 * sum(bool(s.operators) for s in HELD_OUT)


def test_triplets_with_varied_wordings():
    triplets = list(generate_triplets(100, 2, VARIED))
    assert triplets == list(generate_triplets(100, 2, VARIED))
    assert all(t.anchor.operators != t.negative.operators for t in triplets)


def test_a_mixture_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="varied must be at least 0 and at most 1; got 2"):
        Mixture(varied=2)
    with pytest.raises(ConfigError, match="choose one"):
        Mixture(varied=0.5, unseen=True)


def _shape(skeleton):
    """A skeleton without the words of its cues and operands, and without who asks."""
    text = re.sub(
        r"\[(and|or|not):[^\]]*\]|\{(and|or|not)\d?\w*(?:\.\d)?(?:@\d+)?\}", " # ", skeleton
    )
    text = re.sub(r"<(\d+)\|[^>]*>", r" <\1> ", text.lower())
    return re.sub(r"\s+", " ", text).strip("! ")


def test_no_skeleton_to_learn_from_is_a_held_out_one_in_other_words():
    rows = package_table(*TABLE)["structure"]
    for template, known in wordings.wordings().items():
        seen = {_shape(one.skeleton) for one in known if not one.is_unseen}
        new = {_shape(one.skeleton) for one in known if one.is_unseen} - seen
        ours = {
            _shape(raw): raw for row in rows if row["template"] == template for raw in row["train"]
        }
        assert not new & set(ours), [ours[shape] for shape in new & set(ours)]
