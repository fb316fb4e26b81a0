import ast
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import boolattn
from boolattn.cli import main
from tests.conftest import trained


def modules_after(code: str) -> set[str]:
    probe = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_heavy_is_imported_before_use():
    """In one process: what all of them together do not import, none of them does."""
    loaded = modules_after(
        "import boolattn.cli, boolattn.query.parsed_query, boolattn.query.tree\n"
        "import boolattn.search, boolattn.service.app, boolattn.encoders.models\n"
        "import boolattn.evaluation.metrics, boolattn.scoring.fitted, boolattn.data.catalog"
    )
    assert "boolattn" in loaded
    assert not loaded & {"torch", "transformers", "matplotlib", "sentence_transformers"}
    # Nor what only some stores need.
    assert not loaded & {"faiss", "psycopg", "pymilvus", "qdrant_client", "tantivy"}


#: What an attached plug-in does not need.
ABSENT = (
    "typer rich sklearn sentence_transformers scipy faiss tantivy pandas accelerate datasets "
    "fastapi uvicorn matplotlib onnxruntime pydantic"
)
ATTACHED = f"""
import sys
before = list(sys.meta_path), list(sys.path), list(sys.path_hooks)
import boolattn
assert before == (list(sys.meta_path), list(sys.path), list(sys.path_hooks))
assert not {{"torch", "transformers", "sentence_transformers"}} & sys.modules.keys()
absent = {ABSENT.split()}
sys.modules.update(dict.fromkeys(absent))  # None: cannot be imported
import torch
from transformers import BertConfig, BertModel
sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
torch.manual_seed(0)  # with some weights no token is in scope
encoder = BertModel(BertConfig(vocab_size=30, **sizes)).eval()
batch = dict(input_ids=torch.arange(5, 13)[None], attention_mask=torch.ones(1, 8))
bare = encoder(**batch).last_hidden_state
boolattn.attach(encoder, boolattn.BoolAttnConfig(use_factor=False))  # has an effect at once
assert torch.equal(encoder(**batch).last_hidden_state, bare)
opened = encoder(**batch, operators=[["not"]]).last_hidden_state
assert not torch.equal(opened, bare)
boolattn.save(encoder, sys.argv[1])
other = boolattn.load(sys.argv[1])
assert torch.equal(other(**batch, operators=[["not"]]).last_hidden_state, opened)
"""


ENCODED = """
from boolattn.encoders.models import load_model
load_model("shipped").encode_queries(["moths"])
"""


def test_onnxruntime_keeps_no_telemetry(tmp_path):
    """It would write the id of the device and its events to the cache, before it sends them."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ORT_")}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", ENCODED], env=environment, check=True)
    assert [path.name for path in tmp_path.rglob("*") if path.parent.name == "cache"] == [
        "boolattn"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


LOADED = """
for name in absent:
    del sys.modules[name]
assert "boolattn.encoder" not in sys.modules
from boolattn import BoolBertModel
from sentence_transformers import SentenceTransformer
assert "boolattn.encoder.towers" not in sys.modules
model = SentenceTransformer(sys.argv[2], device="cpu")
first, second = model.encode_query(["cats and dogs"]), model.encode_document(["cats and dogs"])
assert abs(first - second).max() > 1e-5
assert isinstance(model[0].sub_modules["query"][0].model, BoolBertModel)
"""


def test_attaching_needs_only_torch_and_importing_bool_bert_registers_it(
    tiny_encoder, tokenizer, tmp_path
):
    """In one process, which imports torch once."""
    config = boolattn.BoolAttnConfig(gate="lexicon", rank=4)
    towers = trained(boolattn.build_towers(tiny_encoder(), config, tokenizer=tokenizer))
    boolattn.save_towers(towers, tmp_path / "towers")
    command = [sys.executable, "-W", "error::ImportWarning", "-c", ATTACHED + LOADED]
    command += [str(tmp_path / "attached"), str(tmp_path / "towers")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_exist():
    for name in boolattn.__all__:
        assert getattr(boolattn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'atach'"):
        _ = boolattn.atach


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from boolattn.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_and_version():
    assert command("--version").stdout.strip() == boolattn.__version__
    shown = command("--help")
    assert shown.returncode == 0
    assert "explain" in shown.stdout


def test_an_error_is_one_line_on_stderr():
    done = command("data", "build", "no-such-data")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("boolattn: no data set 'no-such-data'")


def test_an_error_of_a_model_folder_is_one_line(tmp_path, monkeypatch, capsys):
    """In this process: another one would import torch again."""
    monkeypatch.setattr(
        sys, "argv", ["boolattn", "explain", "cats not dogs", "--model", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    assert (stopped.value.code, printed.out) == (2, "")
    [line] = printed.err.strip().splitlines()
    assert line.startswith("boolattn: ")
    assert "holds no boolattn.safetensors" in line


@pytest.mark.parametrize("folder", ["benchmark_data", "benchmarks", "examples", "experiments"])
def test_names_that_are_imported_from_the_package_exist(folder):
    """Where a name is imported in a function too; mypy checks the package alone."""
    for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.module.startswith("boolattn"):
                continue
            module = import_module(node.module)
            for alias in node.names:
                is_package, name = hasattr(module, "__path__"), f"{node.module}.{alias.name}"
                is_there = hasattr(module, alias.name) or (is_package and find_spec(name))
                assert is_there, f"{path}: there is no {name}"
