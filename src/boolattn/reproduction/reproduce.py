"""Runs (pretrain, train, rank the whole corpus, measure), and the paper's tables made of them."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import release_memory
from filelock import FileLock, Timeout

from boolattn.encoder.torch_encoder import encode_documents, encode_queries
from boolattn.encoder.towers import load_towers
from boolattn.errors import BoolattnError, ConfigError, MissingDataError
from boolattn.evaluation.benchmark import Judgements, prepare
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.ranking import Ranking, write_run
from boolattn.evaluation.results import results_of
from boolattn.evaluation.tables import markdown, save_figure, short, template_figure
from boolattn.files import package_table, write_text
from boolattn.reproduction.requests import Paths, PlannedRun, RunRequest, plan
from boolattn.reproduction.runs import LineTable, Run, make_tables, mean_and_deviation, registry
from boolattn.search.systems import Bm25Ranker
from boolattn.settings import build
from boolattn.training import launch
from boolattn.training.loop import about_machine, data_fingerprint, processes
from boolattn.training.retrieval import Corpus, rank
from boolattn.training.settings import Preset, read_preset

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    Progress = Callable[[str], None]
    #: Query mode, split, source of the operator labels, and the ranking.
    Rankings = Iterator[tuple[str, str, str, Ranking]]

logger = logging.getLogger(__name__)

_BEGUN = "begun.json"  # What a training that is not finished was begun with
_MARKS = {0.001: " ‡", 0.05: " †", 2.0: ""}  # Of p values below a level


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper: its columns and rows, and our systems for it."""

    title: str
    on: str
    metrics: Sequence[str]
    systems: Sequence[str]
    rows: Sequence[Mapping[str, Any]]  # label, who reports it, and a value for each metric
    against: Mapping[str, str] = field(default_factory=dict)  # what each of ours is tested against


def targets() -> dict[str, Target]:
    """Read ``paper.toml``."""
    tables = package_table("boolattn.reproduction", "paper.toml")
    return {name: build(Target, values, source="paper.toml") for name, values in tables.items()}


def reproduce(
    name: str, request: RunRequest, paths: Paths, progress: Progress, *, stored: Path | None = None
) -> str:
    """Do the runs of a table or figure that are not finished; return it in Markdown.

    With ``stored`` nothing is run: the finished runs below that folder are shown. Writes
    ``<name>.md`` and of a figure ``<name>.png`` beside the folder of runs.
    """
    runs, out = list(request.runs()), paths.runs.parent
    if stored is None:
        finished = run_all(request, paths, progress)
    else:
        finished = [path for run in runs if (path := stored / run.key.path).is_file()]
    if not finished:
        key = f"{request.datasets[0]}/{request.encoders[0]}"
        raise MissingDataError(f"{stored or paths.runs} has no run of {name} in {key}")
    [table] = make_tables(map(Run.load, finished))
    is_figure, target = name == "figure3", targets()[name]
    rows = [
        [line.label, line.gate, split, f"`{name}`", str(len(part)), short(part.means["recall@100"])]
        for line in table.lines
        for split in line.rows
        for name, part in line.averaged(split).by("template").items()
    ]
    columns = ["system", "operator labels", "queries", "template", "n", "Recall@100"]
    body = markdown(columns, rows) if is_figure else _compared(target, table)
    text = f"**{target.title}**\n\n{body}\n\nThe paper's rows are for {target.on}."
    if table.dataset.name not in ("quest", "boolquestions"):
        text += f" Ours are for {table.dataset.label} and must not be compared with them: "
        text += "only rows of one data set can be."
    write_text(out / f"{name}.md", text + "\n")
    if is_figure:
        averaged = [line.averaged(table.splits[-1]) for line in table.lines]
        try:
            save_figure(template_figure(averaged), out / f"{name}.png")
        except MissingDataError as error:
            progress(str(error))
    names = {path.parts[-3:] for path in finished}
    lacking = [str(run.key) for run in runs if run.key.path.parts not in names]
    return text + (f"\n\nNot run: {'; '.join(lacking)}." if lacking else "")


def _compared(target: Target, table: LineTable) -> str:
    """Lay out the paper's rows and ours, each tested over the seeds that both systems have."""
    rows = [[r["label"], r["who"], *map(short, r["values"]), target.on] for r in target.rows]
    pairs: dict[str, None] = {}
    for split in table.splits:
        for line in (line for line in table.lines if split in line.rows):
            base = table.find(target.against.get(line.system, ""))
            # A metric of some queries, like "mrr@10 not", is not tested.
            metrics = [metric for metric in target.metrics if " " not in metric]
            tests = line.compare(base, split, metrics)
            if base and tests:
                pairs[f"{line.label} ({line.gate}) against {base.label} ({base.gate})"] = None
            p_values = (tests[m].p_value if m in tests else 1.0 for m in target.metrics)
            marks = [next(_MARKS[level] for level in _MARKS if p < level) for p in p_values]
            cells = [mean_and_deviation(line.means(split, metric)) for metric in target.metrics]
            queries = f"{table.dataset.label}, {table.dataset.splits[split]}"
            seeds = ", ".join(map(str, line.rows[split]))
            note = f"{table.encoder_label}, {queries}; seeds {seeds}; operator labels: {line.gate}"
            marked = (cell + mark for cell, mark in zip(cells, marks, strict=True))
            rows.append([line.label, "ours", *marked, note])
    heads = [metric.replace("recall@", "R@").replace("mrr@10 ", "") for metric in target.metrics]
    text = markdown(["system", "source", *heads, "on"], rows)
    test = "paired randomisation test over queries, values averaged over the seeds of both"
    return text + (f"\n\n† p < .05, ‡ p < .001 ({test}): {'; '.join(pairs)}." if pairs else "")


def make_request(
    name: str, preset: str = "", data: str = "", encoder: str = "", **more: Any
) -> RunRequest:
    """Request the runs of a table.

    The preset names data set and encoder, ``data`` and ``encoder`` are their folders.
    """
    if name == "table2" and not data:
        remedy = "name a folder in BEIR's format with its training and test questions by --data"
        source = "docs/reproduction.md says how"
        raise MissingDataError(f"BoolQuestions is missing: {remedy} ({source})")
    values, known = read_preset(preset or "demo"), registry()
    catalog = values.get("data", {}).get("name")
    # The last of BEIR's format is any folder, not BoolQuestions.
    fitting = {d.catalog: d.name for d in known.datasets.values()}
    dataset = "boolquestions" if name == "table2" else fitting.get(catalog, "")
    if not dataset:
        raise ConfigError(f"preset {preset} is for {catalog!r}, which has no table")
    source = str(values.get("model", {}).get("encoder", "minilm"))
    owner = next((e.name for e in known.encoders.values() if e.source == source), "")
    folder, owner = encoder or ("" if owner else source), owner or "minilm"
    return RunRequest(
        systems=targets()[name].systems,
        datasets=[dataset],
        encoders=[owner],
        data={dataset: Path(data)} if data else {},
        preset=preset or "demo",
        sources={owner: folder} if folder else {},
        **more,
    )


def run_all(request: RunRequest, paths: Paths, progress: Callable[[str], None]) -> list[Path]:
    """Do the requested runs, after whatever can be checked; return the files of finished ones.

    Several processes may do the same request: none repeats what another has begun.
    """
    finished, to_do = plan(request, paths)
    for run in to_do:
        run.check()
    progress(f"{len(to_do)} runs to do, {len(finished)} finished")
    for run in to_do:
        key, path = run.key, paths.runs / run.key.path
        try:
            with paths.lock(key):
                if not path.is_file():
                    progress(f"{key}: {_execute(run, paths)}")
            finished.append(path)
        except Timeout:
            progress(f"{key}: another process does it")
        except BoolattnError as error:
            progress(f"FAILED {key}: {error}")
        except Exception as error:  # one run must not end the others
            logger.exception("%s", key)
            progress(f"FAILED {key}: {type(error).__name__}: {error}")
        finally:
            release_memory()  # also for other processes on the same GPU
    return finished


def _execute(run: PlannedRun, paths: Paths) -> str:
    """Train, rank, measure, write the run file; return the main results in words."""
    start, seconds = time.perf_counter(), dict[str, float]()
    system, preset, corpus = run.system, run.preset, run.corpus
    splits = [split for split in run.dataset.splits if corpus.dataset.splits.get(split)]
    judged = prepare(corpus.dataset, splits).splits
    details: dict[str, Any] = {"seconds": seconds, "inputs": run.fingerprints()}
    if system.kind == "bm25":
        ranker = Bm25Ranker([document.text for document in corpus.dataset.documents])
        rankings: Rankings = (
            ("plain_text", split, "none", ranker.rank(part.texts, needed_depth(part)))
            for split, part in judged.items()
        )
    else:
        details["settings"] = preset.to_dict()
        # Not the folder of the encoder on this machine.
        details["settings"]["model"]["encoder"] = run.encoder.source
        if system.kind == "trained":
            towers = _trained(run, paths, details)
            seconds["train"] = round(time.perf_counter() - start, 2)
        else:
            towers = launch.make_towers(preset).to(processes().device)
        rankings = _tower_rankings(run, towers, judged)
    about: dict[str, Any] = {"system": system.name, "dataset": run.dataset.name, "seed": run.seed}
    results = []
    for mode, split, gate, ranking in rankings:
        about |= {"split": split, "gate": gate, "details": {"query_mode": mode}}
        results.append(results_of(judged[split], measure(ranking, judged[split]), **about))
    seconds["rank"] = round(time.perf_counter() - start - sum(seconds.values()), 2)
    if torch.cuda.is_available():
        details["gpu_bytes"] = torch.cuda.max_memory_allocated()
    details |= {"command": paths.command, **about_machine()}
    Run(run.key, results, details).save(paths.runs)
    # Other runs may start from the model, but not from what training needed.
    home = paths.model(run.key)
    if not paths.keep_models:
        shutil.rmtree(home, ignore_errors=True)
    for name in ("checkpoint.safetensors", _BEGUN):
        (home / name).unlink(missing_ok=True)
    metrics = ("r_precision", "leak", "recall@100")
    return "; ".join(
        f"{r.split}: " + ", ".join(f"{name} {r.means[name]:.3f}" for name in metrics)
        for r in results[: len(judged)]
    )


def _trained(run: PlannedRun, paths: Paths, details: dict[str, Any]) -> SentenceTransformer:
    """Pretrain, train, note both in the details, and return the model."""
    preset, source = run.preset, run.start
    if run.system.pretrain and source is None:
        folder = paths.pretraining(preset)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / "metrics.json").is_file():  # an interrupted one has none
                shutil.rmtree(folder, ignore_errors=True)
                launch.pretrain(preset, launch.Launch(out=folder))
        summary = json.loads((folder / "metrics.json").read_text("utf-8"))["summary"]
        details["heads"], source = summary, folder / "model"
    home = paths.model(run.key)
    about = {"settings": preset.to_dict(), "inputs": details["inputs"]}
    begun, text = home / _BEGUN, json.dumps(about, sort_keys=True)
    # An interrupted training of the same goes on.
    is_begun = begun.is_file() and begun.read_text("utf-8") == text
    if not is_begun:
        shutil.rmtree(home, ignore_errors=True)
        write_text(begun, text)
    rankings = _bm25(run.corpus, preset, paths.work) if preset.train.n_bm25 else None
    options: Any = {"resume": is_begun, "command": paths.command}
    where = launch.Launch(out=home, pretrained=source, rankings=rankings, **options)
    details["training"] = launch.train(preset, where, run.corpus)
    return load_towers(home / "model", device=str(processes().device))


def _bm25(corpus: Corpus, preset: Preset, work: Path) -> Path:
    """Write the first 100 documents by BM25 of each training query, for hard negatives."""
    split = preset.data.train
    digest = data_fingerprint(corpus.dataset, split.split("+"))
    path = work / "bm25" / f"{corpus.dataset.name}-{split}-{digest}.run"
    if not path.is_file():
        queries = corpus.split(split)
        ranker = Bm25Ranker([document.text for document in corpus.dataset.documents])
        ranking = ranker.rank([query.text for query in queries], 100)
        write_run(path, ranking, [query.id for query in queries], list(corpus.rows))
    return path


def _tower_rankings(
    run: PlannedRun, towers: SentenceTransformer, judged: Mapping[str, Judgements]
) -> Rankings:
    """Rank the corpus by one vector a query, in each query mode on each split."""
    system, preset = run.system, run.preset
    gate = preset.plugin.gate.replace("label", "oracle") if preset.model.use_plugin else "none"
    prefix = run.encoder.query_prefix if system.kind == "untrained" else ""
    documents = encode_documents(towers, [document.text for document in run.data.documents])
    for mode, (split, judgements) in product(system.query_modes, judged.items()):
        operators, labels = None, gate
        if mode == "oracle_operators":
            operators = judgements.operators
            labels = gate if gate == "oracle" else f"oracle, trained with {gate}"
        texts = [prefix + text for text in judgements.texts]
        vectors = encode_queries(towers, texts, operators=operators)
        yield mode, split, labels, rank(vectors, documents, needed_depth(judgements))
