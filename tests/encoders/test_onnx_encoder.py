from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from boolattn import TorchEncoder
from boolattn.checksums import read_manifest, write_manifest
from boolattn.encoders.models import SHIPPED, load_model, minilm_folder, resolve, torch_folder
from boolattn.encoders.onnx_encoder import OnnxEncoder
from boolattn.errors import (
    BoolattnError,
    ConfigError,
    DataError,
    IndexMismatchError,
    MissingDataError,
)
from boolattn.query import parser as runtime
from boolattn.query.parser import THREADS_VARIABLE, default_threads
from boolattn.query.plan import plan_queries
from boolattn.query.syntax import parse
from boolattn.search import Document, Searcher
from tests.exact_ranking import score
from tests.parses import read_trees

TEXTS = ("moths of Borneo but not Sumatra", "frogs", "bees or wasps of Peru", "")


@pytest.fixture(scope="module")
def shipped():
    return OnnxEncoder.load(resolve(SHIPPED))


@pytest.fixture(scope="module")
def torch_model():
    return TorchEncoder.load(resolve(SHIPPED), device="cpu")


def test_both_backends_agree(shipped, torch_model):
    assert shipped.fingerprint == torch_model.fingerprint
    assert shipped.gate == torch_model.gate == ""
    assert shipped.max_tokens == torch_model.max_tokens
    for name in ("encode_queries", "encode_operands", "encode_documents"):
        ours, theirs = getattr(shipped, name)(TEXTS), getattr(torch_model, name)(TEXTS)
        assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)
        assert (ours * theirs).sum(1).min() > 0.99


def test_a_text_has_the_same_vector_alone_and_among_others(shipped):
    together = shipped.encode_documents(TEXTS)
    for row, text in enumerate(TEXTS):
        assert np.array_equal(together[row], shipped.encode_documents([text])[0])
    one_thread = OnnxEncoder(shipped.folder, shipped.manifest, threads=1)
    assert np.array_equal(one_thread.encode_documents(TEXTS), together)


def test_the_last_queries_and_operands_are_remembered(shipped, monkeypatch):
    runs = []
    monkeypatch.setattr("boolattn.encoders.onnx_encoder.MAX_REMEMBERED", 3)
    monkeypatch.setattr(
        "boolattn.encoders.onnx_encoder.run_graph",
        lambda *given: runs.append(given[2]["input_ids"].tolist()) or runtime.run_graph(*given),
    )
    model = OnnxEncoder(shipped.folder, shipped.manifest, threads=1)
    expected = model.encode_documents(TEXTS)
    [first, *others], (ids, *_) = TEXTS, runs
    for encode in (model.encode_queries, model.encode_operands):
        vectors = encode([first, first])
        assert np.array_equal(vectors, expected[[0, 0]])
        vectors[:] = 0  # a copy
    assert runs[len(TEXTS) :] == [ids]
    model.encode_operands(others)
    assert np.array_equal(model.encode_operands([first])[0], expected[0])
    assert runs[-1] == ids  # forgotten meanwhile
    n_runs, long = len(runs), "moths " * 100
    assert np.array_equal(model.encode_queries([long]), model.encode_queries([long]))
    assert len(runs) == n_runs + 2
    assert model.encode_operands([]).shape == (0, model.dimension)
    with pytest.raises(ConfigError, match="must be a list of texts"):
        model.encode_queries("moths")


def test_a_text_without_tokens_is_no_error(shipped, monkeypatch):
    bare = runtime.open_tokenizer(shipped.folder / "tokenizer.json", 64)
    bare.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    monkeypatch.setattr(shipped, "_tokenizer", lambda _length: bare)
    assert not shipped.encode_documents([""]).any()
    assert shipped.encode_documents(["moths"]).any()


def test_tokenizers_of_one_file_share_its_words_alone(shipped, tmp_path):
    original = Tokenizer.from_file(str(shipped.folder / "tokenizer.json"))
    original.add_special_tokens(["<x>"])
    original.add_tokens([AddedToken("foo bar", single_word=True), "zz"])
    original.save(str(path := tmp_path / "tokenizer.json"))
    short, long = (runtime.open_tokenizer(path, length) for length in (4, 64))
    text = "moths <x> of foo bar, zz [MASK] São-Tomé"
    for length, tokenizer in ((4, short), (64, long)):
        original.enable_truncation(length)
        assert tokenizer.encode(text).ids == original.encode(text).ids
        assert tokenizer.to_str() == original.to_str()
    original.add_tokens(["Tomé"])
    original.save(str(path))
    assert runtime.open_tokenizer(path, 64).encode(text).ids != long.encode(text).ids


def test_the_vocabulary_of_the_manifest_is_the_tokenizers(shipped):
    plain = OnnxEncoder(shipped.folder, replace(shipped.manifest, vocabulary={}))
    assert shipped.manifest.vocabulary
    assert shipped.digests == plain.digests


def test_documents_are_a_list(shipped, monkeypatch):
    monkeypatch.setattr(shipped, "block_size", 2)
    blocks = [*shipped.encode_blocks(TEXTS, None)]
    assert [len(block) for block in blocks[:-1]] == [2] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate(blocks), shipped.encode_documents(TEXTS))
    assert shipped.encode_documents([]).shape == (0, shipped.dimension)
    with pytest.raises(ConfigError, match="must be a list of texts"):
        shipped.encode_documents("one text")


def test_a_device_or_a_torch_folder_chooses_torch(shipped, monkeypatch):
    assert isinstance(load_model(SHIPPED), OnnxEncoder)
    assert isinstance(load_model(SHIPPED, device="cpu"), TorchEncoder)
    folder = torch_folder(resolve(SHIPPED))
    assert isinstance(load_model(str(folder)), TorchEncoder)
    monkeypatch.setattr("boolattn.files.find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match=r"a torch model, needs torch; pip .*\[train\]"):
        load_model(str(folder))


def test_two_processes_may_unpack_a_model_at_once(tmp_path):
    code = "from boolattn.encoders.models import shipped_model; print(shipped_model())"
    environment = os.environ | {"BOOLATTN_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {process.communicate(timeout=100)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(folders) == 1
    assert len(list((tmp_path / "cache/models").iterdir())) == 1


def test_minilm_runs_with_the_weights_of_its_package(monkeypatch, tmp_path):
    ours, theirs = load_model("minilm"), load_model("minilm", device="cpu")
    assert isinstance(ours, OnnxEncoder)
    assert ours.fingerprint == theirs.fingerprint
    vectors = [one.encode_documents(TEXTS[:3]) for one in (ours, theirs)]
    assert (vectors[0] * vectors[1]).sum(1).min() > 0.99
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    other = tmp_path / "other"
    shutil.copytree(minilm_folder(), other)
    weights = other / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 64
    weights.write_bytes(content)
    monkeypatch.setattr("boolattn.encoders.models.minilm_folder", lambda: other)
    with pytest.raises(DataError, match="is another model than all-MiniLM-L6-v2"):
        resolve("minilm")
    assert not list((tmp_path / "cache" / "models").iterdir())


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied") / "model"
    shutil.copytree(resolve(SHIPPED), folder)
    return folder


@pytest.fixture
def copy(copied, monkeypatch, tmp_path):
    """A copy of the shipped model whose small files are restored after the test."""
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path))
    OnnxEncoder.load(copied)
    kept = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    yield copied
    for path, content in kept.items():
        path.write_bytes(content)


def _opens(folder):
    OnnxEncoder.load(folder).encode_queries(["moths but not bees"])


@pytest.mark.parametrize(
    "name",
    [
        "document.onnx",
        "weights-0.safetensors",
        "weights-1.safetensors",
        "tokenizer.json",
        "weights.json",
        "torch/config.json",
    ],
)
def test_every_changed_cut_or_missing_file_is_named(copy, name):
    path = copy / name
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (bytes(flipped), content[:-7], b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{name} differs from model.json; copy the folder"):
            OnnxEncoder.load(copy)
    path.unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        OnnxEncoder.load(copy)
    path.write_bytes(content)
    _opens(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "has format 9; this version reads 1"),
        ({"unknown": 1}, "has no 'unknown'"),
        ({"files": {"../x": "0"}}, "leads out of the model's folder"),
        ({"graphs": {}}, "names no graph for 'query'"),
    ],
)
def test_a_wrong_manifest_is_one_line(copy, change, message):
    path = copy / "model.json"
    write_manifest(path, read_manifest(path) | change)
    with pytest.raises(BoolattnError, match=message) as caught:
        _opens(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"query_prompt": "NOT "}, {"document_prompt": "x"}, {"query_length": 3}]
)
def test_an_index_knows_how_its_texts_were_prepared(copy, tmp_path, change):
    """A prompt is in no graph, and changes every vector."""
    documents = [Document(id="1", text="a moth")]
    Searcher.build(tmp_path / "index", documents, OnnxEncoder.load(copy), parser=None)
    write_manifest(copy / "model.json", read_manifest(copy / "model.json") | change)
    with pytest.raises(IndexMismatchError, match="with another prompt or length of the model"):
        Searcher.open(tmp_path / "index", OnnxEncoder.load(copy), parser=None)


def test_an_edited_manifest_is_refused(copy):
    path = copy / "model.json"
    path.write_text(path.read_text().replace('"bits": 7', '"bits": 8'))
    with pytest.raises(DataError, match=r"model.json was changed: its checksum differs"):
        OnnxEncoder.load(copy)


def test_a_manifest_that_is_no_json(copy):
    (copy / "model.json").write_text("{")
    with pytest.raises(DataError, match=r"model.json is damaged"):
        OnnxEncoder.load(copy)


def test_what_onnxruntime_and_tokenizers_raise_is_one_line(tmp_path):
    for name, opened in (
        ("graph.onnx", runtime.open_graph),
        ("tokenizer.json", lambda path: runtime.open_tokenizer(path, 8)),
    ):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(DataError, match=f"{name}") as caught:
            opened(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_verified_folder_is_not_read_again(copy, monkeypatch):
    read = []
    monkeypatch.setattr("boolattn.checksums.file_sum", lambda path: read.append(path) or "")
    OnnxEncoder.load(copy)
    assert read == []
    # Other bytes of the same size: the time tells.
    path = copy / "document.onnx"
    path.write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="differs from"):
        OnnxEncoder.load(copy)
    assert read


def test_a_cache_that_cannot_be_written_is_no_error(copy, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "file"))
    _opens(copy)


def test_the_number_of_threads(monkeypatch):
    monkeypatch.setenv(THREADS_VARIABLE, "3")
    assert default_threads() == 3
    for wrong in ("0", "many", "-1"):
        monkeypatch.setenv(THREADS_VARIABLE, wrong)
        with pytest.raises(ConfigError, match=f"{THREADS_VARIABLE} must be a number"):
            default_threads()
    monkeypatch.delenv(THREADS_VARIABLE)
    assert default_threads() == len(os.sched_getaffinity(0))


def test_the_search_half_imports_no_torch():
    code = (
        "import sys\n"
        "from boolattn.search import load_model\n"
        "import boolattn.service.app, boolattn.cli, boolattn.search.systems\n"
        "from boolattn.query.parser import load_parser\n"
        "from boolattn.query.plan import plan_queries\n"
        "from boolattn.query.reading import QueryReader\n"
        "plan = QueryReader(load_parser()).read('moths but not bees')\n"
        "plan_queries([plan], load_model('shipped'))\n"
        "print([n for n in ('torch', 'transformers', 'sentence_transformers') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.home()
    )
    assert done.stdout.strip() == "[]", done.stderr


RECIPES = {
    "green": "Thai green curry. Chicken with green curry paste, coconut milk, basil and garlic.",
    "massaman": "Massaman curry. Beef, potatoes and peanuts in a coconut milk curry.",
    "butter": "Butter Chicken. Mild Indian curry of chicken in tomato, butter and cream.",
    "chana": "Chana masala. Chickpea curry with tomatoes, onions, cumin and coriander.",
    "palak": "Palak paneer. Indian curry of spinach and fresh cheese with ginger.",
    "pudding": "Rice pudding. Rice cooked slowly in milk with sugar, vanilla and cinnamon.",
    "teriyaki": "Teriyaki salmon. Salmon glazed with soy sauce, mirin and sugar.",
    "macaroons": "Coconut macaroons. Biscuits of egg white, sugar and desiccated coconut.",
    "carbonara": "Spaghetti carbonara. Pasta with eggs, pecorino, guanciale and pepper.",
    "salad": "Caesar salad. Romaine lettuce with croutons, parmesan and anchovies.",
    "pie": "Apple pie. Apples with cinnamon baked in a butter crust.",
    "stew": "Beef stew. Beef braised with carrots, onions and red wine.",
}


@pytest.mark.parametrize("query", ["curry NOT coconut", "curry NOT coconut curry"])
def test_not_keeps_what_fits_before_what_does_not(shipped, query):
    documents = shipped.encode_documents(list(RECIPES.values()))
    [plan] = plan_queries(read_trees([parse(query)]), shipped)
    scores = score(plan, plan.vectors @ documents.T)
    order = [list(RECIPES)[row] for row in np.argsort(-scores)]
    for kept in ("butter", "chana", "palak"):
        for other in ("pudding", "teriyaki", "green", "massaman", "macaroons"):
            assert order.index(kept) < order.index(other), (kept, other)


@pytest.mark.parametrize("words", [True, False])
def test_a_title_of_the_collection_is_not_split(shipped, tmp_path, words):
    rows = {"p": "Apples or pears", "a": "Apple pie", "b": "Pear tart"}
    documents = [Document(id=id_, title=name, text=f"{name}, baked.") for id_, name in rows.items()]
    searcher = Searcher.build(tmp_path / "index", documents, shipped, words=words)
    title, other = searcher.search_many(["apples  or PEARS?", "apples or plums"])
    assert other.is_composed
    assert title.is_composed is not words
    if words:
        assert "a document has this title" in " ".join(title.warnings)
        assert title.hits[0].id == "p"
