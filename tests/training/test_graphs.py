"""CUDA graphs: their padding changes nothing, and a GPU trains as without them."""

from itertools import pairwise

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from boolattn.attention.gate import Gate
from boolattn.errors import ConfigError
from boolattn.plugin import install
from boolattn.training.graphs import (
    Captured,
    Recording,
    Weights,
    capture,
    fill,
    padded,
    typical,
)
from boolattn.training.launch import freeze, make_steps, make_towers
from boolattn.training.tower_pass import TowerPass, encode
from tests.conftest import trained


@pytest.fixture
def parts(preset, corpus):
    # Where there is a GPU, sentence-transformers puts the towers there; batches are made here.
    preset = preset("plugin.use_noise=false")
    towers = trained(make_towers(preset)).cpu().eval()
    return towers, make_steps(preset, corpus)


def quiet(towers):
    """Switch dropout off in towers that train."""
    for module in towers.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return towers.train()


#: Operators that make the host wait for a value, or send one.
LOOKS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "lift_fresh")


class Strict(TorchDispatchMode):
    """Refuses what no recording can hold."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in LOOKS, f"{name} asks the device"
        if name in ("index", "index_put", "index_put_"):
            chosen = [index for index in args[1] if index is not None]
            assert all(index.dtype != torch.bool for index in chosen), f"{name} by a mask"
        return function(*args, **(kwargs or {}))


def test_padding_changes_no_scope_loss(preset, corpus):
    preset = preset("plugin.use_noise=false", "pretrain.n_sentences=20", scope_weight=1.0)
    towers, features = (
        trained(make_towers(preset)).cpu().eval(),
        make_steps(preset, corpus)[0]["scoped"],
    )
    n_tokens = features["input_ids"].shape[1] + 5
    wide = padded(features, n_tokens, 0)
    assert wide["scopes"].shape == (4, 3, n_tokens)
    with torch.no_grad():
        expected, found = encode(towers, features, "scope"), encode(towers, wide, "scope")
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    place = torch.ones_like(wide["scopes"])
    fill(place, features["scopes"], 0)
    assert torch.equal(place, wide["scopes"])


@pytest.mark.parametrize("task", ["query", "document"])
def test_padding_changes_no_vector(parts, task):
    towers, steps = parts
    features = steps[0]["queries"] if task == "query" else steps[0]["documents"][0]
    n_tokens = features["input_ids"].shape[1] + 9
    wide = padded(features, n_tokens, 0)
    assert wide["input_ids"].shape[1] == n_tokens
    with torch.no_grad():
        expected, found = encode(towers, features, task), encode(towers, wide, task)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_a_batch_leaves_nothing_of_the_one_before(parts):
    _, steps = parts
    first, second = steps[0]["queries"], steps[1]["queries"]
    wide = padded(first, 48, 7)
    for name, place in wide.items():
        fill(place, second[name][:, :5], 7 if name == "input_ids" else 0)
    expected = padded({name: value[:, :5] for name, value in second.items()}, 48, 7)
    assert all(torch.equal(wide[name], expected[name]) for name in wide)
    assert (wide["input_ids"][:, 5:] == 7).all()
    assert not wide["attention_mask"][:, 5:].any()


def test_without_a_gpu_passes_run_as_usual(parts):
    towers, steps = parts
    batch = steps[0]
    inputs = {name: batch[name] for name in ("queries", "documents", "places")}
    assert capture(towers, "none") is None
    plain = TowerPass(towers)(**inputs)
    for which in ("queries", "all"):
        found = TowerPass(towers, capture(towers, which))(**inputs)
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("is_frozen", [False, True])
def test_documents_of_a_frozen_encoder_are_not_recorded(preset, is_frozen):
    chosen = preset(freeze_encoder=is_frozen)
    towers = make_towers(chosen)
    freeze(towers, chosen.train)
    tasks = {"query", "scope", "document"}
    assert capture(towers, "all").tasks == (tasks - {"document"} if is_frozen else tasks)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("tried to allocate"), "no memory is left"),
        (RuntimeError("not permitted\nwhen recording"), "not permitted"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(parts, monkeypatch, error, reason):
    towers, steps = parts

    def fail(self, features, task, slot):
        raise error

    monkeypatch.setattr(Captured, "_can_record", lambda self, _, task: task in self.tasks)
    monkeypatch.setattr(Captured, "_record", fail)
    message = rf"query passes \({reason}\); train with --set train.captured=queries"
    with pytest.raises(ConfigError, match=message):
        Captured(towers, ("query",))(steps[0]["queries"], "query")


@pytest.mark.parametrize("gate", ["lexicon", "learned"])
@pytest.mark.parametrize("use_plugin", [True, False])
@pytest.mark.parametrize("task", ["query", "document", "scope"])
def test_a_pass_asks_the_device_nothing(preset, corpus, monkeypatch, task, use_plugin, gate):
    """A recording breaks where the host looks at a value, or sends one."""
    if task == "scope" and not use_plugin:
        return
    changes = (f"plugin.gate={gate}", f"model.use_plugin={str(use_plugin).lower()}")
    preset = preset(*changes, "pretrain.n_sentences=20", scope_weight=1.0)
    steps = make_steps(preset, corpus)
    features = {
        "query": steps[0]["queries"],
        "document": steps[0]["documents"][0],
        "scope": steps[0].get("scoped"),
    }[task]
    n_tokens = max(48, features["input_ids"].shape[1])
    towers = trained(make_towers(preset)).cpu().train()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    # It looks at a gate on a CPU, and not at one on a GPU that records.
    monkeypatch.setattr(install, "_may_open", lambda gate: True)
    monkeypatch.setattr(install, "label_gate", lambda labels, *_: Gate(labels.float()))
    with Strict():
        encode(towers, padded(features, n_tokens, 0), task).square().sum().backward()


def test_a_look_is_seen():
    for look in (lambda x: bool((x > 0).all()), lambda x: x[x > 0], lambda x: x + torch.tensor(1)):
        with pytest.raises(AssertionError), Strict():
            look(torch.ones(3))


def test_what_is_recorded_knows_nothing_of_other_passes(parts):
    """The weights' own nodes in autograd's graph, alive in this step, must not be used."""
    towers, steps = parts
    features = steps[0]["queries"]
    weights = Weights(quiet(towers), "query")
    alive = encode(towers, features, "query")
    vectors = weights.call(features)
    torch.testing.assert_close(vectors, alive, atol=0, rtol=0)
    assert all(
        a is b for a, b in zip(towers.parameters(), weights.parameters.values(), strict=True)
    )
    gradients = weights.gradients(vectors, vectors.detach())
    assert all(value.grad is None for value in towers.parameters())
    assert not _leaves(alive) & _leaves(vectors)
    alive.backward(alive.detach())
    expected = [parameter.grad for parameter in weights.trained]
    torch.testing.assert_close(list(gradients), expected, atol=1e-6, rtol=1e-5)
    assert weights.are_current()
    next(towers.parameters()).data = next(towers.parameters()).data.clone()
    assert not weights.are_current()


def _leaves(vectors):
    """Find the parameters' nodes that a pass hangs on."""
    found, seen, todo = set(), set(), [vectors.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        todo += [after for after, _ in node.next_functions]
    assert found
    return found


class Replayed:
    """Stands in for a CUDA graph: does its work again, into the same memory."""

    def __init__(self, work, *places):
        self.work = work
        self.places = places

    def replay(self):
        for place, value in zip(self.places, self.work(), strict=True):
            place.copy_(value)


def test_replays_add_up_as_passes_do(parts):
    """Also where gradients are not cleared, and autograd has taken over a graph's memory."""
    towers, steps = parts
    features = padded(steps[0]["queries"], 32, 0)
    towers = quiet(towers)
    for parameter in towers.parameters():  # one of them learns: easy to see whose memory it is
        parameter.requires_grad_(parameter is next(towers.parameters()))
    weights = Weights(towers, "query")
    vectors = weights.call(features).detach()
    upstream = torch.zeros_like(vectors)

    def back():
        with torch.enable_grad():
            return weights.gradients(weights.call(features), upstream)

    places = tuple(value.clone() for value in back())
    forward = Replayed(lambda: [weights.call(features).detach()], vectors)
    replays = (forward, Replayed(back, *places))
    recording = Recording(weights, replays, features, 0, vectors, upstream, places)
    direction = torch.linspace(-1, 1, vectors.shape[1])
    found, expected = [], []
    for call, seen in (
        (lambda batch: encode(towers, batch, "query"), expected),
        (recording, found),
    ):
        towers.zero_grad()
        for number in (0, 1, 2):
            batch = padded(steps[number]["queries"], 32, 0)
            (call(batch) @ direction).sum().backward()
            seen.append(next(towers.parameters()).grad.clone())
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert all(not torch.equal(a, b) for a, b in pairwise(found))


def test_passes_before_a_recording_do_all_it_must_do(parts):
    _, steps = parts
    features = steps[0]["queries"]
    changed = typical({**features, "operators": torch.zeros(len(features["input_ids"]), 3)})
    assert changed["operators"].all()
    assert not changed["attention_mask"][:, -1].any()
    assert features["attention_mask"].any(0).all(), "the batch itself is left alone"


@pytest.mark.gpu
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(("is_bf16", "is_packed"), [(False, False), (True, False), (True, True)])
def test_recorded_passes_give_the_same_vectors_and_gradients(
    preset, corpus, is_bf16, is_packed, is_frozen
):
    preset = preset("plugin.use_noise=false", freeze_encoder=is_frozen)
    towers = quiet(trained(make_towers(preset)).cuda())
    freeze(towers, preset.train)
    steps = make_steps(preset, corpus)
    if is_packed:
        steps.chunk = 0
    captured = capture(towers, "all")
    for number in (0, 1, 2, 0):
        batch = steps[number]
        inputs = {
            "queries": {name: v.cuda() for name, v in batch["queries"].items()},
            "documents": [{n: v.cuda() for n, v in part.items()} for part in batch["documents"]],
            "places": batch["places"].cuda(),
        }
        found = []
        for model in (TowerPass(towers), TowerPass(towers, captured)):
            towers.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=is_bf16):
                queries, documents = model(**inputs)
            (queries.float() @ documents.float().T).square().sum().backward()
            grads = {n: p.grad.clone() for n, p in towers.named_parameters() if p.grad is not None}
            found.append((queries.detach().clone(), documents.detach().clone(), grads))
        tolerance = {"atol": 2e-2, "rtol": 5e-2} if is_bf16 else {"atol": 1e-4, "rtol": 1e-3}
        torch.testing.assert_close(found[1], found[0], **tolerance)
    assert captured._recordings
