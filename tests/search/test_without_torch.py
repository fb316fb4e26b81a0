"""The search half in an environment without PyTorch, which these processes cannot import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[2]
BLOCKED = ("torch", "transformers", "sentence_transformers", "accelerate", "scipy", "sklearn")
#: Runs the command line in a process that finds none of these packages.
PRELUDE = f"""
import sys
from importlib.abc import MetaPathFinder
import importlib.util
class Block(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
own = importlib.util.find_spec
importlib.util.find_spec = lambda n, p=None: None if n.partition(".")[0] in {BLOCKED} else own(n, p)
sys.meta_path.insert(0, Block())
"""
CLI = PRELUDE + "from boolattn.cli import main\nmain()\n"
#: Runs several commands in one such process; prints the exit status and messages of each.
EACH = f"""{PRELUDE}
import io, json
from contextlib import redirect_stderr
from boolattn.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        with redirect_stderr(io.StringIO()) as printed:
            main()
    except SystemExit as ended:
        answers.append((ended.code, printed.getvalue()))
print(json.dumps(answers))
"""
DOCUMENTS = [
    {"id": "b", "text": "A moth found in Borneo."},
    {"id": "bs", "text": "A moth found in Borneo and Sumatra."},
    {"id": "f", "text": "A frog of Peru."},
]


def call(*arguments, code=CLI, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        **options,
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("no-torch")
    lines = folder / "moths.jsonl"
    lines.write_text("\n".join(map(json.dumps, DOCUMENTS)))
    done = call("index", lines, "--out", folder / "index")
    assert done.returncode == 0, done.stderr
    return folder / "index"


def test_search_and_explain(index):
    done = call("search", index, "moths of Borneo but not Sumatra", "--json", "--explain")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["hits"][0]["id"] == "b"
    assert found["is_composed"]
    done = call("explain", "moths of Borneo but not Sumatra", "--json")
    assert done.returncode == 0, done.stderr
    reading = json.loads(done.stdout)["parsed"]
    assert reading["operands"] == ["moths of Borneo", "moths Sumatra"]
    assert reading["is_negated"] == [False, True]
    assert done.stderr.strip() == (
        "cue, scope and bias by token need PyTorch and a model with BoolAttn (--model)"
    )


def test_what_needs_torch_says_so_in_one_line(tmp_path):
    (tmp_path / "modules.json").write_text("[]")
    commands = (
        ("explain", "moths but not bees", "--figure", "bees.png"),
        ("export", tmp_path, tmp_path / "out"),
        ("index", __file__, "--model", tmp_path, "--out", tmp_path / "index"),
        ("train", "--out", tmp_path / "run"),
        ("pretrain", "--out", tmp_path / "run"),
        ("reproduce", "figure1", "--out", tmp_path / "paper"),
    )
    done = call(json.dumps(commands, default=str), code=EACH)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    assert len(answers) == len(commands)
    for status, printed in answers:
        assert status == 2, printed
        assert len(printed.splitlines()) == 1, printed
        assert "pip install 'boolattn[train]'" in printed


def test_the_service_answers(index):
    process = subprocess.Popen(
        [sys.executable, "-c", CLI, "serve", str(index), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            pytest.fail("".join(lines))
        with urlopen(f"{address.group()}/search?q=moths+of+Borneo+but+not+Sumatra") as reply:
            found = json.load(reply)
        assert found["hits"][0]["id"] == "b"
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_nothing_of_the_three_is_imported(index):
    """Without a block: the packages are there, and are left alone."""
    code = (
        "import sys\n"
        "from boolattn.search import Searcher\n"
        "import boolattn.service.app, boolattn.search.systems, examples.demo.setup\n"
        "searcher = Searcher.open(sys.argv[1])\n"
        "result = searcher.search('moths of Borneo but not Sumatra')\n"
        "assert result.hits[0].id == 'b'\n"
        f"print([name for name in {BLOCKED} if name in sys.modules])"
    )
    done = call(index, code=code)
    assert done.stdout.strip() == "[]", done.stderr
