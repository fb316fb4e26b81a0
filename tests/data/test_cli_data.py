"""``boolattn data``: results on stdout, the rest on stderr, one line for an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

import boolattn
from benchmark_data import taxa
from boolattn.cli.data import data as app
from boolattn.data.beir import read_beir
from boolattn.data.built import FORMATS
from boolattn.data.catalog import CATALOG, DataOptions, open_dataset
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


def as_json(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def test_list_names_every_data_set_with_its_licence():
    text = run("list").stdout
    entries = as_json("list")
    assert [entry["name"] for entry in entries] == list(CATALOG)
    for entry in entries:
        assert entry["name"] in text
        assert entry["licence"]
        assert entry["source"]


def test_stats_count_by_split_and_template():
    stats = as_json("stats", "quest-intro", *QUEST)
    assert stats["n_documents"] == 30
    assert stats["splits"]["train"]["_ that are not _"] == 1
    assert sum(stats["splits"]["train"].values()) == 3
    result = run("stats", "quest-intro", *QUEST)
    assert "_ that are not _" in result.stdout
    assert result.stdout.startswith("QUEST-intro: 30 documents\n")
    assert result.stderr == ""


def test_build_writes_a_folder_that_can_be_read(tmp_path):
    out = tmp_path / "built"
    assert run("build", "quest-intro", "--out", str(out), *QUEST).stdout == f"{out}\n"
    back = read_beir(out)
    quest = load_quest_intro(SAMPLES / "quest-intro")
    assert back.splits["train"] == quest.splits["train"]
    assert back.documents == quest.documents
    assert back.splits["generated_val"]
    assert as_json("stats", "beir", "--from", str(out))["n_documents"] == 30
    with pytest.raises(DataError, match="exists; remove it"):
        run("build", "quest-intro", "--out", str(out), *QUEST)


def test_boolquestions_by_name():
    folder = ("--from", str(SAMPLES / "boolquestions"))
    stats = as_json("stats", "boolquestions-msmarco", *folder)
    assert set(stats["splits"]["eval"]) == {"not", "and", "or"}
    assert as_json("stats", "boolquestions-nq", *folder)["n_documents"]


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
    first = run("stats", "taxa")
    assert "taxa-small: 1 documents" in first.stdout
    assert "3/5 making sets" in first.stderr
    assert "making sets" not in first.stdout
    assert "train" in run("stats", "taxa").stdout
    assert taxa_builds == ["small"]
    run("stats", "taxa", "--size", "full")
    assert taxa_builds == ["small", "full"]


def test_taxa_are_built_into_the_folder_given(taxa_builds, tmp_path):
    out = tmp_path / "taxa"
    assert run("build", "taxa", "--out", str(out)).stdout == f"{out}\n"
    assert (out / "manifest.json").is_file()
    assert as_json("stats", "taxa", "--from", str(out))["n_documents"] == 1
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
    monkeypatch.delenv("BOOLATTN_QUEST_INTRO", raising=False)
    with pytest.raises(ConfigError, match="no data set 'trec'; there are taxa, domains, quest"):
        run("stats", "trec")
    with pytest.raises(MissingDataError, match=r"no folder .*quest-intro; put"):
        run("stats", "quest-intro")
    with pytest.raises(ConfigError, match="sentences has no queries; those with queries are taxa"):
        run("stats", "sentences")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="no output given for beir: add --out FOLDER"):
        run("build", "beir")
    with pytest.raises(DataError, match="name the folder of beir"):
        open_dataset("beir")
    monkeypatch.setenv("BOOLATTN_QUEST_INTRO", str(SAMPLES / "quest-intro"))
    assert len(open_dataset("quest-intro", DataOptions()).documents) == 30


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from boolattn.cli.data import data as app; "
        "heavy = {'torch', 'transformers', 'numpy', 'pyarrow', 'zstandard'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
