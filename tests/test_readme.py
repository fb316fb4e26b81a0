"""The pages: code runs, commands and paths exist, and tables agree with the run files."""

import csv
import importlib.util
import math
import re
import shlex
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click import UsageError

from boolattn.cli import app
from boolattn.data.catalog import DataOptions, built_folder
from boolattn.evaluation.results import MEAN, Results, compare, domain_rows
from boolattn.reproduction.reproduce import plan
from boolattn.reproduction.requests import Paths
from boolattn.reproduction.runs import Run
from boolattn.training.settings import TABLES, load_preset
from experiments import __main__ as experiments
from tests.reproduction.tiny import QUEST_INTRO, write_quest, write_taxa

ROOT = Path(__file__).parent.parent
RUNNING = (
    "README.md",
    "docs/quickstart.md",
    "docs/search.md",
    "docs/parsing.md",
    "docs/composition.md",
    "docs/models.md",
    "docs/training.md",
    "docs/stores.md",
)
#: Pages about today's code; the changelog and the ablations also name what was removed.
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
ALL_PAGES = [*PAGES, "CHANGELOG.md"]
ALL_PAGES += [f"docs/results/{name}.md" for name in ("README", "ablations", "domains", "people")]
_MODES = {"own": "plain_text", "label": "oracle_operators"}
#: Rows of the table of results: encoder, system in the table -> system and evaluation in the runs.
ROWS = {
    ("–", "BM25"): ("none", "bm25", "own"),
    ("MiniLM", "plain towers"): ("minilm", "plain", "own"),
    ("MiniLM", "BoolAttn, learned labels, gate and cue frozen"): (
        "minilm",
        "corrected-frozen",
        "own",
    ),
    ("MiniLM", "BoolAttn, oracle labels"): ("minilm", "corrected-label", "label"),
    ("bge-small", "plain towers"): ("bge-small", "plain", "own"),
    ("bge-small", "BoolAttn, learned labels, gate and cue frozen"): (
        "bge-small",
        "corrected-frozen",
        "own",
    ),
    ("bge-small", "BoolAttn, oracle labels"): ("bge-small", "corrected-label", "label"),
    ("BERT-base", "plain towers"): ("bert-base", "plain", "own"),
    ("BERT-base", "BoolAttn, paper variant, oracle labels"): ("bert-base", "paper-label", "label"),
}


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow if "training" in p else ()) for p in RUNNING],
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    """In order, in one folder."""
    monkeypatch.chdir(tmp_path)
    for block in _blocks(page, "python"):
        exec(compile(block, page, "exec"), {})
    printed = capsys.readouterr().out
    if page == "README.md":
        assert "{'and': False, 'or': False, 'not': True}" in printed
        assert "['Apple sorbet.']\n['butter is dairy', 'cream is dairy']" in printed
    if page == "docs/stores.md":
        assert printed.startswith("moths NOT Sumatra {'year': 1903}")
        assert "moths NOT Sumatra {'year': 1903}" in printed
        assert "page_content='A moth found in Borneo.'" in printed
    if page == "docs/quickstart.md":
        assert printed.startswith("hawk moths AND Borneo NOT Sumatra")
        assert re.search(r"^2 .*negated operand 'Sumatra' more than all", printed, re.MULTILINE)
    if page == "docs/parsing.md":
        assert "(hotels Paris with a pool OR hotels London with a pool) NOT smoking" in printed
    if page == "docs/composition.md":
        assert printed.startswith("moths of Borneo NOT moths Sumatra\n")
        scores = re.search(r"^\[ ?(-?[\d.]+) +(-?[\d.]+)\]", printed, re.MULTILINE)
        first, second = map(float, scores.groups())
        assert first > second


def test_examples_of_data_run(tmp_path, monkeypatch, capsys):
    """In a folder with small copies of the data sets that the page names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    shutil.copytree(QUEST_INTRO.parent, tmp_path, dirs_exist_ok=True)
    write_quest(_new(tmp_path / "cache/quest"))
    write_taxa(_new(built_folder("taxa", DataOptions())))
    blocks = _blocks("docs/data.md", "python")
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/data.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "of" in printed
    assert "frozenset(" in printed  # answers of a generated query


def _new(folder):
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("page", ALL_PAGES)
def test_commands_exist(page):
    """Every verb and option is one of the program's, and every value can be read."""
    commands = [line for block in _blocks(page, "sh|console") for line in _commands(block)]
    if page in ("README.md", "docs/quickstart.md"):
        assert len(commands) >= 5
    for words in commands:
        _parse(app, "boolattn", words)


@pytest.mark.parametrize(
    "words", [["search"], ["serve", "index", "--nonsense"], ["find"], ["data", "bild"]]
)
def test_wrong_commands_are_found(words):
    with pytest.raises(UsageError):
        _parse(app, "boolattn", words)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_modules_exist(page):
    text = _text(page)
    names = re.findall(r"python -m ((?:boolattn|experiments|benchmarks)[\w.]*)", text)
    if page in PAGES or page == "docs/results/README.md":
        names += [name for name in re.findall(r"`(boolattn\.[\w.]+)", text) if _is_code(name)]
    for module, imported in re.findall(r"^from (boolattn[\w.]*) import (.*)$", text, re.MULTILINE):
        names += [f"{module}.{name.strip()}" for name in imported.split(",")]
    for name in names:
        assert _exists(name.rstrip(".")), name


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page):
    roots = "src|tests|benchmark_data|experiments|docs|benchmarks|examples"
    for path in re.findall(rf"`((?:{roots})/[\w./-]*)`", _text(page)):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES)
def test_settings_exist(page):
    text = _text(page)
    for change in re.findall(r"--set ([a-z_.0-9]+=[\w./-]+)", text):
        load_preset("demo", [change], first="train")
    for table, key in re.findall(rf"`({'|'.join(TABLES)})\.(\w+)(?:=\w+)?`", text):
        if key in ("json", "jsonl"):
            continue
        assert key in TABLES[table].__dataclass_fields__, f"{table}.{key}"


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_make_has_the_targets(page):
    targets = re.findall(r"^([a-z]+):", _text("Makefile"), re.MULTILINE)
    named = [found for block in _blocks(page, "sh") for found in re.findall(r"make (\w+)", block)]
    assert named
    assert set(named) <= set(targets)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^):]+)\)", _text(page)):
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), target
        if anchor:
            assert anchor in _anchors(found), target


def test_pictures_are_shown():
    shown = "".join(map(_text, ALL_PAGES))
    for path in [*ROOT.glob("docs/results/*.png"), *ROOT.glob("docs/images/*")]:
        assert path.name in shown, f"no page shows {path}"


def _domain_rows():
    """Rows of the tables of domains, by system and wordings: validation, then test."""
    found = {}
    for row in re.findall(r"^\| (.*) \|$", _text("docs/results/domains.md"), re.MULTILINE):
        system, *cells = row.replace("**", "").split(" | ")
        pairs = [cell.split(" / ") for cell in cells]
        if [len(pair) for pair in pairs] == [2] * 6:
            for wordings, values in zip(("seen", "unseen"), zip(*pairs, strict=True), strict=True):
                found.setdefault((system, wordings), []).append([*values])
    return found


def test_the_table_of_the_readme_is_from_the_test_domains():
    systems = ("all-MiniLM-L6-v2", "shipped model, composed, hybrid search, strict NOT")
    columns = {"plain": 0, "AND, OR": 1, "NOT": 2, "NOT: share": 3}
    rows = re.findall(
        r"^\| (.*?) \| (\S+ / \S+) \| (\S+ / \S+) \|$", _text("README.md"), re.MULTILINE
    )
    assert len(rows) == len(columns)
    for (kind, *cells), (name, column) in zip(rows, columns.items(), strict=True):
        assert kind.startswith(name)
        for system, cell in zip(systems, cells, strict=True):
            expected = [_domain_rows()[system, w][1][column] for w in ("seen", "unseen")]
            assert cell == " / ".join(expected), (kind, system)


@pytest.mark.parametrize(
    "way", ["one vector", "composed", "hybrid", "strict NOT", "hybrid, strict NOT"]
)
def test_rows_of_domains_agree_with_the_results_of_every_query(way):
    ways = {
        "hybrid": "composed, hybrid search",
        "strict NOT": "composed, strict NOT",
        "hybrid, strict NOT": "composed, hybrid search, strict NOT",
    }
    for wordings, splits in {
        "seen": ("validation", "test"),
        "unseen": ("validation_unseen", "unseen"),
    }.items():
        rows = _domain_rows()[f"shipped model, {ways.get(way, way)}", wordings]
        for split, cells in zip(splits, rows, strict=True):
            name = f"{split}.shipped.{way.replace(', ', '-').replace(' ', '-')}.json.xz"
            results = Results.load(ROOT / "docs/results/runs/domains" / name)
            means = domain_rows(results)[MEAN]
            assert cells == [_short(value) for value in means], (split, way)


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_results_agree_with_the_run_files(row):
    """Means, spreads, seeds and significance, computed again from every query's values."""
    encoder, system, evaluation = ROWS[row]
    seeds, *cells = _table("docs/results/README.md")[row]
    values = _values("taxa", encoder, system, evaluation)
    assert seeds == ("–" if system == "bm25" else str(len(values["r_precision", "test"])))
    columns = [(metric, split) for metric in ("r_precision", "leak") for split in SPLITS]
    for cell, column in zip(cells, columns, strict=True):
        text, mark = _text_and_mark(cell)
        assert text == _mean_and_spread(values[column]), column
        assert mark == _mark(encoder, system, values[column], column), column


def test_all_rows_of_the_results_are_checked():
    assert set(_table("docs/results/README.md")) == set(ROWS)


def test_systems_agree_with_the_run_files():
    """Means and spreads of every row whose runs are in the repository."""
    with (ROOT / "docs/results/systems.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "/" in row["run"]]
    assert len(rows) >= 50
    for row in rows:
        path, _, mode = row["run"].partition(" ")
        data = {"taxa": "taxa", "QUEST-intro": "quest-intro"}[row["data"]]
        values = _values(data, *path.split("/"), "label" if mode else "own")
        for metric, name in {**METRICS, "recall@100": "Recall@100"}.items():
            for split, queries in SPLIT_NAMES[data].items():
                text, _ = _text_and_mark(row[f"{name}, {queries}"])
                assert text == _mean_and_spread(values.get((metric, split), {})), (row, metric)


def _text_and_mark(cell):
    text, mark = re.fullmatch(r"([^†‡]*?)( [†‡])?", cell).groups()
    return text, (mark or "").strip()


def _mean_and_spread(values):
    """Of the values of every query, by seed."""
    means = [np.nanmean(one) for one in values.values() if not np.isnan(one).all()]
    spread = f" ±{_short(np.std(means, ddof=1))}" if len(means) > 1 else ""
    return _short(np.mean(means)) + spread if means else "–"


@pytest.mark.parametrize("page", ["results/README", "results/ablations", "reproduction"])
def test_commands_of_the_tables_can_be_planned(page, tmp_path, monkeypatch):
    """Planned, not run: the runs take a GPU."""
    monkeypatch.chdir(tmp_path)
    commands = [words for words in _experiments(f"docs/{page}.md") if words[0] == "run"]
    assert len(commands) >= 2
    for words in commands:
        request = experiments.request_of(experiments.run.make_context("run", words[1:]).params)
        _, to_do = plan(request, Paths(runs=tmp_path / "runs", work=tmp_path / "work"))
        assert {run.dataset.name for run in to_do} <= {"taxa", "quest-intro"}, words
        assert to_do, words


SPLITS = ("test", "unseen")
SPLIT_NAMES = {
    "taxa": {"test": "seen or written", "unseen": "unseen or generated"},
    "quest-intro": {"val": "seen or written", "generated_val": "unseen or generated"},
}
METRICS = {"r_precision": "R-precision", "leak": "leak"}


SEEDS = (0, 42, 1234)


@cache
def _values(data, encoder, system, evaluation):
    """The values of all queries, by metric and split, then by seed."""
    values = {}
    for run in _runs(data, encoder, system):
        for row in run.results:
            if row.details["query_mode"] == _MODES[evaluation]:
                for metric in (*METRICS, "recall@100"):
                    by_seed = values.setdefault((metric, row.split), {})
                    by_seed[run.key.seed] = row.values[metric]
    return values


def _runs(data, encoder, system):
    """The runs of a system with every seed."""
    folder = ROOT / "docs/results/runs" / data / encoder
    paths = [folder / f"{system}-{seed}.jsonl.xz" for seed in SEEDS]
    return [Run.load(path) for path in paths if path.is_file()]


def _mark(encoder, system, values, column):
    """Significance against plain towers over common seeds.

    By a normal approximation, and near .001 and .05 by the randomisation test, which takes longer.
    """
    if system in ("plain", "bm25"):
        return ""
    plain = _values("taxa", encoder, "plain", "own")[column]
    seeds = sorted(plain.keys() & values.keys())
    differences = np.mean([values[seed] - plain[seed] for seed in seeds], axis=0)
    differences = differences[~np.isnan(differences)]
    z = differences.mean() / (differences.std(ddof=1) / math.sqrt(len(differences)))
    p = math.erfc(abs(z) / math.sqrt(2))
    if any(limit / 3 < p < limit * 3 for limit in (0.001, 0.05)):
        p = compare(np.zeros(len(differences)), differences).p_value
    return "‡" if p < 0.001 else "†" if p < 0.05 else ""


def _short(value):
    return f"{value:.3f}".removeprefix("0")


def _table(page):
    """Rows of a table of results, by encoder and system."""
    rows = re.findall(r"^\| (.*\.\d{3}.*) \|$", _text(page), re.MULTILINE)
    cells = [row.split(" | ") for row in rows]
    return {(row[0], row[1]): row[2:] for row in cells if len(row) == 7}


def _text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def _blocks(page, language):
    return re.findall(rf"^```(?:{language})\n(.*?)^```", _text(page), re.DOTALL | re.MULTILINE)


def _commands(block, program=("boolattn",)):
    """Yield the arguments of every call of a program."""
    block = re.sub(r"<<'END'\n.*?\nEND\n", "\n", block, flags=re.DOTALL)
    block = block.replace("\\\n", " ")
    for name, value in re.findall(r'^([A-Z]+)="([^"]*)"$', block, re.MULTILINE):
        block = block.replace(f"${name} ", f"{value} ")
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[: len(program)] == list(program):
            yield words[len(program) :]


def _experiments(page):
    blocks = _blocks(page, "sh")
    return [c for block in blocks for c in _commands(block, ("python", "-m", "experiments"))]


def _parse(command, name, words):
    """Read a command line as the program does, and run nothing."""
    with command.make_context(name, list(words)) as context:
        if hasattr(command, "resolve_command"):
            own_name, own, rest = command.resolve_command(context, list(words))
            _parse(own, own_name, rest)


def _is_code(name):
    return not name.endswith((".safetensors", ".json"))


def _exists(name):
    """Whether a dotted name is a module, or a name in one."""
    parent, _, last = name.rpartition(".")
    try:
        if importlib.util.find_spec(name):
            return True
    except ModuleNotFoundError:
        pass
    return bool(parent) and hasattr(importlib.import_module(parent), last)


def _anchors(path):
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}
