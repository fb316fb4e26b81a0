"""The retriever: one vector where nothing is to be read, operands where something is."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from boolattn.attention.config import BoolAttnConfig
from boolattn.composition.calibration import Calibration
from boolattn.composition.exact import rank
from boolattn.composition.scores import RULES
from boolattn.encoder import build_towers
from boolattn.encoder.parser_head import ParserConfig, ParserHead, ParserLogits, make_parser_labels
from boolattn.encoder.parser_pass import encode_and_parse
from boolattn.encoder.retriever import Retriever
from boolattn.encoder.retriever_storage import SETTINGS, WEIGHTS, load_retriever, save_retriever
from boolattn.errors import DataError, MissingDataError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import ParsedQuery
from boolattn.logic.syntax import parse
from boolattn.logic.tree import And, Atom, Not, Or

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"
READINGS = {
    NOT_TEXT: ParsedQuery((((0, 15),),), (((0, 8), (24, 31)),)),
    PLAIN_TEXT: ParsedQuery((((0, 15),),)),
}


class _ByHeart(ParserHead):
    """A reader that knows the readings of two texts, by their length in tokens."""

    def __init__(self, tokenizer, hidden_size: int, certainty: float = 10.0) -> None:
        super().__init__(ParserConfig(hidden_size=hidden_size, n_slots=3))
        self.known = {}
        for text, reading in READINGS.items():
            offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
            self.known[len(offsets)] = make_parser_labels([reading], [offsets], 3)
        self.certainty = certainty

    def forward(self, layers, mask):
        rows, c = [], self.certainty
        for length in mask.sum(-1).tolist():
            labels = self.known[int(length)]
            tags = torch.zeros(layers[-1].shape[1], 3)
            tags[: int(length)] = labels.tags[0]
            roles = torch.nn.functional.one_hot(labels.roles[0], 3).float() * 2 * c - c
            rows.append((tags * 2 * c - c, roles, labels.is_or[0] * 2 * c - c))
        return ParserLogits(*(torch.stack(part) for part in zip(*rows, strict=True)))


@pytest.fixture(params=["plain", "boolattn"])
def towers(request, tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="lexicon", rank=4) if request.param == "boolattn" else None
    return build_towers(tiny_encoder(), config, tokenizer=tokenizer, query_length=32)


@pytest.fixture
def retriever(towers, tokenizer):
    return Retriever(towers, _ByHeart(tokenizer, 32))


def test_a_query_without_operators_is_the_plain_vector_bit_for_bit(retriever):
    [plan] = retriever.plan([PLAIN_TEXT])
    assert not plan.is_composed
    assert plan.atoms == (PLAIN_TEXT,)
    expected = retriever.towers.encode_query([PLAIN_TEXT])
    assert (plan.vectors == expected).all()
    similarities = np.array([[0.3, 0.1]], np.float32)
    assert (retriever.score(plan, similarities) == similarities[0]).all()


def test_operands_are_read_encoded_apart_and_composed(retriever):
    plans = retriever.plan([NOT_TEXT, PLAIN_TEXT])
    plan = plans[0]
    tree = And((Atom("moths of Borneo"), Not(Atom("moths of Sumatra"))))
    assert plan.is_composed
    assert plan.tree == plan.parsed == tree
    assert plan.operators == (Operator.NOT,)
    assert plan.is_negated == (False, True)
    assert [NOT_TEXT[a:b] for spans in plan.spans for a, b in spans] == [
        "moths of Borneo",
        "moths of",
        "Sumatra",
    ]
    apart = retriever.encode_operands(plan.atoms)
    assert np.allclose(plan.operand_vectors, apart, atol=1e-6)
    # The whole is what is wanted: the text as typed would bring Sumatra along.
    assert np.allclose(plan.vectors[-1], plan.vectors[0])
    # The excluded operand's similarity pulls down, the kept one's up.
    base = np.zeros((3, 1), np.float32)
    up, down = base.copy(), base.copy()
    up[0], down[1] = 0.5, 0.9
    score = float(retriever.score(plan, base)[0])
    assert retriever.score(plan, up)[0] > score > retriever.score(plan, down)[0]
    assert not plans[1].is_composed


def test_an_unsure_reading_falls_back_and_is_still_shown(towers, tokenizer):
    unsure = Retriever(towers, _ByHeart(tokenizer, 32, certainty=0.2))
    [plan] = unsure.plan([NOT_TEXT])
    assert not plan.is_composed
    assert (plan.vectors == towers.encode_query([NOT_TEXT])).all()
    assert isinstance(plan.parsed, And)
    assert plan.confidence < unsure.threshold
    unsure.threshold = 0.0
    assert unsure.plan([NOT_TEXT])[0].is_composed


def test_the_whole_is_what_is_wanted_said_in_one_breath(retriever):
    kept = And((Atom("moths"), Or((Atom("Borneo"), Atom("Java")))))
    tree = And((*kept.parts, Not(Atom("Sumatra"))))
    typed = "moths that Borneo or Java has"
    excluding, joined = retriever.plan_trees([tree, kept], ["no matter", typed])
    said = retriever.encode_operands(["moths and Borneo or Java"])[0]
    assert np.allclose(excluding.vectors[-1], said, atol=1e-6)
    # Nothing is excluded: the text as typed counts as much.
    assert (joined.plain == retriever.encode_queries([typed])[0]).all()
    assert np.allclose(joined.vectors[-1], (said + joined.plain) / 2, atol=1e-6)
    assert not np.allclose(joined.vectors[-1], said, atol=1e-3)
    # An operand that an exclusion spares is not what is wanted.
    [spared] = retriever.plan_trees([parse("NOT (Sumatra NOT rare) AND moths")])
    assert spared.atoms == ("Sumatra", "rare", "moths")
    assert (spared.vectors[-1] == spared.vectors[2]).all()
    # A query that only excludes has nothing else to be compared by than its own words.
    [only] = retriever.plan_trees([Not(Atom("Sumatra"))])
    assert (only.vectors[-1] == only.plain).all()


def test_explicit_and_read_trees_score_alike(retriever):
    [read] = retriever.plan([NOT_TEXT])
    [given] = retriever.plan_trees([read.tree])
    similarities = np.random.default_rng(0).random((3, 7)).astype(np.float32)
    assert np.allclose(given.operand_vectors, read.operand_vectors, atol=1e-6)
    assert np.allclose(
        retriever.score(read, similarities), retriever.score(given, similarities), atol=1e-5
    )


def test_a_name_that_holds_a_cue_opens_no_expert_as_an_operand(towers):
    retriever = Retriever(towers)
    [bare] = retriever.plan_trees([Or((Atom("films and books"), Atom("birds")))])
    closed = retriever.encode_operands(["films and books"])[0]
    assert np.allclose(bare.operand_vectors[0], closed, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_ranking_a_corpus_agrees_with_scoring_it(retriever, rule):
    documents = torch.nn.functional.normalize(
        torch.randn(40, 32, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    a, b, c, d = map(Atom, ("moths", "Borneo", "birds", "films"))
    trees = [And((a, b)), And((c, d)), Or((a, c)), And((a, Or((b, d)), Not(c))), And((a, Not(b)))]
    retriever.rule = rule
    plans = retriever.plan([PLAIN_TEXT, NOT_TEXT]) + retriever.plan_trees(trees)
    rows, scores = rank(retriever, plans, documents, 40)
    for plan, row, score in zip(plans, rows, scores, strict=True):
        every = retriever.score(plan, plan.vectors @ documents.numpy().T)
        assert np.allclose(every[row], score, atol=1e-4)
        assert (np.diff(score) <= 1e-6).all()
        assert sorted(row.tolist()) == list(range(40))


def test_empty_and_single_trees(retriever):
    assert retriever.plan([]) == []
    assert retriever.plan_trees([]) == []
    [plan] = retriever.plan_trees([Atom("moths")])
    assert not plan.is_composed
    assert plan.vectors.shape == (1, 32)


@pytest.mark.parametrize("n_states", [1, 2])
def test_reading_changes_no_bit_of_a_vector(towers, n_states):
    reader = ParserHead(ParserConfig(hidden_size=32, n_states=n_states))
    texts = [NOT_TEXT, PLAIN_TEXT]
    features = towers.preprocess(texts, task="query")
    with torch.inference_mode():
        vectors, read = encode_and_parse(towers.eval(), reader, features)
    assert torch.equal(vectors, towers.encode_query(texts, convert_to_tensor=True))
    assert read.tags.shape[:2] == features["input_ids"].shape


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n_states", [1, 2])
def test_towers_in_half_precision_are_read_too(towers, n_states, kind):
    reader = ParserHead(ParserConfig(hidden_size=32, n_states=n_states, depth=1)).eval()
    features = towers.preprocess([NOT_TEXT, PLAIN_TEXT], task="query")
    with torch.inference_mode():
        _, whole = encode_and_parse(towers.eval(), reader, features)
        _, half = encode_and_parse(towers.to(kind), reader, features)
    assert half.tags.dtype is torch.float32
    for own, expected in zip(half, whole, strict=True):
        torch.testing.assert_close(own, expected, atol=0.1, rtol=0)
    assert not torch.equal(half.tags, whole.tags)
    # All the way to vectors and scores.
    retriever = Retriever(towers, reader)
    [plan] = retriever.plan([PLAIN_TEXT])
    assert np.isfinite(retriever.score(plan, plan.vectors @ plan.vectors.T)).all()


def test_told_operators_reach_every_layer_that_is_read(tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="label", rank=4)
    towers = build_towers(tiny_encoder(), config, tokenizer=tokenizer).eval()
    reader = ParserHead(ParserConfig(hidden_size=32, n_states=2)).eval()
    features = towers.preprocess([NOT_TEXT], task="query")
    found = []
    for label in ([0, 0, 0], [0, 0, 1]):
        told = {**features, "operators": torch.tensor([label])}
        with torch.inference_mode():
            found.append(encode_and_parse(towers, reader, told))
    assert not torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][1].tags, found[1][1].tags)


def test_a_saved_retriever_reads_and_scores_the_same(towers, tmp_path):
    torch.manual_seed(3)
    config = ParserConfig(hidden_size=32, n_slots=3, n_states=2, depth=1)
    first = Retriever(towers, ParserHead(config), threshold=0.25)
    with torch.no_grad():
        first.calibration.negation_offset.fill_(0.07)
        first.calibration.lean.fill_(0.3)
        first.calibration.scale.copy_(torch.tensor([[0.8, -2.0], [0.9, -4.0]]))
    save_retriever(first, tmp_path / "model")
    second = load_retriever(tmp_path / "model")
    assert second.threshold == 0.25
    assert second.fingerprint == first.fingerprint
    assert second.parser is not None
    for name, value in first.parser.state_dict().items():
        assert torch.equal(value, second.parser.state_dict()[name])
    for name, value in first.calibration.state_dict().items():
        assert torch.equal(value, second.calibration.state_dict()[name])
    plain = SentenceTransformer(str(tmp_path / "model"))
    assert (plain.encode_query([PLAIN_TEXT]) == towers.encode_query([PLAIN_TEXT])).all()


def test_a_model_from_before_lean_and_scale_leans_on_nothing_and_shows_what_is_composed(
    towers, tmp_path
):
    save_retriever(Retriever(towers, calibration=Calibration(32, lean=0.5)), tmp_path / "model")
    path = tmp_path / "model" / "composition.safetensors"
    older = {k: v for k, v in load_file(path).items() if not k.endswith(("lean", "scale"))}
    save_file(older, path)
    found = load_retriever(tmp_path / "model").calibration
    assert found.lean == 0
    assert found.scale.tolist() == [[1, 0], [1, 0]]


def test_what_is_shown_is_scaled_and_what_ranks_is_not(towers):
    retriever = Retriever(towers)
    [plan] = retriever.plan_trees([And((Atom("moths"), Not(Atom("java"))))])
    similarities = np.array([[0.9, 0.2], [0.1, 0.8], [0.5, 0.5]], np.float32)
    said, scores = retriever.probabilities(plan, similarities), retriever.score(plan, similarities)
    np.testing.assert_allclose(said, retriever.logits(plan, similarities).sigmoid(), rtol=1e-6)
    retriever.calibration.scale.copy_(torch.tensor([[1.0, -1.0], [0.5, -3.0]]))
    shown = retriever.probabilities(plan, similarities)
    assert (shown < said).all()
    assert shown[1, 1] / said[1, 1] < shown[0, 0] / said[0, 0], "each kind has its own"
    np.testing.assert_array_equal(retriever.score(plan, similarities), scores)


def test_lean_changes_scores_of_exclusion_alone_and_only_by_probability(towers):
    similarities = np.array([[0.9, 0.2], [0.6, 0.8], [0.5, 0.5]], np.float32)
    for rule in RULES:
        retriever = Retriever(towers, rule=rule)
        for tree in (And((Atom("moths"), Not(Atom("java")))), And((Atom("moths"), Atom("java")))):
            [plan] = retriever.plan_trees([tree])
            with torch.no_grad():
                retriever.calibration.lean.fill_(0.0)
                before = retriever.score(plan, similarities)
                retriever.calibration.lean.fill_(0.5)
                after = retriever.score(plan, similarities)
            leans = rule == "probability" and any(plan.is_negated)
            assert (before == after).all() != leans


def test_damaged_or_missing_parts_are_named(towers, tmp_path):
    with pytest.raises(MissingDataError, match="holds no model"):
        load_retriever(tmp_path)
    folder = tmp_path / "model"
    save_retriever(Retriever(towers, ParserHead(ParserConfig(hidden_size=32))), folder)
    (folder / WEIGHTS).write_bytes(b"junk")
    with pytest.raises(DataError, match="damaged"):
        load_retriever(folder)
    settings = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps(settings | {"format": 99}))
    save = folder / SETTINGS
    save_retriever(Retriever(towers, ParserHead(ParserConfig(hidden_size=32))), tmp_path / "other")
    (folder / WEIGHTS).write_bytes((tmp_path / "other" / WEIGHTS).read_bytes())
    with pytest.raises(DataError, match="format 99"):
        load_retriever(folder)
    assert save.is_file()
