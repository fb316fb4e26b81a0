"""``boolattn data``: results on stdout, the rest on stderr, one line for an error."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import boolattn
from benchmark_data import taxa
from boolattn.cli.train import data as app
from boolattn.data.beir import read_beir
from boolattn.data.catalog import CATALOG, FORMATS, DataOptions, open_dataset
from boolattn.data.quest import load_quest_intro
from boolattn.data.sentences import generate
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.jsonl import read_jsonl, write_jsonl

SAMPLES = Path(__file__).parent / "samples"
QUEST = ("--from", str(SAMPLES / "quest-intro"))


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result


def opened(name, folder):
    return open_dataset(name, DataOptions(folder=Path(folder)))


def test_list_names_every_data_set_with_its_licence():
    text = run("list").stdout
    for name, entry in CATALOG.items():
        for part in (name, entry["licence"], entry["source"]):
            assert part in text


def test_quest_intro_by_name():
    data = opened("quest-intro", SAMPLES / "quest-intro")
    assert len(data.documents) == 30
    templates = [query.template for query in data.splits["train"]]
    assert (len(templates), templates.count("_ that are not _")) == (3, 1)


def test_build_writes_a_folder_that_can_be_read(tmp_path):
    out = tmp_path / "built"
    assert run("build", "quest-intro", "--out", str(out), *QUEST).stdout == f"{out}\n"
    back = read_beir(out)
    quest = load_quest_intro(SAMPLES / "quest-intro")
    assert back.splits["train"] == quest.splits["train"]
    assert back.documents == quest.documents
    assert back.splits["generated_val"]
    assert len(opened("beir", out).documents) == 30
    with pytest.raises(DataError, match="exists; remove it"):
        run("build", "quest-intro", "--out", str(out), *QUEST)


def test_boolquestions_by_name():
    folder = SAMPLES / "boolquestions"
    queries = opened("boolquestions-msmarco", folder).splits["eval"]
    assert {operator for query in queries for operator in query.operators} == {"not", "and", "or"}
    assert opened("boolquestions-nq", folder).documents


@pytest.fixture
def taxa_builds(monkeypatch, tmp_path):
    """Replaces the build of the taxa benchmark, which takes many seconds; counts its calls."""
    builds = []

    def build(folder, size="small", *, tell=None):
        builds.append(size)
        tell("3/5 making sets")
        row = {"id": "1", "title": "Moth", "text": "A moth.", "metadata": {"class": "Insecta"}}
        write_jsonl(folder / "corpus.jsonl", [row])
        query = {"id": "train-0", "text": "moths", "template": "_", "operators": []}
        query |= {"operands": [{"text": "moths", "spans": [[0, 5]]}], "gold": ["1"]}
        query |= {"excluded": [], "partial": [], "domain": "animals", "wording": "plain"}
        write_jsonl(folder / "train.jsonl", [query])
        manifest = {"format": FORMATS["taxa"], "size": size, "queries": {"train": {"_": 1}}}
        write_jsonl(folder / "manifest.json", [manifest])

    monkeypatch.setattr(taxa, "build", build)
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    return builds


def test_taxa_are_built_once_and_cached(taxa_builds):
    told = []
    options = DataOptions(tell=told.append)
    assert len(open_dataset("taxa", options).documents) == 1
    assert told == ["3/5 making sets"]
    assert open_dataset("taxa", options).splits["train"]
    assert taxa_builds == ["small"]
    open_dataset("taxa", replace(options, size="full"))
    assert taxa_builds == ["small", "full"]


def test_taxa_are_built_into_the_folder_given(taxa_builds, tmp_path):
    out = tmp_path / "taxa"
    done = run("build", "taxa", "--out", str(out))
    assert done.stdout == f"{out}\n"
    assert done.stderr == "3/5 making sets\n"
    assert (out / "manifest.json").is_file()
    assert len(opened("taxa", out).documents) == 1
    assert taxa_builds == ["small"]


@pytest.mark.parametrize("name", ["taxa", "domains"])
def test_a_wheel_says_what_builds_a_benchmark(name, tmp_path):
    """Run from a folder that has the package alone, as an installed wheel has."""
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "boolattn").symlink_to(Path(boolattn.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(packages), "BOOLATTN_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "boolattn", "data", "build", name]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"boolattn: {name} is built by benchmark_data/ of the source repository; install boolattn "
        "from a checkout: pip install -e .\n"
    )


def test_a_command_finds_the_builders_from_any_folder(tmp_path):
    """A missing package of the sources is named: the builder was found."""
    code = (
        "import sys; sys.modules['marisa_trie'] = None; path = list(sys.path); "
        "from boolattn.data.catalog import DataOptions, build_benchmark; from pathlib import Path\n"
        "try: build_benchmark('taxa', Path('out'), DataOptions())\n"
        "except Exception as error: print(error)\n"
        "assert path == sys.path"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(boolattn.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("the taxa benchmark needs the package marisa-trie")


def test_sentences(tmp_path):
    out = tmp_path / "sentences.jsonl"
    run("build", "sentences", "-n", "5", "--seed", "3", "--out", str(out))
    rows = [row for _, row in read_jsonl(out, {"text": str, "template": str, "cues": list})]
    assert len(rows) == 5
    again = [asdict(sentence) for sentence in generate(5, 3)]
    assert [row["text"] for row in again] == [row["text"] for row in rows]
    assert [sentence.text for sentence in generate(5, 4)] != [row["text"] for row in rows]


def test_errors_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="no data set 'trec'; there are taxa, domains, quest"):
        run("build", "trec")
    with pytest.raises(MissingDataError, match=r"in .*quest-intro; put"):
        run("build", "quest-intro", "--out", "x")
    with pytest.raises(ConfigError, match="sentences has no queries; those with queries are taxa"):
        open_dataset("sentences")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="no output given for beir: add --out FOLDER"):
        run("build", "beir")
    with pytest.raises(DataError, match="name the folder of beir"):
        open_dataset("beir")
    (tmp_path / "quest-intro").symlink_to(SAMPLES / "quest-intro")
    assert len(open_dataset("quest-intro", DataOptions()).documents) == 30


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from boolattn.cli.train import data as app; "
        "heavy = {'torch', 'transformers', 'numpy', 'pyarrow', 'zstandard'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
