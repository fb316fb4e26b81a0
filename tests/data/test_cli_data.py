"""``boolattn data``: results on stdout, the rest on stderr, one line for an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

import boolattn
from benchmark_data import taxa
from boolattn.cli.data import app
from boolattn.data.beir import read_beir
from boolattn.data.built.taxa import FORMAT, TaxaManifest
from boolattn.data.catalog import CATALOG, DataOptions, open_dataset, open_negation
from boolattn.data.quest import load_quest_intro
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
    assert stats["coverage"]["train"]["n_kept"] == 3
    assert stats["splits"]["train"]["_ that are not _"] == 1
    assert sum(stats["splits"]["train"].values()) == 3
    result = run("stats", "quest-intro", *QUEST)
    assert "train: kept 3 of 5 queries, 15 of 21 gold documents" in result.stdout
    assert "_ that are not _" in result.stdout
    assert result.stdout.startswith("QUEST-intro: 30 documents\n")
    assert result.stderr == ""


def test_show_prints_examples():
    text = run("show", "quest-intro", "-n", "1", "--split", "train", *QUEST).stdout
    assert text.startswith(
        "train  owls not found in Avalon\n    train-0  _ that are not _  animals"
    )
    assert "operands: Owls | Fauna of Avalon" in text
    assert "excluded 3: " in text
    assert "\nval  " not in text
    spread = as_json("show", "quest-intro", "-n", "2", "--split", "train", *QUEST)["train"]
    assert [query["id"] for query in spread] == ["train-0", "train-1"]
    spread = as_json("show", "quest-intro", "-n", "2", "--split", "generated_val", *QUEST)
    first, second = (int(q["id"].split("-")[-1]) for q in spread["generated_val"])
    assert (first, second > 10) == (0, True)
    chosen = as_json("show", "quest-intro", "--template", "_ or _", *QUEST)
    assert chosen["train"] == []
    assert [query["template"] for query in chosen["val"]] == ["_ or _"]
    assert isinstance(chosen["val"][0]["gold"], list)
    with pytest.raises(ConfigError, match="no split 'dev'; there are train, val"):
        run("show", "quest-intro", "--split", "dev", *QUEST)


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


def negation_folder(tmp_path):
    for sample, name in (("cd-sco.txt", "x-CD-SCO-training-1.txt"), ("sfu.conll", "SFU_dev.conll")):
        (tmp_path / name).write_bytes((SAMPLES / "negation" / sample).read_bytes())
    return ("--from", str(tmp_path))


def test_negation(tmp_path):
    folder = negation_folder(tmp_path)
    assert as_json("stats", "cd-sco", *folder)["splits"]["train"] == {"": 4}
    assert "dev" in run("stats", "sfu", *folder).stdout
    shown = run("show", "sfu", *folder).stdout
    assert shown.startswith("dev  It [does] [n't] _boil_ , [nor] _whistle_ .\n")


def test_boolquestions_by_name():
    folder = ("--from", str(SAMPLES / "boolquestions"))
    stats = as_json("stats", "boolquestions-msmarco", *folder)
    assert set(stats["splits"]["eval"]) == {"not", "and", "or"}
    shown = run("show", "boolquestions-nq", *folder).stdout
    assert "gold 1: Sailor" in shown


@pytest.fixture
def taxa_builds(monkeypatch, tmp_path):
    """Replaces the build of the taxa benchmark, which takes many seconds; counts its calls."""
    builds = []

    def build(folder, size="small", *, progress=None):
        builds.append(size)
        progress("making sets", 3, 5)
        row = {"id": "1", "title": "Moth", "text": "A moth.", "metadata": {"class": "Insecta"}}
        write_jsonl(folder / "corpus.jsonl", [row])
        query = {"id": "train-0", "text": "moths", "template": "_", "operators": []}
        query |= {"operands": [{"text": "moths", "spans": [[0, 5]]}], "gold": ["1"]}
        query |= {"excluded": [], "partial": [], "domain": "animals", "wording": "plain"}
        write_jsonl(folder / "train.jsonl", [query])
        manifest = TaxaManifest(
            format=FORMAT,
            size=size,
            wordings="1",
            wordings_sha256="",
            packages={},
            documents=1,
            sets=1,
            queries={"train": {"_": 1}},
            files={},
        )
        write_jsonl(folder / "manifest.json", [asdict(manifest)])

    monkeypatch.setattr(taxa, "build", build)
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    return builds


def test_taxa_are_built_once_and_cached(taxa_builds):
    first = run("stats", "taxa")
    assert "taxa-small: 1 documents" in first.stdout
    assert "3/5 making sets" in first.stderr
    assert "making sets" not in first.stdout
    assert "train  moths\n" in run("show", "taxa").stdout
    assert taxa_builds == ["small"]
    run("stats", "taxa", "--size", "full")
    assert taxa_builds == ["small", "full"]


def test_taxa_are_built_into_the_folder_given(taxa_builds, tmp_path):
    out = tmp_path / "taxa"
    assert run("build", "taxa", "--out", str(out)).stdout == f"{out}\n"
    assert (out / "manifest.json").is_file()
    assert as_json("stats", "taxa", "--from", str(out))["n_documents"] == 1
    run("build", "taxa", "--beir", "--from", str(out), "--out", str(tmp_path / "beir"))
    assert read_beir(tmp_path / "beir").splits["train"][0].gold == frozenset({"1"})
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
        "from boolattn.data.catalog import DataOptions, build_taxa; from pathlib import Path\n"
        "try: build_taxa(Path('out'), DataOptions())\n"
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
    shown = as_json("show", "sentences", "-n", "5", "--seed", "3")
    assert [row["text"] for row in shown["sentences"]] == [row["text"] for row in rows]
    other = as_json("show", "sentences", "-n", "5", "--seed", "4")
    assert other != shown
    assert rows[0]["text"] in run("show", "sentences", "-n", "5", "--seed", "3").stdout
    assert sum(as_json("stats", "sentences")["splits"]["sentences"].values()) == 1000
    assert "_ that are not _" in run("stats", "sentences").stdout


def test_errors_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path))
    monkeypatch.delenv("BOOLATTN_QUEST_INTRO", raising=False)
    with pytest.raises(ConfigError, match="no data set 'trec'; there are taxa, domains, quest"):
        run("stats", "trec")
    with pytest.raises(MissingDataError, match=r"no folder .*quest-intro for quest-intro; put"):
        run("stats", "quest-intro")
    with pytest.raises(MissingDataError, match=r"no cd-sco in .*; put files there that fit"):
        open_negation("cd-sco", tmp_path)
    with pytest.raises(ConfigError, match="cd-sco has no queries; those with queries are taxa"):
        run("build", "cd-sco", "--out", str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="no output given for beir: add --out FOLDER"):
        run("build", "beir")
    with pytest.raises(DataError, match="name the folder of beir"):
        open_dataset("beir")
    monkeypatch.setenv("BOOLATTN_QUEST_INTRO", str(SAMPLES / "quest-intro"))
    assert len(open_dataset("quest-intro", DataOptions()).documents) == 30


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from boolattn.cli.data import app; "
        "heavy = {'torch', 'transformers', 'numpy', 'pyarrow', 'zstandard'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
