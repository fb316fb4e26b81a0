"""The retriever: one vector for a plain query, operands for a Boolean one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from boolattn.attention.config import BoolAttnConfig
from boolattn.composition.exact import rank_plans
from boolattn.encoder import build_towers
from boolattn.encoder.calibration import TrainableCalibration
from boolattn.encoder.parser_head import ParserConfig, ParserHead, make_parser_labels
from boolattn.encoder.parser_pass import encode_and_parse
from boolattn.encoder.retriever import Retriever
from boolattn.encoder.retriever_storage import SETTINGS, WEIGHTS
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import ParsedQuery
from boolattn.logic.syntax import parse
from boolattn.logic.tree import And, Atom, Not, Or
from boolattn.parsing.decoding import ParserLogits
from tests.parses import flat

NOT_TEXT, PLAIN_TEXT = "moths of Borneo but not Sumatra", "moths of Borneo"
PARSES = {
    NOT_TEXT: flat((((0, 15),),), (((0, 8), (24, 31)),)),
    PLAIN_TEXT: ParsedQuery((((0, 15),),)),
}


class _KnownParses(ParserHead):
    """Returns the parses of two texts, found by their length in tokens."""

    def __init__(self, tokenizer, hidden_size: int, certainty: float = 10.0) -> None:
        super().__init__(ParserConfig(hidden_size=hidden_size, n_slots=3))
        self.known = {}
        for text, parsed in PARSES.items():
            offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
            self.known[len(offsets)] = make_parser_labels([parsed], [offsets], 3)
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
    return Retriever(towers, _KnownParses(tokenizer, 32))


def test_a_query_without_operators_is_the_plain_vector_bit_for_bit(retriever):
    [plan] = retriever.plan([PLAIN_TEXT])
    assert not plan.is_composed
    assert plan.atoms == (PLAIN_TEXT,)
    expected = retriever.towers.encode_query([PLAIN_TEXT])
    assert (plan.vectors == expected).all()
    similarities = np.array([[0.3, 0.1]], np.float32)
    assert (retriever.score(plan, similarities) == similarities[0]).all()


def test_operands_are_parsed_encoded_separately_and_composed(retriever):
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
    separate = retriever.encode_operands(plan.atoms)
    assert np.allclose(plan.operand_vectors, separate, atol=1e-6)
    # Similarity to the negated operand lowers the score, to the positive one raises it.
    similarities = np.random.default_rng(0).random((2, 40)).astype(np.float32)
    similarities[:, :3] = [[0.5, 0.9, 0.5], [0.5, 0.5, 0.9]]
    base, up, down = retriever.score(plan, similarities)[:3]
    assert up > base > down
    assert not plans[1].is_composed


def test_an_uncertain_parse_is_not_used_and_still_reported(towers, tokenizer):
    uncertain = Retriever(towers, _KnownParses(tokenizer, 32, certainty=0.2))
    [plan] = uncertain.plan([NOT_TEXT])
    assert not plan.is_composed
    assert (plan.vectors == towers.encode_query([NOT_TEXT])).all()
    assert isinstance(plan.parsed, And)
    assert plan.confidence < uncertain.threshold
    assert plan.fallback.startswith("the parser's confidence is 0.")
    uncertain.threshold = 0.0
    assert uncertain.plan([NOT_TEXT])[0].is_composed


def test_each_conjunction_of_positive_operands_has_a_vector(retriever):
    both = And((Atom("moths"), Atom("Borneo")))
    typed = "moths that Borneo has"
    joined, less = retriever.plan_trees([both, And((*both.parts, Not(Atom("Java"))))], [typed, "x"])
    encoded = retriever.encode_operands(["moths and Borneo"])[0]
    assert np.allclose(less.vectors[-1], encoded, atol=1e-6)
    # Where it is the whole query, the text as typed has the same weight.
    assert (joined.plain == retriever.encode_queries([typed])[0]).all()
    assert np.allclose(joined.vectors[-1], (encoded + joined.plain) / 2, atol=1e-6)
    assert not np.allclose(joined.vectors[-1], encoded, atol=1e-3)
    # AND is distributed over OR: each alternative has its own.
    [nested] = retriever.plan_trees([parse("moths AND (Borneo OR Java)")])
    expected = retriever.encode_operands(["moths and Borneo", "moths and Java"])
    assert np.allclose(nested.vectors[3:], expected, atol=1e-6)
    [either] = retriever.plan_trees([parse("moths OR Borneo")])
    assert len(either.vectors) == 2


def test_a_tree_of_too_many_alternatives_is_one_vector(retriever):
    text = " AND ".join(f"(a{i} OR b{i})" for i in range(5))
    [plan] = retriever.plan_trees([parse(text)])
    assert (plan.is_composed, len(plan.vectors)) == (False, 1)
    assert plan.fallback == "it has 32 alternatives, more than 16"
    [plan] = retriever.plan_trees([parse(" OR ".join(f"a{i}" for i in range(40)))])
    assert plan.is_composed


def test_explicit_and_parsed_trees_have_the_same_scores(retriever):
    [parsed] = retriever.plan([NOT_TEXT])
    [given] = retriever.plan_trees([parsed.tree])
    similarities = np.random.default_rng(0).random((2, 7)).astype(np.float32)
    assert np.allclose(given.operand_vectors, parsed.operand_vectors, atol=1e-6)
    assert np.allclose(
        retriever.score(parsed, similarities), retriever.score(given, similarities), atol=1e-5
    )


def test_operands_are_encoded_with_closed_gates(towers):
    retriever = Retriever(towers)
    [bare] = retriever.plan_trees([Or((Atom("films and books"), Atom("birds")))])
    closed = retriever.encode_operands(["films and books"])[0]
    assert np.allclose(bare.operand_vectors[0], closed, atol=1e-6)


@pytest.mark.parametrize("is_torch", [True, False])
def test_ranking_a_corpus_agrees_with_scoring_it(retriever, is_torch):
    documents = torch.nn.functional.normalize(
        torch.randn(40, 32, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    a, b, c, d = map(Atom, ("moths", "Borneo", "birds", "films"))
    trees = [And((a, b)), And((c, d)), Or((a, c)), And((a, Or((b, d)), Not(c))), And((a, Not(b)))]
    plans = retriever.plan([PLAIN_TEXT, NOT_TEXT]) + retriever.plan_trees(trees)
    own = documents if is_torch else documents.numpy()
    rows, scores = rank_plans(plans, own, 40)
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
def test_parsing_changes_no_bit_of_a_vector(towers, n_states):
    parser = ParserHead(ParserConfig(hidden_size=32, n_states=n_states))
    texts = [NOT_TEXT, PLAIN_TEXT]
    features = towers.preprocess(texts, task="query")
    with torch.inference_mode():
        vectors, read = encode_and_parse(towers.eval(), parser, features)
    assert torch.equal(vectors, towers.encode_query(texts, convert_to_tensor=True))
    assert read.tags.shape[:2] == features["input_ids"].shape


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n_states", [1, 2])
def test_towers_in_half_precision_are_parsed(towers, n_states, kind):
    parser = ParserHead(ParserConfig(hidden_size=32, n_states=n_states, depth=1)).eval()
    features = towers.preprocess([NOT_TEXT, PLAIN_TEXT], task="query")
    with torch.inference_mode():
        _, whole = encode_and_parse(towers.eval(), parser, features)
        _, half = encode_and_parse(towers.to(kind), parser, features)
    assert half.tags.dtype is torch.float32
    for own, expected in zip(half, whole, strict=True):
        torch.testing.assert_close(own, expected, atol=0.1, rtol=0)
    assert not torch.equal(half.tags, whole.tags)
    # All the way to vectors and scores.
    retriever = Retriever(towers, parser)
    [plan] = retriever.plan([PLAIN_TEXT])
    assert np.isfinite(retriever.score(plan, plan.vectors @ plan.vectors.T)).all()


def test_operator_labels_reach_every_layer_that_is_parsed(tiny_encoder, tokenizer):
    config = BoolAttnConfig(gate="label", rank=4)
    towers = build_towers(tiny_encoder(), config, tokenizer=tokenizer).eval()
    parser = ParserHead(ParserConfig(hidden_size=32, n_states=2)).eval()
    features = towers.preprocess([NOT_TEXT], task="query")
    found = []
    for label in ([0, 0, 0], [0, 0, 1]):
        labelled = {**features, "operators": torch.tensor([label])}
        with torch.inference_mode():
            found.append(encode_and_parse(towers, parser, labelled))
    assert not torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][1].tags, found[1][1].tags)


def test_a_saved_retriever_parses_and_scores_the_same(towers, tmp_path):
    torch.manual_seed(3)
    config = ParserConfig(hidden_size=32, n_slots=3, n_states=2, depth=1)
    first = Retriever(towers, ParserHead(config), threshold=0.25)
    with torch.no_grad():
        first.calibration.negation_offset.fill_(0.07)
        first.calibration.negation_margin.fill_(0.3)
        first.calibration.display_scale.copy_(torch.tensor([[0.8, -2.0], [0.9, -4.0]]))
    first.save(tmp_path / "model")
    second = Retriever.load(tmp_path / "model")
    assert second.threshold == 0.25
    assert second.fingerprint == first.fingerprint
    assert second.parser is not None
    for name, value in first.parser.state_dict().items():
        assert torch.equal(value, second.parser.state_dict()[name])
    for name, value in first.calibration.state_dict().items():
        assert torch.equal(value, second.calibration.state_dict()[name])
    plain = SentenceTransformer(str(tmp_path / "model"))
    assert (plain.encode_query([PLAIN_TEXT]) == towers.encode_query([PLAIN_TEXT])).all()


_OLD_NAMES = {
    "negation_margin": "lean",
    "negation_offset": "excluded_shift",
    "whole_query": "whole",
    "display_scale": "scale",
}


@pytest.mark.parametrize("is_first", [False, True])
def test_a_model_of_format_1_is_read(towers, tmp_path, is_first):
    parser = ParserHead(ParserConfig(hidden_size=32))
    first = Retriever(towers, parser, TrainableCalibration(32, negation_margin=0.5))
    first.calibration.display_scale.fill_(2.0)
    first.save(tmp_path / "model")
    path = tmp_path / "model" / WEIGHTS
    older = {}
    for name, value in load_file(path).items():
        part, _, own = name.partition(".")
        old = f"{'reader' if part == 'parser' else part}.{_OLD_NAMES.get(own, own)}"
        # The very first files had neither a margin nor a scale.
        if not (is_first and old in ("calibration.lean", "calibration.scale")):
            older[old] = value
    save_file(older, path)
    settings = json.loads((tmp_path / "model" / SETTINGS).read_text())
    config = settings.pop("parser")
    settings |= {"format": 1, "rule": "probability", "reader": config}
    (tmp_path / "model" / SETTINGS).write_text(json.dumps(settings))
    found = Retriever.load(tmp_path / "model")
    assert found.calibration.negation_margin == (0 if is_first else 0.5)
    expected = [[1, 0], [1, 0]] if is_first else [[2, 2], [2, 2]]
    assert found.calibration.display_scale.tolist() == expected
    for name, value in parser.state_dict().items():
        assert torch.equal(value, found.parser.state_dict()[name])


def test_a_model_with_a_removed_rule_is_rejected(towers, tmp_path):
    Retriever(towers).save(tmp_path / "model")
    path = tmp_path / "model" / SETTINGS
    path.write_text(json.dumps({"format": 1, "threshold": 0.5, "rule": "sum", "reader": None}))
    with pytest.raises(ConfigError, match="the composition rule 'sum' was removed"):
        Retriever.load(tmp_path / "model")


def test_damaged_or_missing_parts_are_named(towers, tmp_path):
    with pytest.raises(MissingDataError, match="holds no model"):
        Retriever.load(tmp_path)
    folder = tmp_path / "model"
    Retriever(towers, ParserHead(ParserConfig(hidden_size=32))).save(folder)
    (folder / WEIGHTS).write_bytes(b"junk")
    with pytest.raises(DataError, match="damaged"):
        Retriever.load(folder)
    settings = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps(settings | {"format": 99}))
    save = folder / SETTINGS
    Retriever(towers, ParserHead(ParserConfig(hidden_size=32))).save(tmp_path / "other")
    (folder / WEIGHTS).write_bytes((tmp_path / "other" / WEIGHTS).read_bytes())
    with pytest.raises(DataError, match="format 99"):
        Retriever.load(folder)
    assert save.is_file()
