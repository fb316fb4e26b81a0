"""Damaged, edited and foreign model folders: each is refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

import boolattn
from boolattn import BoolAttnConfig, attach, build_towers, save_towers
from boolattn.checksums import SUMS, check_sums, write_sums
from boolattn.cli import app
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoders.models import load_model
from boolattn.errors import BoolattnError, DataError, IndexMismatchError
from boolattn.query.parsed_query import ParserOutput
from boolattn.search import Document, Searcher
from tests.conftest import _wordpiece

TOWER = "query_0_Transformer"
WEIGHTS = f"{TOWER}/model.safetensors"
TEXTS = ["moths of Borneo but not Sumatra", "films"]
LAYER = "encoder.layer.1.output.dense.weight"
CONFIGS = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "router_config.json",
    "tokenizer_config.json",
    f"{TOWER}/config.json",
    f"{TOWER}/sentence_bert_config.json",
    "1_Pooling/config.json",
    "model.safetensors.index.json",
)
EVIL = "open({!r}, 'w').write('run')"


@pytest.fixture(scope="module")
def tokenizer():
    return _wordpiece()


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    """A model as it is saved, and the vectors that it gives."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 220, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16}
    config = AutoConfig.for_model("bert", **sizes, num_attention_heads=2)
    encoder = AutoModel.from_config(config).eval()
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_towers(build_towers(encoder, tokenizer=tokenizer), folder)
    return folder, TorchEncoder.load(folder).encode_documents(TEXTS)


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved[0], tmp_path / "model"))


def flip(path, place=-9):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edit(path, **changes):
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | changes))


def tensors(change):
    def apply(folder):
        found = load_file(folder / WEIGHTS)
        change(found)
        save_file(found, folder / WEIGHTS, metadata={"format": "pt"})

    return apply


def swap_words(path):
    text = path.read_text()
    path.write_text(text.replace('"not"', '"#"').replace('"and"', '"not"').replace('"#"', '"and"'))


def drop_layer(found):
    for name in [name for name in found if "layer.1." in name]:
        del found[name]


#: Changes of a saved model. Those of the second table are refused without checksums too.
SILENT = {
    "a bit of the weights": lambda f: flip(f / WEIGHTS),
    "the first bit of a tensor": lambda f: flip(f / WEIGHTS, -3000),
    "two words swapped": lambda f: swap_words(f / TOWER / "tokenizer.json"),
    "two words swapped at the root": lambda f: swap_words(f / "tokenizer.json"),
    "activation": lambda f: edit(f / TOWER / "config.json", hidden_act="relu"),
    "epsilon": lambda f: edit(f / TOWER / "config.json", layer_norm_eps=0.1),
    "heads": lambda f: edit(f / TOWER / "config.json", num_attention_heads=4),
    "pooling": lambda f: edit(f / "1_Pooling/config.json", pooling_mode="cls"),
    "similarity": lambda f: edit(f / "config_sentence_transformers.json", similarity_fn_name="dot"),
    "a prompt": lambda f: edit(f / "config_sentence_transformers.json", prompts={"query": "x "}),
    "lengths": lambda f: edit(f / TOWER / "sentence_bert_config.json", document_length=3),
    "no normalisation": lambda f: (f / "modules.json").write_text(
        json.dumps(json.loads((f / "modules.json").read_text())[:2])
    ),
    "tokenizer missing": lambda f: [path.unlink() for path in f.rglob("tokenizer.json")],
    "tokenizer settings missing": lambda f: (f / TOWER / "tokenizer_config.json").unlink(),
    "a file more": lambda f: (f / TOWER / "added_tokens.json").write_text('{"moths": 9}'),
    "weights more": lambda f: save_file({"x": torch.zeros(2)}, f / TOWER / "more.safetensors"),
    "checksums edited": lambda f: edit(f / SUMS, files={}),
    "checksums cut": lambda f: (f / SUMS).write_text("{"),
    "checksums of no files": lambda f: (f / SUMS).write_text('{"files": 3}'),
}
STRUCTURE = {
    "tensor missing": tensors(lambda found: found.pop(LAYER)),
    "layer missing": tensors(drop_layer),
    "no tensors": tensors(lambda found: found.clear()),
    "tensor more": tensors(lambda found: found.update(evil=torch.zeros(3))),
    "tensor renamed": tensors(lambda found: found.update({LAYER + "s": found.pop(LAYER)})),
    "tensor of another shape": tensors(lambda found: found.update({LAYER: torch.zeros(16, 8)})),
    "tensor flattened": tensors(lambda found: found.update({LAYER: found[LAYER].flatten()})),
    "one layer": lambda f: edit(f / TOWER / "config.json", num_hidden_layers=1),
    "layers -1": lambda f: edit(f / TOWER / "config.json", num_hidden_layers=-1),
    "twelve layers": lambda f: edit(f / TOWER / "config.json", num_hidden_layers=12),
    "layers as text": lambda f: edit(f / TOWER / "config.json", num_hidden_layers="two"),
    "no layers": lambda f: edit(f / TOWER / "config.json", num_hidden_layers=None),
    "hidden size": lambda f: edit(f / TOWER / "config.json", hidden_size=24),
    "vocabulary size": lambda f: edit(f / TOWER / "config.json", vocab_size=99),
    "unknown activation": lambda f: edit(f / TOWER / "config.json", hidden_act="wings"),
    "unknown model type": lambda f: edit(f / TOWER / "config.json", model_type="moth"),
    "model type of a number": lambda f: edit(f / TOWER / "config.json", model_type=3),
    "unknown pooling": lambda f: edit(f / "1_Pooling/config.json", pooling_mode="wings"),
    "unknown key of pooling": lambda f: (f / "1_Pooling/config.json").write_text('{"wings": 2}'),
    "unknown module": lambda f: (f / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Moth"}]'
    ),
    "no modules": lambda f: (f / "modules.json").write_text("[]"),
    "a module without a path": lambda f: (f / "modules.json").write_text('[{"idx": 0}]'),
    "modules of numbers": lambda f: (f / "modules.json").write_text("[1, 2]"),
    "unknown route": lambda f: edit(f / "router_config.json", structure={"query": ["nowhere"]}),
    "routes of no kind": lambda f: edit(f / "router_config.json", types=3),
    "weights empty": lambda f: (f / WEIGHTS).write_bytes(b""),
    "weights cut": lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-100]),
    "weights cut in the header": lambda f: (f / WEIGHTS).write_bytes(
        (f / WEIGHTS).read_bytes()[:50]
    ),
    "weights of another format": lambda f: (f / WEIGHTS).write_bytes(b"PK\3\4" + bytes(200)),
    "a huge header": lambda f: (f / WEIGHTS).write_bytes(b"\xff" * 8 + bytes(99)),
    "a header of terabytes": lambda f: (f / WEIGHTS).write_bytes((1 << 42).to_bytes(8, "little")),
    "weights missing": lambda f: (f / WEIGHTS).unlink(),
    "an index that leads out": lambda f: edit(
        f / "model.safetensors.index.json", weight_map={LAYER: "../../../x.safetensors"}
    ),
    "an index of lists": lambda f: edit(
        f / "model.safetensors.index.json", weight_map={LAYER: ["x.safetensors"]}
    ),
    "tokenizer cut": lambda f: [
        p.write_text(p.read_text()[:99]) for p in f.rglob("tokenizer.json")
    ],
    "tokenizer of no kind": lambda f: [p.write_text("{}") for p in f.rglob("tokenizer.json")],
    "a module outside": lambda f: (f / "modules.json").write_text(
        (f / "modules.json").read_text().replace('"1_Pooling"', '"../1_Pooling"')
    ),
    "a module at the root of the disk": lambda f: (f / "modules.json").write_text(
        (f / "modules.json").read_text().replace('"1_Pooling"', '"/etc"')
    ),
}
for _name in CONFIGS:
    for _what, _text in (
        ("no JSON", "{"),
        ("a number", "3"),
        ("deep", "[" * 99_999),
        ("null", "null"),
    ):
        STRUCTURE[f"{_name}: {_what}"] = lambda f, n=_name, t=_text: (f / n).write_text(t)
    STRUCTURE[f"{_name}: bytes"] = lambda f, n=_name: (f / n).write_bytes(b"\xff\xfe{}")


def refused(folder, match="."):
    with pytest.raises(BoolattnError, match=match) as caught:
        load_model(str(folder), device="cpu").encode_documents(TEXTS)
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    assert len(text) < 700
    return text


@pytest.mark.parametrize("name", SILENT | STRUCTURE)
def test_a_changed_model_is_refused(copy, name):
    (SILENT | STRUCTURE)[name](copy)
    refused(copy)


@pytest.mark.parametrize("name", STRUCTURE)
def test_a_damaged_model_without_checksums_is_refused(copy, name):
    (copy / SUMS).unlink()
    STRUCTURE[name](copy)
    refused(copy)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensor missing", f"the tensor '{LAYER}' is missing"),
        ("tensor more", "the tensor 'evil' has no place"),
        ("tensor of another shape", f"the tensor '{LAYER}' has another shape"),
        ("layer missing", r"the tensor 'encoder.layer.1.\S+' \(and 15 more\) is missing"),
        ("one layer", r"the tensor 'encoder.layer.1.\S+' \(and 15 more\) has no place"),
        ("unknown model type", "cannot be loaded: .*model type `moth`"),
        ("unknown pooling", "cannot be loaded: .*pooling mode: 'wings'"),
        ("weights cut", "cannot be loaded: SafetensorError"),
    ],
)
def test_the_tensor_or_the_reason_is_named(copy, name, message):
    (copy / SUMS).unlink()
    STRUCTURE[name](copy)
    refused(copy, message)


def test_a_folder_without_checksums_and_one_with_other_files_load(copy, saved):
    (copy / "README.md").write_text("changed")
    (copy / "notes.txt").write_text("mine")
    found = load_model(str(copy)).encode_documents(TEXTS)
    assert np.array_equal(found, saved[1])
    (copy / SUMS).unlink()
    assert np.array_equal(load_model(str(copy)).encode_documents(TEXTS), saved[1])


def test_an_edit_that_is_meant_is_sealed_again(copy):
    edit(copy / TOWER / "config.json", layer_norm_eps=0.1)
    assert "boolattn checksums FOLDER" in refused(copy, "config.json differs from checksums.json")
    assert CliRunner().invoke(app, ["checksums", str(copy)]).exit_code == 0
    load_model(str(copy), device="cpu")


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("kind", ["module", "router", "package", "pickle", "dense"])
def test_foreign_code_and_pickles_are_refused_before_they_are_read(
    copy, tmp_path, kind, is_sealed, monkeypatch
):
    """Whoever writes a folder writes its checksums too."""
    mark = tmp_path / "mark"
    monkeypatch.syspath_prepend(tmp_path)
    for place in (copy, tmp_path):
        (place / "foreign_moth.py").write_text(EVIL.format(str(mark)))
    modules = copy / "modules.json"
    if kind in ("module", "package"):
        name = "foreign_moth.Moth" if kind == "package" else "os.system"
        text = modules.read_text()
        text = text.replace("sentence_transformers.base.modules.normalize.Normalize", name)
        modules.write_text(text)
    elif kind == "router":
        edit(copy / "router_config.json", types={TOWER: "foreign_moth.Moth"})
    else:
        part = copy / TOWER if kind == "pickle" else copy / "2_Normalize"

        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {mark}",)

        for path in part.glob("*.safetensors"):
            path.unlink()
        if kind == "dense":
            module = "sentence_transformers.sentence_transformer.modules.dense.Dense"
            text = modules.read_text()
            normal = "sentence_transformers.base.modules.normalize.Normalize"
            modules.write_text(text.replace(normal, module))
            edit(copy / "2_Normalize/config.json", in_features=16, out_features=16)
        torch.save(Evil(), part / "pytorch_model.bin")
        (copy / "model.safetensors.index.json").unlink()
    if is_sealed:
        write_sums(copy)
    else:
        (copy / SUMS).unlink()
    refused(copy, "is pickled and could run code" if kind in ("pickle", "dense") else "not run")
    assert not mark.exists()
    assert "foreign_moth" not in sys.modules


def test_foreign_code_is_refused_before_torch_is_imported(copy, tmp_path):
    edit(copy / "router_config.json", types={TOWER: "foreign_moth.Moth"})
    write_sums(copy)
    code = (
        "import sys\nfrom boolattn.encoders.models import load_model\n"
        f"try: load_model({str(copy)!r})\n"
        "except Exception as error: print(type(error).__name__, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "DataError False"


def test_a_warm_start_reads_no_weights(copy):
    """Counted by the kernel: all bytes that this process reads."""

    def n_read():
        lines = Path("/proc/self/io").read_text().split()
        return int(lines[lines.index("rchar:") + 1])

    files = json.loads((copy / SUMS).read_text())["files"]
    size = sum((copy / name).stat().st_size for name in files)
    counts = []
    for _ in range(2):
        before = n_read()
        assert check_sums(copy)
        counts.append(n_read() - before)
    assert counts[0] > size
    assert counts[1] < 20_000 < size / 2
    flip(copy / WEIGHTS)
    os.utime(copy / WEIGHTS, ns=(0, 0))
    refused(copy, "differs from")


def test_a_plugin_folder_is_checked(tiny_encoder, tokenizer, batch, tmp_path):
    encoder = tiny_encoder()
    attach(encoder, BoolAttnConfig(gate="lexicon", rank=4), tokenizer=tokenizer)
    folder = tmp_path / "model"
    boolattn.save(encoder, folder, tokenizer=tokenizer)
    boolattn.load(folder)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    for path, content in whole.items():
        if path.suffix in (".json", ".safetensors") and path.name != SUMS:
            flip(path)
            with pytest.raises(DataError, match=f"{path.name} differs from {SUMS}"):
                boolattn.load(folder)
            path.write_bytes(content)
    (folder / SUMS).unlink()
    # The plug-in's own file has a sum of its own.
    flip(folder / "boolattn.safetensors")
    with pytest.raises(BoolattnError, match=r"boolattn.safetensors is damaged: its checksum"):
        boolattn.load(folder)
    (folder / "boolattn.safetensors").write_bytes(whole[folder / "boolattn.safetensors"])
    edit(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(DataError, match=r"the tensor 'encoder.layer.2.\S+' .*is missing"):
        boolattn.load(folder)


def test_an_index_remembers_tokenizer_and_configuration(copy, tmp_path, caplog):
    (copy / SUMS).unlink()
    model = load_model(str(copy), device="cpu")
    assert set(model.digests) == {"tokenizer", "configuration"}
    index = tmp_path / "index"
    Searcher.build(index, [Document(id="a", text="moths")], model)
    assert Searcher.open(index, load_model(str(copy))).search("moths").hits
    edit(copy / TOWER / "config.json", layer_norm_eps=0.1)
    with pytest.raises(IndexMismatchError, match="another configuration of the model"):
        Searcher.open(index, load_model(str(copy)))
    edit(copy / TOWER / "config.json", layer_norm_eps=1e-12)
    for path in copy.rglob("tokenizer.json"):
        swap_words(path)
    with pytest.raises(IndexMismatchError, match="another tokenizer of the model"):
        Searcher.open(index, load_model(str(copy)))
    assert not caplog.text


def test_an_index_belongs_to_no_parser(shared_index, caplog):
    class OtherParser:
        threshold = 0.5

        def parse(self, texts):
            return [ParserOutput(reason="it was read by another parser") for _ in texts]

    folder, model = shared_index
    names = [Searcher.open(folder, model).search("moths").why_one_vector]
    for parser in (None, "shipped", OtherParser()):
        result = Searcher.open(folder, model, parser=parser).search("moths")
        names.append(result.why_one_vector)
    default, without, shipped, other = names
    assert default == shipped == "no and / or / not found"
    assert without == "the model has no query parser"
    assert other == "it was read by another parser"
    assert not caplog.text


@pytest.fixture
def shared_index(copy, tmp_path):
    model = load_model(str(copy), device="cpu")
    Searcher.build(tmp_path / "index", [Document(id="a", text="moths")], model)
    return tmp_path / "index", model


def test_the_shipped_parser_is_checked(tmp_path):
    from boolattn.query.parser import Parser

    models = Path(boolattn.__file__).parent / "models"
    for name in ("parser", "bge-small-general"):
        shutil.copytree(models / name, tmp_path / name)
    folder = tmp_path / "parser"
    Parser(folder)
    edit(folder / "parser.json", threshold=0.1)
    with pytest.raises(DataError, match=r"parser.json (differs from|was changed)"):
        Parser(folder)
    shutil.copy(models / "parser/parser.json", folder / "parser.json")
    # Its tokenizer and word vectors are the encoder's.
    swap_words(tmp_path / "bge-small-general/tokenizer.json")
    with pytest.raises(DataError, match=r"tokenizer.json differs from model.json"):
        Parser(folder)
