"""Training a retriever that reads, on a tiny encoder: learned, resumed and fitted."""

from __future__ import annotations

from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
import torch

from boolattn.data.readings_sources import marked_queries
from boolattn.data.records import Operand
from boolattn.data.sentences.store import SentenceStore
from boolattn.encoder.retriever import Retriever
from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import ParsedQuery
from boolattn.logic.tree import And, Atom, Not, Or
from boolattn.training import launch as launching
from boolattn.training.composing import Objective, make_composing
from boolattn.training.corpus import Corpus
from boolattn.training.cuda_graphs import capture
from boolattn.training.hyperparameters import SHIFTS, WEIGHTS, Fitter, Judged, Tried, fit_numbers
from boolattn.training.launch import Launch, finish, make_steps, train
from boolattn.training.parser_batches import (
    ComposingCollator,
    operand_words,
    reading_operators,
)
from boolattn.training.towers import make_towers
from boolattn.training.trainer import RetrievalTrainer

COMPOSE = (
    "compose.use_reader=true",
    "compose.n_slots=3",
    "compose.n_readings=6",
    "compose.n_generated=12",
    "compose.n_wide=9",
)


def _with_spans(query):
    kind, first, second = query.id.split("-")
    head = len(kind) + 4
    kept = ((0, head + len(first)),)
    drop = ((0, head), (query.text.index(second), len(query.text)))
    names = (f"{kind} of {first}", f"{kind} of {second}")
    return replace(query, operands=tuple(map(Operand, names, (kept, drop))))


@pytest.fixture
def marked_corpus(dataset, tokenizer):
    splits = {name: tuple(map(_with_spans, queries)) for name, queries in dataset.splits.items()}
    return Corpus(replace(dataset, splits=splits), tokenizer, 32)


def _parts(folder):
    retriever = Retriever.load(folder)
    return {
        **{f"towers.{k}": v for k, v in retriever.towers.state_dict().items()},
        **{f"reader.{k}": v for k, v in retriever.parser.state_dict().items()},
        **{f"calibration.{k}": v for k, v in retriever.calibration.state_dict().items()},
    }


def test_a_step_holds_operands_and_texts_that_are_only_read(preset, marked_corpus):
    steps = make_steps(preset(*COMPOSE), marked_corpus)
    batch = steps[0]
    assert isinstance(steps.collator, ComposingCollator)
    assert len(batch["queries"]["input_ids"]) == 4 + 6
    assert (batch["slots"][:, :2] >= 0).all()
    assert (batch["slots"][:, 2] == -1).all()
    # Kept, then excluded, as the texts have them.
    assert batch["labels"]["roles"][:4].tolist() == [[1, 2, 0]] * 4
    assert batch["labels"]["is_known"].all()
    assert len(batch["operands"]["input_ids"]) == 8
    assert not batch["operands"]["operators"].any()
    texts = [marked_corpus.tokenizer.decode(ids) for ids in batch["operands"]["input_ids"]]
    assert len(set(texts)) > 4


def _operand_texts(steps, step):
    """Return the words of a step's operands, kept and excluded in turn."""
    decode = steps.collator.queries._tokenizer.decode
    ids = steps[step]["operands"]["input_ids"]
    return [decode(row, skip_special_tokens=True).replace(" ##", "") for row in ids]


def test_operands_of_a_step_are_in_full_unless_asked_barely(preset, marked_corpus):
    full, bare, some = (
        make_steps(preset(*COMPOSE, f"compose.bare_share={share}"), marked_corpus)
        for share in (0.0, 1.0, 0.5)
    )
    kept, excluded = _operand_texts(full, 0)[::2], _operand_texts(full, 0)[1::2]
    assert all(a.split()[:2] == b.split()[:2] for a, b in zip(kept, excluded, strict=True))
    # What is kept is said in full; what is excluded no longer says "moths of".
    assert _operand_texts(bare, 0)[::2] == kept
    assert _operand_texts(bare, 0)[1::2] == [" ".join(name.split()[2:]) for name in excluded]
    shares = [
        np.mean([len(name.split()) < 3 for name in _operand_texts(some, step)[1::2]])
        for step in range(len(some))
    ]
    assert 0.1 < np.mean(shares) < 0.9
    # Drawn anew each step, and the same again when a training is resumed.
    assert len(set(shares)) > 1
    assert _operand_texts(some, 1) == _operand_texts(some, 1)
    # Only what is encoded apart is said barely: the queries, and what is read of them, stay.
    for name in ("input_ids", "attention_mask"):
        assert torch.equal(full[0]["queries"][name], bare[0]["queries"][name])
    assert torch.equal(full[0]["labels"]["tags"], bare[0]["labels"]["tags"])
    assert torch.equal(full[0]["slots"], bare[0]["slots"])


def _read(text, kept, excluded=(), joiner=Operator.AND):
    def spans(parts):
        return tuple((text.index(part), text.index(part) + len(part)) for part in parts)

    return ParsedQuery(tuple(map(spans, kept)), tuple(map(spans, excluded)), joiner)


@pytest.mark.parametrize(
    ("text", "kept", "excluded", "joiner", "words"),
    [
        (
            "moths of Borneo and of Java, not Sumatra",
            [["moths", "of Borneo"], ["moths", "of Java"]],
            [["moths", "Sumatra"]],
            Operator.AND,
            ["moths of Borneo", "Java", "Sumatra"],
        ),
        # An exclusion that comes first is still what is said barely.
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
def test_bare_operands_say_nothing_twice(text, kept, excluded, joiner, words):
    reading = _read(text, kept, excluded, joiner)
    assert operand_words(text, reading, is_bare=True) == words
    in_full = operand_words(text, reading)
    assert all(
        set(own.split()) <= set(name.split()) for own, name in zip(words, in_full, strict=True)
    )


def test_a_step_without_marked_queries_has_no_operands(preset, dataset, tokenizer):
    queries = {
        name: tuple(replace(query, operands=(), template="") for query in own)
        for name, own in dataset.splits.items()
    }
    corpus = Corpus(replace(dataset, splits=queries), tokenizer, 32)
    batch = make_steps(preset(*COMPOSE), corpus)[0]
    assert (batch["slots"] == -1).all()
    assert len(batch["operands"]["input_ids"]) == 1


def test_operands_beyond_the_slots_are_left_out(preset, dataset, tokenizer):
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
        steps = make_steps(preset(*COMPOSE, f"compose.n_slots={n_slots}"), corpus)
        assert (steps[0]["slots"] >= 0).all()
        wanted = ["moths of borneo", "moths of java", "moths sumatra"][:n_slots]
        assert _operand_texts(steps, 0) == wanted * 4


def test_a_share_is_at_most_all(preset):
    with pytest.raises(ConfigError, match="bare_share must be between 0 and 1"):
        preset(*COMPOSE, "compose.bare_share=1.5")


def test_labels_of_readings(marked_corpus):
    [first, *_] = marked_queries(marked_corpus.split("train"))
    assert reading_operators(first.parsed) == (0, 0, 1)
    assert reading_operators(None) == (0, 0, 0)


def _on(device, value):
    """Move a step's batch."""
    if isinstance(value, dict):
        return {name: _on(device, own) for name, own in value.items()}
    if isinstance(value, list):
        return [_on(device, own) for own in value]
    return value.to(device)


def _step(preset, composing, batch, encode_batch):
    """Return a step's loss and gradients."""
    composing.encode_batch = encode_batch
    composing.zero_grad()
    loss, _ = Objective(preset)(composing, dict(batch))
    loss.backward()
    learned = composing.named_parameters()
    return loss.detach(), {name: v.grad.clone() for name, v in learned if v.grad is not None}


@pytest.fixture
def quiet(preset):
    """A preset without noise, and its model that trains without dropout."""
    chosen = preset(*COMPOSE, "plugin.use_noise=false")
    composing = make_composing(make_towers(chosen).cpu(), chosen).train()
    for module in composing.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return chosen, composing


def test_documents_go_the_recorded_way_which_without_a_gpu_is_the_usual(quiet, marked_corpus):
    chosen, composing = quiet
    batch = make_steps(chosen, marked_corpus)[0]
    captured, seen = capture(composing.towers, "all"), []

    def encode_batch(features, task, slot):
        seen.append((task, slot))
        return captured(features, task, slot)

    expected = _step(chosen, composing, batch, None)
    found = _step(chosen, composing, batch, encode_batch)
    assert seen == [("document", slot) for slot in range(len(batch["documents"]))]
    assert len(seen) > 1
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


@pytest.mark.gpu
def test_recorded_documents_give_the_same_loss_and_gradients(quiet, marked_corpus):
    chosen, composing = quiet
    composing.cuda()
    steps, captured = make_steps(chosen, marked_corpus), capture(composing.towers, "all")
    for number in (0, 1, 2, 0):
        batch = _on("cuda", steps[number])
        expected = _step(chosen, composing, batch, None)
        found = _step(chosen, composing, batch, captured)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    assert captured.failure is None
    assert captured._passes


@pytest.mark.parametrize("gate", ["lexicon", "label", ""])
def test_training_moves_every_part(preset, marked_corpus, tmp_path, gate):
    plugin = [f"plugin.gate={gate}"] if gate else ["model.use_plugin=false"]
    chosen = preset(*COMPOSE, *plugin, max_steps=3, keep="last", plugin_learning_rate=1e-2)
    train(chosen, Launch(out=tmp_path / "a"), marked_corpus)
    after = _parts(tmp_path / "a" / "model")
    train(
        replace(chosen, train=replace(chosen.train, max_steps=1, warmup_steps=1)),
        Launch(out=tmp_path / "b"),
        marked_corpus,
    )
    before = _parts(tmp_path / "b" / "model")
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    for part in (
        "reader.tag.weight",
        "reader.role.weight",
        "calibration.log_alpha",
        "calibration.negation_offset",
        "calibration.breadth",
    ):
        assert part in moved
    assert any(name.startswith("towers.") for name in moved)


def test_an_interrupted_run_ends_with_the_same_weights(
    preset, marked_corpus, tmp_path, monkeypatch
):
    chosen = preset(*COMPOSE, "compose.read_steps=2", "compose.read_batch=4", keep="last")
    train(chosen, Launch(out=tmp_path / "whole"), marked_corpus)
    own = RetrievalTrainer.training_step

    def stop(self, *args, **kwargs):
        if self.state.global_step == 5:
            raise KeyboardInterrupt
        return own(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(RetrievalTrainer, "training_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    train(chosen, Launch(out=tmp_path / "run", resume=True), marked_corpus)
    whole, resumed = _parts(tmp_path / "whole" / "model"), _parts(tmp_path / "run" / "model")
    # A GPU adds in no fixed order, so that even two whole runs differ in the last digits there.
    limit = {"rtol": 1e-3, "atol": 1e-4} if torch.cuda.is_available() else {"rtol": 0, "atol": 0}
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], **limit)


def test_finishing_changes_no_vector(preset, marked_corpus, tmp_path):
    chosen = preset(*COMPOSE, max_steps=2, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    settings = replace(
        chosen.compose,
        n_states=3,
        depth=1,
        polish_steps=200,
        polish_learning_rate=5e-3,
        read_batch=8,
        # The queries alone: from other texts besides, so small an encoder learns them by luck.
        n_generated=1,
        n_wide=0,
        fit_numbers=True,
        threshold=0.0,
    )
    fitted = replace(chosen, compose=settings)
    launch = Launch(out=tmp_path / "end", pretrained=tmp_path / "run" / "model")
    metrics = finish(fitted, launch, marked_corpus)
    assert 0 <= metrics["composed_leak"] <= 1
    before, after = _parts(tmp_path / "run" / "model"), _parts(tmp_path / "end" / "model")
    for name in before:
        if name.startswith("towers."):
            assert torch.equal(before[name], after[name])
    ended = Retriever.load(tmp_path / "end" / "model")
    assert ended.threshold == 0.0
    # It reads what it was polished on.
    assert ended.parser.config.n_states == 3
    queries = marked_corpus.dataset.splits["train"]
    [marked] = marked_queries(queries[:1])
    [verdict] = ended.parse([marked.text])
    assert verdict.parsed.form == marked.parsed.form


def test_what_was_trained_is_let_go_before_it_is_finished(
    preset, marked_corpus, tmp_path, monkeypatch
):
    made, held = [], []

    def make(*args):
        towers = make_towers(*args)
        made.append(ref(towers))
        return towers

    def finish_nothing(*_):
        held.extend(one() is not None for one in made)
        return {}

    monkeypatch.setattr(launching, "make_towers", make)
    monkeypatch.setattr(launching, "_finish", finish_nothing)
    chosen = preset(*COMPOSE, "compose.polish_steps=1", max_steps=1, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    # Two models side by side would take twice the memory.
    assert held == [False]


def test_a_reader_is_polished_anew_or_goes_on(preset, marked_corpus, tmp_path):
    chosen = preset(*COMPOSE, max_steps=1, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    before = _parts(tmp_path / "run" / "model")["reader.role.weight"]
    for is_new in (True, False):
        settings = replace(
            chosen.compose,
            polish_steps=1,
            polish_anew=is_new,
            polish_learning_rate=1e-9,
            n_states=3 if is_new else 2,
            read_batch=4,
        )
        out = tmp_path / str(is_new)
        launch = Launch(out=out, pretrained=tmp_path / "run" / "model")
        finish(replace(chosen, compose=settings), launch, marked_corpus)
        ended = Retriever.load(out / "model").parser
        # What goes on keeps its own layers, whatever the settings say.
        assert ended.config.n_states == (3 if is_new else 1)
        is_same = torch.allclose(ended.role.weight, before, atol=1e-6)
        assert is_same != is_new


def test_training_on_shows_what_is_composed_until_it_is_fitted_again(
    preset, marked_corpus, tmp_path
):
    chosen = preset(*COMPOSE, max_steps=1, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    first = Retriever.load(tmp_path / "run" / "model")
    first.calibration.display_scale.fill_(3.0)
    first.save(tmp_path / "fitted")
    found = make_composing(first.towers, chosen, tmp_path / "fitted").composer["calibration"]
    assert found.display_scale.tolist() == [[1, 0], [1, 0]]
    assert torch.equal(found.breadth.cpu(), first.calibration.breadth.cpu())


def test_what_was_polished_is_kept_when_choosing_is_interrupted(
    preset, marked_corpus, tmp_path, monkeypatch
):
    chosen = preset(*COMPOSE, max_steps=1, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    settings = replace(chosen.compose, polish_steps=1, read_batch=4, fit_numbers=True)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("boolattn.training.launch.fit", stop)
    launch = Launch(out=tmp_path / "end", pretrained=tmp_path / "run" / "model")
    with pytest.raises(KeyboardInterrupt):
        finish(replace(chosen, compose=settings), launch, marked_corpus)
    before, after = (_parts(tmp_path / name / "model") for name in ("run", "end"))
    assert not torch.equal(before["reader.role.weight"], after["reader.role.weight"])


def test_numbers_stay_where_nothing_is_read(preset, marked_corpus, tmp_path, caplog):
    chosen = preset(*COMPOSE, "compose.fit_numbers=true", max_steps=1, keep="last")
    result = train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    assert "no validation query was read" in caplog.text
    assert "composed_leak" not in result.metrics
    assert Retriever.load(result.model).parser is not None


def test_finishing_needs_a_reader_and_a_model(preset, marked_corpus, tmp_path):
    chosen = preset(max_steps=1, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    fitted = preset(*COMPOSE, "compose.fit_numbers=true")
    with pytest.raises(ConfigError, match="has no reader"):
        finish(
            fitted,
            Launch(out=tmp_path / "x", pretrained=tmp_path / "run" / "model"),
            marked_corpus,
        )
    with pytest.raises(ConfigError, match="--pretrained"):
        finish(fitted, Launch(out=tmp_path / "y"), marked_corpus)


def test_teaching_the_gate_changes_no_document(preset, marked_corpus, tmp_path):
    learned = ("plugin.gate=learned", "plugin.gate_reads=context")
    chosen = preset(*COMPOSE, *learned, max_steps=2, keep="last")
    train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    taught = replace(chosen, compose=replace(chosen.compose, gate_steps=30, read_batch=8))
    launch = Launch(out=tmp_path / "end", pretrained=tmp_path / "run" / "model")
    assert 0 <= finish(taught, launch, marked_corpus)["gate_accuracy"] <= 1
    before, after = (Retriever.load(tmp_path / name / "model") for name in ("run", "end"))
    texts = [document.text for document in marked_corpus.dataset.documents[:8]]
    vectors = [one.towers.encode_document(texts) for one in (before, after)]
    np.testing.assert_array_equal(*vectors)
    old, new = before.towers.state_dict(), after.towers.state_dict()
    changed = [name for name in old if not torch.equal(old[name], new[name])]
    assert changed
    assert all(".gate." in name for name in changed)


@pytest.mark.parametrize("change", ["plugin.gate=lexicon", "model.use_plugin=false"])
def test_a_gate_that_cannot_be_taught_is_refused_before_the_training(
    preset, marked_corpus, tmp_path, change
):
    chosen = preset(*COMPOSE, change, "compose.gate_steps=1")
    with pytest.raises(ConfigError, match=r"plugin\.gate=learned"):
        train(chosen, Launch(out=tmp_path / "run"), marked_corpus)
    assert not (tmp_path / "run").exists()


def _wide(documents):
    """Pad vectors of three numbers to the tiny encoder's 32."""
    return torch.nn.functional.pad(documents, (0, 29))


class TestFitting:
    """Numbers chosen on documents whose similarities are known."""

    @pytest.fixture
    def retriever(self, tiny_encoder, tokenizer):
        from boolattn.encoder import build_towers

        return Retriever(build_towers(tiny_encoder(), tokenizer=tokenizer))

    def _judged(self, retriever, tree, vectors, gold, excluded=(), plain=None):
        [plan] = retriever.plan_trees([tree])
        vectors = np.pad(vectors, ((0, 0), (0, 29))).astype(np.float32)
        plain = vectors[-1] if plain is None else np.pad(plain, (0, 29)).astype(np.float32)
        plan = replace(plan, vectors=vectors, plain=plain)
        return Judged(plan, frozenset(gold), frozenset(excluded))

    def _measure(self, fitter, shift, lean=0.0, weights=(0.0, 0.0, 0.0)):
        found = fitter.measure([0], [Tried(shift, lean, weights)])
        return found.precision.item(), found.leak.item()

    def test_the_least_shift_is_chosen_that_excludes_and_keeps(self, retriever):
        # Document 0 answers, 1 is excluded, 2 is beside the point and must come before 1.
        documents = torch.tensor([[0.8, 0.38, 0.0], [0.85, 0.45, 0.0], [0.4, 0.1, 0.0]])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0], [1])]
        fitter = Fitter(retriever, judged, _wide(documents))
        assert self._measure(fitter, 0.0) == (1.0, 1.0)
        assert self._measure(fitter, 0.2) == (0.0, 0.0)
        found = fit_numbers(fitter)
        assert (found.negation_offset, found.lean) == (0.1, 0.0)
        assert (found.r_precision, found.leak) == (1.0, 0.0)
        assert retriever.calibration.negation_offset.item() == pytest.approx(0.1)
        assert retriever.calibration.negation_margin.item() == 0

    def test_what_fits_the_wanted_best_may_be_near_the_excluded(self, retriever):
        # Document 0 is nearer to what is excluded than 1 is, and nearer still to what is wanted.
        documents = torch.tensor([[0.95, 0.6, 0.0], [0.56, 0.58, 0.0], [0.5, 0.2, 0.0]])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0], [1])]
        fitter = Fitter(retriever, judged, _wide(documents))
        for shift in SHIFTS:
            assert self._measure(fitter, shift) != (1.0, 0.0)
        found = fit_numbers(fitter)
        assert (found.r_precision, found.leak) == (1.0, 0.0)
        assert found.lean > 0
        [plan] = [one.plan for one in judged]
        scores = retriever.score(plan, plan.vectors @ _wide(documents).numpy().T)
        assert scores.argsort()[::-1].tolist() == [0, 2, 1]

    def test_a_leak_is_not_mended_at_the_cost_of_more_right_documents(self, retriever):
        # By their operands the answers (0, 1) are as much excluded as what is (2 to 4): all five
        # stand behind what is beside the point, or, by the text's one vector, all before it.
        answer, drop, beside = [0.8, 0.9, 0.9], [0.8, 0.9, 0.899], [0.3, -0.9, 0.0]
        documents = torch.tensor([*[answer] * 2, *[drop] * 3, *[beside] * 200])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0, 1], [2, 3, 4])]
        fitter = Fitter(retriever, judged, _wide(documents))
        assert self._measure(fitter, 0.2) == (0.0, 0.0)
        found = fit_numbers(fitter)
        assert (found.r_precision, found.leak) == (1.0, 1.0)
        assert fitter.measure_plain([0]).worth.item() == 1.0

    def test_what_the_whole_knows_counts_as_much_as_it_takes(self, retriever):
        # As above; but the whole tells answers apart by so little that its weight must be large.
        answer, drop, beside = [0.8, 0.9, 0.05], [0.8, 0.9, 0.0499], [0.3, -0.9, 0.0]
        documents = torch.tensor([*[answer] * 2, *[drop] * 3, *[beside] * 200])
        tree = And((Atom("a"), Not(Atom("b"))))
        judged = [self._judged(retriever, tree, np.eye(3), [0, 1], [2, 3, 4])]
        found = fit_numbers(Fitter(retriever, judged, _wide(documents)))
        assert found.r_precision == 1.0
        assert found.weights[2] >= 3

    def test_a_leak_costs_two_right_documents_where_the_text_finds_none(self, retriever):
        # Answers and two of three excluded documents come together, or not at all. The text's
        # one vector, last in a document here, finds neither, so nothing is lost.
        answer, drop, beside = [0.8, 0.9, 0.9, -1.0], [0.8, 0.9, 0.899, -1.0], [0.3, -0.9, 0.0, 0.0]
        far = [-0.9, 0.9, -0.9, -1.0]
        documents = torch.tensor([*[answer] * 2, *[drop] * 2, far, *[beside] * 200])
        documents = torch.nn.functional.pad(documents, (0, 28))
        tree = And((Atom("a"), Not(Atom("b"))))
        one = self._judged(retriever, tree, np.eye(3), [0, 1], [2, 3, 4])
        assert fit_numbers(Fitter(retriever, [one], documents)).r_precision == 1.0
        plain = np.eye(32, dtype=np.float32)[3]
        one = replace(one, plan=replace(one.plan, plain=plain))
        fitter = Fitter(retriever, [one], documents)
        assert fitter.measure_plain([0]).worth.item() == 0
        found = fit_numbers(fitter)
        assert (found.r_precision, found.leak) == (0.0, 0.0)

    @pytest.mark.parametrize("join", [And, Or])
    def test_recall_counts_beside_precision(self, retriever, join):
        # Whatever the weight, document 0 stands first and 1 second; 2 answers too, and the
        # operands find it among the first hundred, the whole does not.
        known = [[0.9, 0.9, 0.9], [0.8, 0.8, 0.8], [0.5, 0.5, 0.0]]
        documents = torch.tensor([*known, *[[0.0, 0.0, 0.3]] * 150])
        tree = join((Atom("a"), Atom("b")))
        judged = [self._judged(retriever, tree, np.eye(3), [0, 2]) for _ in range(3)]
        fitter = Fitter(retriever, judged, _wide(documents))
        place = 0 if join is And else 1
        assert fit_numbers(fitter).weights[place] < WEIGHTS[-1]
        light, heavy = (Tried(0.0, 0.0, (w, w, 0.0)) for w in (0.0, WEIGHTS[-1]))
        found = fitter.measure([0], [light, heavy])
        assert found.precision.tolist() == [[0.5, 0.5]]
        assert found.recall.tolist() == [[1.0, 0.5]]

    def test_what_no_query_asks_for_stays_as_it_was_learned(self, retriever):
        documents = torch.tensor([[0.3, 0.3, 0.9], [0.6, 0.3, 0.0]])
        judged = [self._judged(retriever, Or((Atom("a"), Atom("b"))), np.eye(3), [0])] * 2
        with torch.no_grad():
            retriever.calibration.negation_margin.fill_(0.3)
            retriever.calibration.negation_offset.fill_(0.07)
        before = retriever.calibration.whole_query.detach().clone()
        fit_numbers(Fitter(retriever, judged, _wide(documents)))
        after = retriever.calibration
        own = (after.negation_margin.item(), after.negation_offset.item())
        assert own == pytest.approx((0.3, 0.07))
        assert torch.allclose(after.whole_query[[0, 2]], before[[0, 2]], atol=1e-4)
        assert not torch.allclose(after.whole_query[1], before[1], atol=1e-2)

    def test_or_takes_the_whole_vector_where_it_knows_better(self, retriever):
        # The operands prefer document 1; the whole text knows that 0 answers.
        documents = torch.tensor([[0.3, 0.3, 0.9], [0.6, 0.3, 0.0]])
        judged = [self._judged(retriever, Or((Atom("a"), Atom("b"))), np.eye(3), [0])]
        found = fit_numbers(Fitter(retriever, judged, _wide(documents)))
        assert found.weights[1] > 0
        assert found.r_precision == 1.0
        [plan] = [one.plan for one in judged]
        scores = retriever.score(plan, plan.vectors @ _wide(documents).numpy().T)
        assert scores[0] > scores[1]

    def _ranked_by(self, retriever, n_operands, n_whole):
        """Queries whose operands know the answer, and queries whose whole does."""
        documents = torch.tensor([[0.9, 0.0, 0.1], [0.1, 0.0, 0.9]])
        tree = Or((Atom("a"), Atom("b")))
        known = [0] * n_operands + [1] * n_whole
        judged = [self._judged(retriever, tree, np.eye(3), [gold]) for gold in known]
        return fit_numbers(Fitter(retriever, judged, _wide(documents))).weights[1]

    def test_what_few_queries_cannot_show_is_left_to_the_whole_vector(self, retriever):
        # The operands are right oftener in both: by a hair, which is chance, and by far.
        assert self._ranked_by(retriever, 6, 5) == WEIGHTS[-1]
        assert self._ranked_by(retriever, 11, 1) < 1
        # One query is never enough.
        assert self._ranked_by(retriever, 1, 0) == WEIGHTS[-1]

    def test_rounding_decides_nothing_where_one_query_of_several_differs(self, retriever):
        documents = torch.tensor([[0.9, 0.0, 0.1], [0.1, 0.0, 0.9], [0.5, 0.0, 0.5]])
        tree = Or((Atom("a"), Atom("b")))
        [differs, same] = [
            self._judged(retriever, tree, np.eye(3), gold) for gold in ([0], [0, 1, 2])
        ]
        for n in range(1, 30):
            fitter = Fitter(retriever, [differs, *[same] * n], _wide(documents))
            assert fit_numbers(fitter).weights[1] == WEIGHTS[-1]

    def test_nothing_to_fit_is_said(self, retriever):
        with pytest.raises(ConfigError, match="no validation query was read as Boolean"):
            fit_numbers(Fitter(retriever, [], torch.zeros(1, 3)))


def test_a_step_reads_as_many_texts_of_each_source(preset, marked_corpus, tmp_path):
    steps = make_steps(preset(*COMPOSE), marked_corpus, None, SentenceStore(tmp_path / "made"))
    sources = steps.collator.store.sources
    assert [len(source) for source in sources][1:] == [12, 9]
    drawn = steps.collator.store.draw(np.random.default_rng(0), 6)
    assert [sum(row in source for row in drawn) for source in sources] == [2, 2, 2]
    # Made once, and found again.
    [kept] = (tmp_path / "made").iterdir()
    assert "wide" in kept.name
